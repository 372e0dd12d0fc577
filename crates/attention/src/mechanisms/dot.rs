//! Softmax of unscaled dot products.
//!
//! Luong et al., [Effective Approaches to Attention-based Neural Machine
//! Translation](https://arxiv.org/abs/1508.04025), 2015.

use zoo_spec::Dot;

use super::Attention;

impl Attention for Dot {
    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn attends_to_all_keys(&self) -> bool {
        true
    }
}
