//! A few key and value heads, each shared by a group of query heads.
//!
//! Ainslie et al., [GQA](https://arxiv.org/abs/2305.13245), 2023. The shapes of the tensors
//! determine how many heads share keys, so this is `flash`.

use zoo_spec::GroupedQuery;

use super::Attention;

impl Attention for GroupedQuery {
    fn attends_to_all_keys(&self) -> bool {
        true
    }
}
