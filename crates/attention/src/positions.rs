//! Position encodings of attention heads: RoPE and ALiBi.

use zoo_spec::Rotary;

/// Position encoding of a head's queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// No position encoding.
    None,
    /// Rotary position embedding (RoPE):
    /// Su et al., [RoFormer](https://arxiv.org/abs/2104.09864), 2021.
    Rotary(Rotary),
    /// ALiBi with the default [slopes](alibi_slopes).
    Alibi,
}

impl Positions {
    /// Rotary position embedding with this base, 10,000 in the paper; [`Rotary`] has further options.
    pub const fn rotary(theta: f64) -> Self {
        Self::Rotary(Rotary::new(theta))
    }
}

impl From<Rotary> for Positions {
    fn from(rotary: Rotary) -> Self {
        Self::Rotary(rotary)
    }
}

/// The default ALiBi slopes: how much a score decreases per position of distance between query
/// and key.
///
/// A geometric sequence from `2^(-8/heads)` to `2^-8`. If `heads` is not a power of two, the
/// slopes of the next lower power of two, followed by every other slope of the next higher one.
///
/// Press et al., [Train Short, Test Long](https://arxiv.org/abs/2108.12409), 2021.
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let sequence = |count: usize| {
        (1..=count).map(move |head| 2f64.powf(-8.0 * head as f64 / count as f64) as f32)
    };
    let lower = if heads == 0 { 0 } else { 1 << heads.ilog2() };
    sequence(lower)
        .chain(sequence(2 * lower).step_by(2))
        .take(heads)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_match_the_paper() {
        let halves: Vec<f32> = (1..=8).map(|head| 0.5f32.powi(head)).collect();
        assert_eq!(alibi_slopes(8), halves);
        assert_eq!(alibi_slopes(1), [0.5f32.powi(8)]);
        assert!(alibi_slopes(0).is_empty());
        // Three heads: the slopes for two heads, then the first for four heads.
        assert_eq!(alibi_slopes(3), [0.0625, 0.003_906_25, 0.25]);
    }
}
