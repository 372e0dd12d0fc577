//! Burn tensors and options of a problem.

use burn::tensor::kind::Basic;
use burn::tensor::{DType, Device, Element, Gradients, Tensor, TensorData};
use zoo_attention::flash::{FlashKernel, selected_kernel};
use zoo_attention::{AttentionOptions, Dropout, MechanismConfig, Pattern, attend};
use zoo_oracle::{Inputs, Mask, Mismatch, Problem, Solution, Tolerance};

/// Tensors and options of a problem on a device.
#[derive(Debug, Clone)]
pub struct Tensors {
    /// `[batch, heads, seq_q, d_head]`
    pub query: Tensor<4>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub key: Tensor<4>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub value: Tensor<4>,
    /// `[batch, heads, seq_q, d_value]`: gradient of the context.
    pub output_grad: Tensor<4>,
    /// Pattern and other options.
    pub options: AttentionOptions,
}

impl Tensors {
    /// Copies `inputs` of `problem` to `device`, in the device's dtype.
    pub fn new(problem: &Problem, inputs: &Inputs, device: &Device) -> Self {
        let tensor = |values: &[f32], shape: [usize; 4]| tensor_of(values.to_vec(), shape, device);
        Self {
            query: tensor(&inputs.query, problem.query_shape()),
            key: tensor(&inputs.key, problem.key_shape()),
            value: tensor(&inputs.value, problem.value_shape()),
            output_grad: tensor(&inputs.output_grad, problem.context_shape()),
            options: AttentionOptions {
                pattern: pattern(problem, &problem.mask, device),
                scale: problem.scale,
                softcap: problem.softcap,
                alibi: problem.alibi.then(|| problem.slopes()),
                bias: problem.bias.map(|dims| tensor(&inputs.bias, dims)),
                relative_bias: None,
                score_mod: None,
                dropout: problem
                    .dropout
                    .map(|(probability, seed)| Dropout::new(probability, seed)),
                assume_finite: false,
            },
        }
    }

    /// Copies the inputs of `problem` to `device`.
    pub fn from_problem(problem: &Problem, device: &Device) -> Self {
        Self::new(problem, &problem.inputs(), device)
    }

    /// Tracks gradients of query, key, value and bias.
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

    /// Casts all float tensors to `dtype`, on the host: on a device, Burn may fuse the cast with a
    /// later one to `f32`, and Vulkan then omits the rounding.
    pub fn cast(self, dtype: DType) -> Self {
        let cast = |tensor: Tensor<4>| {
            let device = tensor.device();
            Tensor::from_data(tensor.into_data().convert_dtype(dtype), (&device, dtype))
        };
        Self {
            query: cast(self.query),
            key: cast(self.key),
            value: cast(self.value),
            output_grad: cast(self.output_grad),
            options: AttentionOptions {
                bias: self.options.bias.map(cast),
                ..self.options
            },
        }
    }

    /// The inputs as rounded on the device, for the oracle.
    pub fn inputs(&self) -> Inputs {
        Inputs {
            query: to_vec(self.query.clone()),
            key: to_vec(self.key.clone()),
            value: to_vec(self.value.clone()),
            output_grad: to_vec(self.output_grad.clone()),
            bias: self.options.bias.clone().map(to_vec).unwrap_or_default(),
        }
    }

    /// Calls a function with query, key, value and options.
    pub fn apply<T>(
        &self,
        attend: impl FnOnce(Tensor<4>, Tensor<4>, Tensor<4>, &AttentionOptions) -> T,
    ) -> T {
        let [query, key, value] = [&self.query, &self.key, &self.value].map(Tensor::clone);
        attend(query, key, value, &self.options)
    }

    /// The context of a mechanism, `[batch, heads, seq_q, d_value]`.
    pub fn attend(&self, mechanism: &MechanismConfig) -> Tensor<4> {
        self.apply(|query, key, value, options| attend(*mechanism, query, key, value, options))
    }

    /// The context of a mechanism and the gradients of `Σ output_grad · context`.
    pub fn forward_backward(&self, mechanism: &MechanismConfig) -> (Tensor<4>, Gradients) {
        let context = self.attend(mechanism);
        let gradients = self.backward(context.clone());
        (context, gradients)
    }

    /// The gradients of `Σ output_grad · context`.
    pub fn backward(&self, context: Tensor<4>) -> Gradients {
        (context * self.output_grad.clone()).sum().backward()
    }

