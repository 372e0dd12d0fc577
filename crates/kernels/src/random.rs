//! Counter-based random numbers: a number is a hash of where it is needed, so that the backward
//! pass, another backend or another thread finds the same one without a state.

/// Scrambles 64 bits so that every bit of the result depends on every bit given.
///
/// The finalizer of SplitMix64: Steele, Lea and Flood, 2014.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Number `index` of those that follow from a key, scrambled into the key of [`draw`].
pub fn key(from: u64, index: usize) -> [u32; 2] {
    let key = mix(from.wrapping_add(index as u64));
    [key as u32, (key >> 32) as u32]
}

/// The 32 bits that belong to `index` of what is drawn by a key.
///
/// Two multiplications of 32 bits, which vector units have: this is called for every
/// element that dropout may zero. The second half of the key joins in between, so that keys
/// whose first halves are alike go separate ways.
#[inline(always)]
pub fn draw([low, high]: [u32; 2], index: u32) -> u32 {
    let x = low ^ index.wrapping_mul(0x9e37_79b9);
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = ((x ^ (x >> 15)) ^ high).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// What [`draw`] must be below for a share of `probability`.
pub fn threshold(probability: f64) -> u32 {
    // Rust's cast saturates: next to 1 it is the largest there is.
    (probability * 2f64.powi(32)) as u32
}

/// 53 bits as a number from 0 to below 1.
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Normal numbers that follow from three indices: Box and Muller.
#[derive(Debug, Clone)]
pub struct Normals {
    key: u64,
    drawn: u64,
}

impl Normals {
    /// The numbers of these indices, from the first on.
    pub fn new(indices: [u64; 3]) -> Self {
        let key = indices
            .into_iter()
            .fold(0, |key: u64, at| mix(key.wrapping_add(at)));
        Self { key, drawn: 0 }
    }

    fn uniform(&mut self) -> f64 {
        self.drawn += 1;
        unit(mix(self.key ^ mix(self.drawn)))
    }

    /// The next one, of mean 0 and deviation 1.
    #[allow(clippy::should_implement_trait)] // there is always a next one
    pub fn next(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
