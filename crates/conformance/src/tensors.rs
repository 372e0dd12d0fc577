//! A problem's numbers as Burn tensors, and its mask as a pattern.

use burn::tensor::{Bool, DType, Device, Gradients, Tensor, TensorData};
use zoo_attention::{AttentionOptions, Dropout, MechanismConfig, Pattern, attend};
use zoo_oracle::{Answer, Inputs, Mask, Mismatch, Problem, Tolerance};

/// The tensors of a problem, on a device.
#[derive(Debug, Clone)]
pub struct Tensors {
    /// `[batch, heads, seq_q, d_head]`
    pub query: Tensor<4>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub key: Tensor<4>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub value: Tensor<4>,
    /// `[batch, heads, seq_q, d_value]`: the gradient that arrives at the result.
    pub upstream: Tensor<4>,
    /// The problem's mask, and what it does with scores.
    pub options: AttentionOptions,
}

impl Tensors {
    /// Puts `inputs` of `problem` on `device`, in the device's own dtype.
    pub fn new(problem: &Problem, inputs: &Inputs, device: &Device) -> Self {
        let tensor = |numbers: &[f32], shape: [usize; 4]| {
            Tensor::from_data(TensorData::new(numbers.to_vec(), shape), device)
        };
        Self {
            query: tensor(&inputs.query, problem.query_shape()),
            key: tensor(&inputs.key, problem.key_shape()),
            value: tensor(&inputs.value, problem.value_shape()),
            upstream: tensor(&inputs.upstream, problem.context_shape()),
            options: AttentionOptions {
                pattern: pattern(problem, &problem.mask, device),
                scale: problem.scale,
                softcap: problem.softcap,
                alibi: problem.alibi.then(|| problem.slopes()),
                bias: problem.bias.map(|dims| tensor(&inputs.bias, dims)),
                dropout: problem
                    .dropout
                    .map(|(probability, seed)| Dropout::new(probability, seed)),
                assume_finite: false,
            },
        }
    }

    /// The tensors of `problem` with its own inputs.
    pub fn of(problem: &Problem, device: &Device) -> Self {
        Self::new(problem, &problem.inputs(), device)
    }

    /// The same, with gradients to be taken by query, key, value and bias.
    pub fn require_grad(self) -> Self {
        Self {
            query: self.query.require_grad(),
            key: self.key.require_grad(),
            value: self.value.require_grad(),
            options: AttentionOptions {
                bias: self.options.bias.map(Tensor::require_grad),
                ..self.options
            },
            ..self
        }
    }

    /// The same numbers rounded to `dtype`.
    pub fn cast(self, dtype: DType) -> Self {
        Self {
            query: self.query.cast(dtype),
            key: self.key.cast(dtype),
            value: self.value.cast(dtype),
            upstream: self.upstream.cast(dtype),
            options: AttentionOptions {
                bias: self.options.bias.map(|bias| bias.cast(dtype)),
                ..self.options
            },
        }
    }

    /// The numbers as the device holds them: what the oracle must start from
    /// when they were rounded on the way there.
    pub fn inputs(&self) -> Inputs {
        Inputs {
            query: numbers(self.query.clone()),
            key: numbers(self.key.clone()),
            value: numbers(self.value.clone()),
            upstream: numbers(self.upstream.clone()),
            bias: self.options.bias.clone().map(numbers).unwrap_or_default(),
        }
    }

    /// What a function computes of query, key, value and options.
    pub fn apply<T>(
        &self,
        attend: impl FnOnce(Tensor<4>, Tensor<4>, Tensor<4>, &AttentionOptions) -> T,
    ) -> T {
        let [query, key, value] = [&self.query, &self.key, &self.value].map(Tensor::clone);
        attend(query, key, value, &self.options)
    }

    /// The result of a mechanism, `[batch, heads, seq_q, d_value]`.
    pub fn attend(&self, mechanism: &MechanismConfig) -> Tensor<4> {
        self.apply(|query, key, value, options| attend(*mechanism, query, key, value, options))
    }

