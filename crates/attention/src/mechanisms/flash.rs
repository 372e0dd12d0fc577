//! Exact softmax attention over all visible keys: [`flash`](crate::flash()) itself.

use zoo_spec::Flash;

use super::Attention;

impl Attention for Flash {
    fn attends_to_all_keys(&self) -> bool {
        true
    }
}
