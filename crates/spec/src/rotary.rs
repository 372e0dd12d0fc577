//! Rotary position embedding: which elements of a head are rotated, and by which frequencies.

use crate::keys::{
    FACTOR, InvalidValue, LENGTH, POSITIVE, Presence, Range, Values, check_keys, choice,
};

crate::names! {
    /// The two elements of a head that are rotated together.
    pub enum PairLayout: "layout" = Interleaved {
        /// Elements `2x` and `2x + 1`, as in the paper, GPT-J and GLM.
        Interleaved = "interleaved",
        /// Elements `x` and `x + rotated / 2`, as in Llama, Qwen and GPT-NeoX.
        Halves = "halves",
    }
}

crate::kinds! {
    /// How the frequencies change for contexts longer than those of the training.
    #[derive(Copy)]
    pub enum RotaryScaling {
        /// Unchanged.
        None = "none",
        /// All frequencies are divided by `factor` (position interpolation): Chen et al.,
        /// [Extending Context Window](https://arxiv.org/abs/2306.15595), 2023.
        Linear(ScalingFactor) = "linear",
        /// `theta` is multiplied by `factor^(d/(d-2))`, with `d` the number of rotated elements: low
        /// frequencies are divided by `factor`, high ones hardly change ("NTK-aware", at a fixed
        /// factor): Peng et al., [YaRN](https://arxiv.org/abs/2309.00071), section 3.1, 2023.
        Ntk(ScalingFactor) = "ntk",
        /// Frequencies with few rotations within the original context are divided by `factor`, those
        /// with many are unchanged, with a linear ramp in between: Peng et al.,
        /// [YaRN](https://arxiv.org/abs/2309.00071), 2023.
        Yarn(YarnScaling) = "yarn",
        /// As `yarn`, with a ramp that is linear in the number of rotations and without a factor of
        /// queries and keys, as in the code of Llama 3.1: Grattafiori et al.,
        /// [The Llama 3 Herd of Models](https://arxiv.org/abs/2407.21783), 2024.
        Llama3(Llama3Scaling) = "llama3",
    }
}

crate::keys! {
    /// Keys of rotary position embedding. The default is that of the paper: Su et al.,
    /// [RoFormer](https://arxiv.org/abs/2104.09864), 2021.
    ///
    /// ```
    /// # use zoo_spec::{PairLayout, Rotary, RotaryScaling};
    /// // As in Llama 3.1.
    /// let rotary = Rotary::new(500_000.0)
    ///     .with_layout(PairLayout::Halves)
    ///     .with_scaling(RotaryScaling::llama3(8.0, 8192));
    /// assert_eq!(rotary.check(128), Ok(()));
    /// ```
    #[derive(Copy)]
    pub struct Rotary {
        /// Base of the rotation frequencies.
        theta: f64 = 10_000.0, POSITIVE;
        /// Part of each head that is rotated, its first elements.
        fraction: f64 = 1.0, Values::Number(Range::FRACTION);
        /// Elements that are rotated together: `2x` and `2x + 1`, or `x` and `x + rotated / 2` as in
        /// Llama.
        layout: PairLayout = PairLayout::Interleaved, Values::Names(PairLayout::NAMES);
        /// Change of the frequencies for longer contexts.
        scaling: RotaryScaling = RotaryScaling::None,
            choice("rotary scaling", RotaryScaling::KINDS);
    }

    /// Keys of linear and NTK-aware scaling.
    #[derive(Copy)]
    pub struct ScalingFactor {
        /// Length of the context, as a multiple of the original one.
        factor: f64 = 0.0, FACTOR, Presence::Required;
    }

    /// Keys of YaRN.
    #[derive(Copy)]
    pub struct YarnScaling {
        /// Length of the context, as a multiple of the original one.
        factor: f64 = 0.0, FACTOR, Presence::Required;
        /// Length of the original context.
        original_context: usize = 0, LENGTH, Presence::Required;
        /// Rotations within the original context above which a frequency is unchanged.
        beta_fast: f64 = 32.0, POSITIVE;
        /// Rotations within the original context below which a frequency is divided by `factor`.
        beta_slow: f64 = 1.0, POSITIVE;
        /// Factor of rotated queries and keys.
        attention_factor: Option<f64> = None, POSITIVE, Presence::Optional("`0.1 · ln(factor) + 1`");
    }

    /// Keys of Llama 3's scaling.
    #[derive(Copy)]
    pub struct Llama3Scaling {
        /// Divisor of low frequencies.
        factor: f64 = 0.0, FACTOR, Presence::Required;
        /// Length of the original context.
        original_context: usize = 0, LENGTH, Presence::Required;
        /// Rotations within the original context below which a frequency is divided by `factor`.
        low_frequency_factor: f64 = 1.0, POSITIVE;
        /// Rotations within the original context above which a frequency is unchanged.
        high_frequency_factor: f64 = 4.0, POSITIVE;
    }
}

