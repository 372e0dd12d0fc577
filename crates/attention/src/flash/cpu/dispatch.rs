//! The kernels, compiled for each instruction set.

use std::ops::Range;

use zoo_kernels::dispatch;

use super::backward::{backward_of_bias_tile, backward_part};
use super::few::forward_part;
use super::forward::forward_tile;
use super::{Call, Out, Upstream};

dispatch! {
    /// A tile of queries through all keys.
    pub(super) unsafe fn forward(
        call: &Call<'_>,
        head: usize,
        queries: Range<usize>,
        context: &mut [f32],
        stats: &mut [f32],
    ) by forward_tile;
}

dispatch! {
    /// A few queries through some keys.
    pub(super) unsafe fn forward_of_few(
        call: &Call<'_>,
        kv_head: usize,
        tiles: &[(Range<usize>, bool)],
        partial: &mut [f32],
    ) by forward_part;
}

dispatch! {
    /// The gradients of some rows of tiles.
    pub(super) unsafe fn backward(
        call: &Call<'_>,
        upstream: &Upstream<'_>,
        kv_head: usize,
        rows: Range<usize>,
        out: Out<'_>,
    ) by backward_part;
}

dispatch! {
    /// The gradient by the bias of a row of tiles.
    pub(super) unsafe fn backward_of_bias(
        call: &Call<'_>,
        upstream: &Upstream<'_>,
        head: [usize; 2],
        row: usize,
        strides: [usize; 2],
        d_bias: &mut [f32],
    ) by backward_of_bias_tile;
}
