//! Counter-based random numbers for attention weights: keyed by seed and position, so that the
//! backward pass, another backend or another thread computes the same number.

use zoo_kernels::random::key;
pub(crate) use zoo_kernels::random::{Normals, mix, random_bits};

/// The key from which the row keys of `[example, head]` are derived.
pub(crate) fn head_key(seed: u64, head: [usize; 2]) -> u64 {
    let key = head
        .into_iter()
        .fold(seed, |key, index| mix(key).wrapping_add(index as u64));
    mix(key)
}

/// The key of the random numbers of query `[example, head, query]`.
pub(crate) fn row_key(seed: u64, [example, head, query]: [usize; 3]) -> [u32; 2] {
    key(head_key(seed, [example, head]), query)
}