    /// Gradients of query, key and value; zeros if the context does not depend on one.
    pub fn input_gradients(&self, gradients: &Gradients) -> [Vec<f32>; 3] {
        [&self.query, &self.key, &self.value].map(|tensor| gradient_or_zeros(tensor, gradients))
    }

    /// The kernel that computes flash attention of these tensors.
    pub fn kernel(&self) -> FlashKernel {
        selected_kernel(&self.query, &self.key, &self.value, &self.options)
    }

    /// The context and the gradients of query, key and value, in the order of [`RESULT_NAMES`].
    pub fn results(&self, context: Tensor<4>) -> [Vec<f32>; 4] {
        let gradients = self.backward(context.clone());
        let [d_query, d_key, d_value] = self.input_gradients(&gradients);
        [to_vec(context), d_query, d_key, d_value]
    }

    /// Compares the gradients of query, key and value with those of the oracle. Terms of the query
    /// and key gradients cancel, so errors are relative to these terms.
    pub fn check_gradients(
        &self,
        gradients: &Gradients,
        solution: &Solution,
        tolerance: Tolerance,
    ) -> Result<(), Mismatch> {
        let [d_query, d_key, d_value] = self.input_gradients(gradients);
        let terms = &solution.terms;
        tolerance.check_with_min_scale(terms.d_query, "d_query", &d_query, &solution.d_query)?;
        tolerance.check_with_min_scale(terms.d_key, "d_key", &d_key, &solution.d_key)?;
        tolerance.check("d_value", &d_value, &solution.d_value)?;
        Ok(())
    }
}

/// Names of [`Tensors::results`].
pub const RESULT_NAMES: [&str; 4] = ["context", "d_query", "d_key", "d_value"];

/// The values of a tensor as `f32`.
pub fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_vec_as().expect("a float tensor")
}

/// The gradient of a tensor; zeros if the loss does not depend on it.
pub fn gradient_or_zeros(tensor: &Tensor<4>, gradients: &Gradients) -> Vec<f32> {
    match tensor.grad(gradients) {
        Some(gradient) => to_vec(gradient),
        None => vec![0.0; tensor.shape().num_elements()],
    }
}

/// A tensor or mask of these values.
pub fn tensor_of<E: Element, const D: usize, K: Basic>(
    values: Vec<E>,
    dims: [usize; D],
    device: &Device,
) -> Tensor<D, K> {
    Tensor::from_data(TensorData::new(values, dims), device)
}

/// Converts a mask to a pattern.
fn pattern(problem: &Problem, mask: &Mask, device: &Device) -> Pattern {
    let join = |parts: &[Mask], combine: fn(Pattern, Pattern) -> Pattern| {
        parts
            .iter()
            .map(|part| pattern(problem, part, device))
            .reduce(combine)
            .unwrap_or_default()
    };
    match mask {
        Mask::Full => Pattern::Full,
        Mask::Causal => Pattern::Causal,
        &Mask::Window { left, right } => Pattern::Window { left, right },
        Mask::Block(size) => Pattern::Block { size: *size },
        Mask::BlockSparse { size, visible } => Pattern::Blocks {
            size: *size,
            visible: visible.clone(),
        },
        Mask::Strided(stride) => Pattern::Strided { stride: *stride },
        &Mask::SummaryColumns { block, summary } => Pattern::SummaryColumns { block, summary },
        &Mask::Monotonic(window) => Pattern::Monotonic { window },
        Mask::PowersOfTwo => Pattern::from_fn(|query, key| {
            let distance = query - key;
            distance == 0 || (distance > 0 && distance.unsigned_abs().is_power_of_two())
        }),
        Mask::Global(positions) => Pattern::Global(positions.clone()),
        Mask::Documents(ids) => Pattern::Documents(ids.clone()),
        Mask::KeyLengths(lengths) => Pattern::key_lengths(lengths.clone()),
        Mask::KeyPadding(padding) => {
            let dims = [problem.batch, problem.seq_k];
            Pattern::KeyPadding(tensor_of(padding.concat(), dims, device))
        }
        Mask::Random { .. } => {
            let problem = problem.clone().with_mask(mask.clone());
            let dims = problem.scores_shape();
            Pattern::Dense(tensor_of(problem.dense_mask(), dims, device))
        }
        Mask::All(parts) => join(parts, Pattern::and),
        Mask::Any(parts) => join(parts, Pattern::or),
    }
}