    /// The result of a mechanism, and the gradients of `Σ upstream · result`.
    pub fn train(&self, mechanism: &MechanismConfig) -> (Tensor<4>, Gradients) {
        let context = self.attend(mechanism);
        let gradients = self.backward(context.clone());
        (context, gradients)
    }

    /// The gradients of `Σ upstream · context`.
    pub fn backward(&self, context: Tensor<4>) -> Gradients {
        (context * self.upstream.clone()).sum().backward()
    }

    /// Gradients by query, key and value; zeros where the result does not depend on one.
    pub fn gradients_by_inputs(&self, gradients: &Gradients) -> [Vec<f32>; 3] {
        [&self.query, &self.key, &self.value].map(|tensor| match tensor.grad(gradients) {
            Some(gradient) => numbers(gradient),
            None => vec![0.0; tensor.shape().num_elements()],
        })
    }

    /// A context, and the gradients of `Σ upstream · context` by query, key and value, by the
    /// names of [`RESULTS`].
    pub fn results(&self, context: Tensor<4>) -> [Vec<f32>; 4] {
        let gradients = self.backward(context.clone());
        let [d_query, d_key, d_value] = self.gradients_by_inputs(&gradients);
        [numbers(context), d_query, d_key, d_value]
    }

    /// Compares gradients by query, key and value with those of the oracle. Those by query and
    /// key are differences, and are rounded like the terms of these.
    pub fn check_gradients(
        &self,
        gradients: &Gradients,
        answer: &Answer,
        tolerance: Tolerance,
    ) -> Result<(), Mismatch> {
        let [d_query, d_key, d_value] = self.gradients_by_inputs(gradients);
        let terms = &answer.terms;
        tolerance.check_as_large_as(terms.d_query, "d_query", &d_query, &answer.d_query)?;
        tolerance.check_as_large_as(terms.d_key, "d_key", &d_key, &answer.d_key)?;
        tolerance.check("d_value", &d_value, &answer.d_value)?;
        Ok(())
    }
}

/// The names of [`Tensors::results`].
pub const RESULTS: [&str; 4] = ["context", "d_query", "d_key", "d_value"];

/// A tensor's numbers, row by row.
pub fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .try_into_vec_as()
        .expect("a float tensor can be read as f32")
}

/// `mask` in the words of `zoo-attention`.
fn pattern(problem: &Problem, mask: &Mask, device: &Device) -> Pattern {
    let join = |parts: &[Mask], by: fn(Pattern, Pattern) -> Pattern| {
        parts
            .iter()
            .map(|part| pattern(problem, part, device))
            .reduce(by)
            .unwrap_or_default()
    };
    match mask {
        Mask::Full => Pattern::Full,
        Mask::Causal => Pattern::Causal,
        &Mask::Window { left, right } => Pattern::Window { left, right },
        Mask::Block(size) => Pattern::Block { size: *size },
        Mask::Blocks { size, seen } => Pattern::Blocks {
            size: *size,
            seen: seen.clone(),
        },
        Mask::Strided(stride) => Pattern::Strided { stride: *stride },
        &Mask::Summaries { block, summary } => Pattern::Summaries { block, summary },
        &Mask::Monotonic(window) => Pattern::Monotonic { window },
        Mask::PowersOfTwo => Pattern::sees(|query, key| {
            let behind = query - key;
            behind == 0 || (behind > 0 && behind.unsigned_abs().is_power_of_two())
        }),
        Mask::Global(places) => Pattern::Global(places.clone()),
        Mask::Documents(ids) => Pattern::Documents(ids.clone()),
        Mask::KeyLengths(lengths) => Pattern::key_lengths(lengths.clone()),
        Mask::KeyPadding(padding) => {
            let padding = TensorData::new(padding.concat(), [problem.batch, problem.seq_k]);
            Pattern::KeyPadding(Tensor::<2, Bool>::from_data(padding, device))
        }
        Mask::Scattered { .. } => {
            let masked = problem.clone().with_mask(mask.clone());
            let hidden = TensorData::new(masked.hidden(), problem.scores_shape());
            Pattern::Dense(Tensor::<4, Bool>::from_data(hidden, device))
        }
        Mask::All(parts) => join(parts, Pattern::and),
        Mask::Any(parts) => join(parts, Pattern::or),
    }
}
