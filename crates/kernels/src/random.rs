//! Counter-based random numbers: each value is a hash of its index, so the backward pass, another
//! backend or another thread computes the same one without shared state.

/// Mixes 64 bits so that every output bit depends on every input bit.
///
/// The finalizer of SplitMix64: Steele, Lea and Flood, 2014.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Key `index` derived from a seed, for [`random_bits`].
pub fn key(seed: u64, index: usize) -> [u32; 2] {
    let key = mix(seed.wrapping_add(index as u64));
    [key as u32, (key >> 32) as u32]
}

/// The random 32 bits at `index` of the stream of a key.
///
/// Uses two 32-bit multiplications, which vector units support: this is called for every element of
/// a dropout mask. The second half of the key is mixed in between, so that keys with equal first
/// halves give different streams.
#[inline(always)]
pub fn random_bits([low, high]: [u32; 2], index: u32) -> u32 {
    let x = low ^ index.wrapping_mul(0x9e37_79b9);
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = ((x ^ (x >> 15)) ^ high).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// The bound below which [`random_bits`] are with `probability`.
pub fn threshold(probability: f64) -> u32 {
    // The cast saturates for probabilities close to 1.
    (probability * 2f64.powi(32)) as u32
}

/// A uniform value in `[0, 1)` from the upper 53 bits.
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A stream of standard normal samples (Box-Muller), determined by three indices.
#[derive(Debug, Clone)]
pub struct Normals {
    key: u64,
    count: u64,
}

impl Normals {
    /// The stream of these indices.
    pub fn new(indices: [u64; 3]) -> Self {
        let key = indices
            .into_iter()
            .fold(0, |key: u64, index| mix(key.wrapping_add(index)));
        Self { key, count: 0 }
    }

    fn uniform(&mut self) -> f64 {
        self.count += 1;
        unit(mix(self.key ^ mix(self.count)))
    }

    /// The next sample.
    #[allow(clippy::should_implement_trait)] // the stream is infinite
    pub fn next(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
