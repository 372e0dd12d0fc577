//! Where things are, told to attention.

/// The slopes of ALiBi for so many heads: how much the score of a key falls with each
/// place it is away from the query.
///
/// A geometric sequence from `2^(-8/heads)` to `2^-8`. Where `heads` is no power of
/// two, those of the next lower power, and every other one of the next higher.
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
    fn slopes_are_those_of_the_paper() {
        let halves: Vec<f32> = (1..=8).map(|head| 0.5f32.powi(head)).collect();
        assert_eq!(alibi_slopes(8), halves);
        assert_eq!(alibi_slopes(1), [0.5f32.powi(8)]);
        assert!(alibi_slopes(0).is_empty());
        // Three heads: those of two, and the first of four.
        assert_eq!(alibi_slopes(3), [0.0625, 0.003_906_25, 0.25]);
    }
}