impl Rotary {
    /// All elements of a head, interleaved, with this base.
    pub const fn new(theta: f64) -> Self {
        Self {
            theta,
            fraction: 1.0,
            layout: PairLayout::Interleaved,
            scaling: RotaryScaling::None,
        }
    }

    /// Rotates only the first `fraction · d_head` elements of each head.
    #[must_use]
    pub const fn with_fraction(mut self, fraction: f64) -> Self {
        self.fraction = fraction;
        self
    }

    /// Sets which elements are rotated together.
    #[must_use]
    pub const fn with_layout(mut self, layout: PairLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Scales the frequencies for a longer context.
    #[must_use]
    pub const fn with_scaling(mut self, scaling: RotaryScaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// The number of elements of a head that are rotated: `fraction · d_head`, rounded down.
    pub fn rotated(&self, d_head: usize) -> usize {
        (d_head as f64 * self.fraction) as usize
    }

    /// Checks every value, their relations, and that an even number of elements is rotated.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] with the key, such as `scaling.factor`.
    pub fn check(&self, d_head: usize) -> Result<(), InvalidValue> {
        check_keys(self, Self::KEYS)?;
        let invalid = |key: &str, allowed: String, got: f64| {
            Err(InvalidValue {
                key: key.to_owned(),
                allowed,
                got: got.to_string(),
            })
        };
        match self.scaling {
            RotaryScaling::Yarn(_) if self.theta <= 1.0 => {
                return invalid("theta", "above 1 with yarn".to_owned(), self.theta);
            }
            RotaryScaling::Yarn(yarn) if yarn.beta_fast <= yarn.beta_slow => {
                let allowed = format!("above scaling.beta_slow = {}", yarn.beta_slow);
                return invalid("scaling.beta_fast", allowed, yarn.beta_fast);
            }
            RotaryScaling::Llama3(scaling)
                if scaling.high_frequency_factor <= scaling.low_frequency_factor =>
            {
                let low = scaling.low_frequency_factor;
                let allowed = format!("above scaling.low_frequency_factor = {low}");
                let key = "scaling.high_frequency_factor";
                return invalid(key, allowed, scaling.high_frequency_factor);
            }
            RotaryScaling::None
            | RotaryScaling::Linear(_)
            | RotaryScaling::Ntk(_)
            | RotaryScaling::Yarn(_)
            | RotaryScaling::Llama3(_) => {}
        }
        let rotated = self.rotated(d_head);
        if rotated >= 2 && rotated.is_multiple_of(2) {
            return Ok(());
        }
        let even = (rotated - rotated % 2).max(2);
        Err(InvalidValue {
            key: "fraction".to_owned(),
            allowed: format!(
                "such that an even number of the d_head = {d_head} elements is rotated, at least 2; \
                 {} rotates {even}",
                even as f64 / d_head as f64
            ),
            got: format!("{}, which rotates {rotated}", self.fraction),
        })
    }
}

impl RotaryScaling {
    /// Position interpolation.
    pub const fn linear(factor: f64) -> Self {
        Self::Linear(ScalingFactor { factor })
    }

    /// NTK-aware scaling.
    pub const fn ntk(factor: f64) -> Self {
        Self::Ntk(ScalingFactor { factor })
    }

    /// YaRN with the parameters of the paper.
    pub const fn yarn(factor: f64, original_context: usize) -> Self {
        Self::Yarn(YarnScaling {
            factor,
            original_context,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
        })
    }

    /// Llama 3's scaling with the frequency factors of Llama 3.1.
    pub const fn llama3(factor: f64, original_context: usize) -> Self {
        Self::Llama3(Llama3Scaling {
            factor,
            original_context,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_elements() {
        for (d_head, fraction, rotated) in
            [(64, 1.0, 64), (80, 0.4, 32), (128, 0.25, 32), (5, 0.8, 4)]
        {
            let rotary = Rotary::new(1e4).with_fraction(fraction);
            assert_eq!(rotary.rotated(d_head), rotated);
            assert_eq!(rotary.check(d_head), Ok(()));
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_the_key() {
        let scaled = |scaling| Rotary::new(1e4).with_scaling(scaling);
        let beta = |beta_fast, beta_slow| {
            scaled(RotaryScaling::Yarn(YarnScaling {
                factor: 4.0,
                original_context: 64,
                beta_fast,
                beta_slow,
                attention_factor: None,
            }))
        };
        for (rotary, message) in [
            (Rotary::new(0.0), "theta must be above 0, got 0.0"),
            (Rotary::new(f64::NAN), "theta must be above 0, got nan"),
            (
                Rotary::new(1e4).with_fraction(1.5),
                "fraction must be above 0 and at most 1, got 1.5",
            ),
            (
                Rotary::new(1e4).with_fraction(0.4),
                "fraction must be such that an even number of the d_head = 8 elements is rotated, at \
                 least 2; 0.25 rotates 2, got 0.4, which rotates 3",
            ),
            (
                Rotary::new(1e4).with_fraction(0.1),
                "fraction must be such that an even number of the d_head = 8 elements is rotated, at \
                 least 2; 0.25 rotates 2, got 0.1, which rotates 0",
            ),
            (
                scaled(RotaryScaling::linear(0.5)),
                "scaling.factor must be at least 1, got 0.5",
            ),
            (
                scaled(RotaryScaling::ntk(f64::INFINITY)),
                "scaling.factor must be at least 1, got inf",
            ),
            (
                scaled(RotaryScaling::llama3(8.0, 0)),
                "scaling.original_context must be at least 1, got 0",
            ),
            (
                beta(2.0, 2.5),
                "scaling.beta_fast must be above scaling.beta_slow = 2.5, got 2",
            ),
            (
                Rotary::new(1.0).with_scaling(RotaryScaling::yarn(4.0, 64)),
                "theta must be above 1 with yarn, got 1",
            ),
            (
                scaled(RotaryScaling::Llama3(Llama3Scaling {
                    factor: 8.0,
                    original_context: 64,
                    low_frequency_factor: 4.0,
                    high_frequency_factor: 4.0,
                })),
                "scaling.high_frequency_factor must be above scaling.low_frequency_factor = 4, got 4",
            ),
        ] {
            let wrong = rotary.check(8).expect_err(message);
            let text = format!("{} must be {}, got {}", wrong.key, wrong.allowed, wrong.got);
            assert_eq!(text, message);
        }
    }

    #[test]
    fn omitted_keys_have_their_defaults() {
        let read = |text: &str| serde_json::from_str::<Rotary>(text).expect(text);
        assert_eq!(read(r#"{"theta": 5e5}"#), Rotary::new(5e5));
        assert_eq!(read("{}"), Rotary::default());
        let yarn = r#"{"scaling": {"kind": "yarn", "factor": 4, "original_context": 64}}"#;
        let scaled = Rotary::default().with_scaling(RotaryScaling::yarn(4.0, 64));
        assert_eq!(read(yarn), scaled);
        let text = serde_json::to_string(&scaled).expect("serializable");
        assert_eq!(read(&text), scaled);
        // A factor that is missing is not 1.
        let missing = read(r#"{"scaling": {"kind": "linear"}}"#).check(8);
        assert_eq!(
            missing.map_err(|wrong| wrong.key),
            Err("scaling.factor".to_owned())
        );
    }
}
