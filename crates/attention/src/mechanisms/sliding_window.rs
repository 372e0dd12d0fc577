//! A window of keys on either side of the query.
//!
//! Beltagy et al., [Longformer](https://arxiv.org/abs/2004.05150), 2020.

use zoo_spec::SlidingWindow;

use super::{Attention, Retained};
use crate::Pattern;

impl Attention for SlidingWindow {
    fn pattern(&self, _: usize) -> Option<Pattern> {
        Some(Pattern::window(self.window))
    }

    fn retained(&self) -> Option<Retained> {
        Some(Retained::window(self.window))
    }
}
