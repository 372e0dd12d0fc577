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

/// `(ln(1 + x) - x + x²/2) / x³` for `|x| <= 0.4143`, highest power first: interpolated at Chebyshev
/// nodes. For the Gumbel noise of the CPU and CubeCL kernels.
#[cfg(any(
    feature = "flex",
    feature = "ndarray",
    feature = "tch",
    feature = "cube"
))]
pub(crate) const LN_1P: [f32; 9] = [
    0.128_785_15,
    -0.140_919_22,
    0.105_871_92,
    -0.119_344_11,
    0.143_114_73,
    -0.166_944_65,
    0.199_996_65,
    -0.249_996_38,
    0.333_333_34,
];
