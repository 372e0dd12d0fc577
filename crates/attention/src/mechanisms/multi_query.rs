//! One key and value head for all query heads.
//!
//! Shazeer, [Fast Transformer Decoding](https://arxiv.org/abs/1911.02150), 2019. The shapes of the
//! tensors determine how many heads share keys, so this is `flash`.

use zoo_spec::MultiQuery;

use super::Attention;

impl Attention for MultiQuery {
    fn attends_to_all_keys(&self) -> bool {
        true
    }
}
