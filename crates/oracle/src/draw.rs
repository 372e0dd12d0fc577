//! Numbers that are random enough and the same on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, full period.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    /// A stream of its own for each name, so that adding a problem to the
    /// catalogue leaves the numbers of the others alone.
    pub(crate) fn named(name: &str) -> Self {
        // FNV-1a: the standard library's hasher may change between releases.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// `count` normal numbers of the given spread, rounded to `f32` so that
    /// oracle and backend start from exactly the same inputs.
    pub(crate) fn normals(&mut self, count: usize, spread: f64) -> Vec<f32> {
        (0..count)
            .map(|_| (self.normal() * spread) as f32)
            .collect()
    }
}

/// `count` normal numbers of the given spread, a stream of its own for each name.
pub fn normals(name: &str, count: usize, spread: f64) -> Vec<f32> {
    Draw::named(name).normals(count, spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_mean_zero_and_the_spread_asked_for() {
        let drawn = Draw::named("moments").normals(40_000, 3.0);
        let mean = drawn.iter().map(|&x| f64::from(x)).sum::<f64>() / drawn.len() as f64;
        let variance = drawn
            .iter()
            .map(|&x| (f64::from(x) - mean).powi(2))
            .sum::<f64>()
            / drawn.len() as f64;
        // Four standard errors: 3/sqrt(40000) for the mean, 9*sqrt(2/40000) for the variance.
        assert!(mean.abs() < 0.06, "mean {mean}");
        assert!((variance - 9.0).abs() < 0.26, "variance {variance}");
    }

    #[test]
    fn each_name_has_its_own_stream() {
        assert_ne!(Draw::named("a").uniform(), Draw::named("b").uniform());
    }
}
