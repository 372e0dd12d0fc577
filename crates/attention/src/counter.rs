//! What attention weights are drawn by: the place of a weight, so that the backward pass, another
//! backend or another thread finds the same number.

use zoo_kernels::random::key;
pub(crate) use zoo_kernels::random::{Normals, draw, mix};

/// What the keys of the rows of `[example, head]` are made from.
pub(crate) fn head_key(seed: u64, head: [usize; 2]) -> u64 {
    let key = head
        .into_iter()
        .fold(seed, |key, at| mix(key).wrapping_add(at as u64));
    mix(key)
}

/// What the numbers of query `[example, head, query]` are drawn by.
pub(crate) fn row_key(seed: u64, [example, head, query]: [usize; 3]) -> [u32; 2] {
    key(head_key(seed, [example, head]), query)
}
