//! Random numbers without a state: a number is the scrambled form of where it is
//! needed, so the backward pass, another backend or another thread finds the same one.

/// Scrambles 64 bits so that every bit of the result depends on every bit given.
///
/// The finalizer of SplitMix64: Steele, Lea and Flood, 2014.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What the keys of the rows of `[example, head]` are made from.
pub(crate) fn head_key(seed: u64, head: [usize; 2]) -> u64 {
    let key = head
        .into_iter()
        .fold(seed, |key, at| mix(key).wrapping_add(at as u64));
    mix(key)
}

/// What the numbers of query `[example, head, query]` are drawn by.
pub(crate) fn row_key(seed: u64, [example, head, query]: [usize; 3]) -> [u32; 2] {
    let key = mix(head_key(seed, [example, head]).wrapping_add(query as u64));
    [key as u32, (key >> 32) as u32]
}

/// The 32 bits that belong to `column` of a row with these two halves of a key.
///
/// Two multiplications of 32 bits, which vector units have: this is called for every
/// weight of an attention. The second half joins in between, so that rows whose first
/// halves are alike go separate ways.
#[inline(always)]
pub(crate) fn draw([low, high]: [u32; 2], column: u32) -> u32 {
    let x = low ^ column.wrapping_mul(0x9e37_79b9);
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = ((x ^ (x >> 15)) ^ high).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Normal numbers that follow from a place: Box and Muller.
pub(crate) struct Normals {
    key: u64,
    drawn: u64,
}

impl Normals {
    pub(crate) fn new(place: [u64; 3]) -> Self {
        let key = place
            .into_iter()
            .fold(0, |key: u64, at| mix(key.wrapping_add(at)));
        Self { key, drawn: 0 }
    }

    fn uniform(&mut self) -> f64 {
        self.drawn += 1;
        (mix(self.key ^ mix(self.drawn)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn next(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
