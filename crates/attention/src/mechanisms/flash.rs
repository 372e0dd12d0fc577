//! Exact softmax attention over everything that the mask shows: the [engine](crate::flash()) itself.

use zoo_spec::Flash;

use super::Attention;

impl Attention for Flash {
    fn sees_all_keys(&self) -> bool {
        true
    }
}
