//! Softmax attention with forget gates. The factors `f` are computed from the input of each position
//! and head; a score decays by those of all positions between its key and its query.
//!
//! ```text
//! f_l      = sigmoid(w · x_l + b)
//! score_ij = scale · q_i · k_j + Σ_{j < l <= i} ln f_l
//! ```
//!
//! The sum is a difference of prefix sums `c_i - c_j`, and the softmax does not depend on `c_i`. So
//! this is attention with a bias `-c_j` for each key.
//!
//! Lin et al., [Forgetting Transformer](https://arxiv.org/abs/2503.02130), 2025.

use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor, activation};
use zoo_kernels::{Activation, linear};
use zoo_spec::Forgetting;

use super::gates::{initial_log_decays, prefix_sums};
use super::{Attention, Call, Gates, HeadSizes, Inputs, MechanismParams};
use crate::precision::widen;
use crate::shape::split_heads;
use crate::{AttentionOptions, Pattern, flash};

impl Attention for Forgetting {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let projection = LinearConfig::new(sizes.d_input, sizes.heads).init(device);
        MechanismParams {
            decay: Some(projection),
            ..MechanismParams::default()
        }
    }

    fn gates(&self, params: &MechanismParams, _: HeadSizes, x: Tensor<3>) -> Option<Gates> {
        let projection = params.decay.as_ref()?;
        let logits = linear(projection, Activation::Identity, x); // [batch, seq, heads]
        let [_, _, heads] = logits.dims();
        let log_decay = activation::log_sigmoid(widen(logits));
        Some(Gates {
            log_decay: Some(split_heads(log_decay, heads)),
            ..Gates::default()
        })
    }

    fn options(&self, inputs: &Inputs, call: Call<'_>) -> AttentionOptions {
        let tensors = [&inputs.query, &inputs.key, &inputs.value];
        let [_, _, seq_k, _] = inputs.key.dims();
        let [batch, heads, ..] = inputs.query.dims();
        let of_layer = inputs.gates.clone().and_then(|gates| gates.log_decay);
        let log_decay =
            of_layer.unwrap_or_else(|| initial_log_decays([batch, heads, seq_k, 1], &inputs.query));
        with_decay(tensors, log_decay, call.options)
    }
}

/// [`flash`](crate::flash()) with forget gates. All inputs have gradients.
///
/// # Shapes
///
/// As for [`flash`](crate::flash()), and
///
/// - log_decay: `[batch, heads, seq_k]`: the logarithm of the gate of each key's position
///
/// # Panics
///
/// As for [`flash`](crate::flash()); if the pattern is not causal, or the gates have another shape.
pub fn forgetting(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    log_decay: Tensor<3>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let log_decay = log_decay.unsqueeze_dim(3);
    let options = with_decay([&query, &key, &value], log_decay, options);
    flash(query, key, value, &options)
}

const OP: &str = "forgetting attention";

/// The options with the bias of the gates, `[batch, heads, seq_k, 1]`.
fn with_decay(
    tensors: [&Tensor<4>; 3],
    log_decay: Tensor<4>,
    options: &AttentionOptions,
) -> AttentionOptions {
    let shape = options.check_call(OP, tensors);
    assert!(
        is_causal(&options.pattern),
        "{OP}: it is causal, so the pattern must be causal, got {}",
        options.pattern.kind()
    );
    let expected = [shape.batch, shape.heads, shape.seq_k, 1];
    assert!(
        log_decay.dims() == expected,
        "{OP}: the gates must be [batch, heads, seq_k] = {:?}, got {:?}",
        &expected[..3],
        &log_decay.dims()[..3]
    );
    let bias = prefix_sums(widen(log_decay)).neg().swap_dims(2, 3); // [batch, heads, 1, seq_k]
    let bias = match options.bias.clone() {
        Some(other) => widen(other) + bias,
        None => bias,
    };
    options.clone().with_bias(bias)
}

/// Whether no query attends to later positions.
fn is_causal(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Causal | Pattern::Window { right: 0, .. } => true,
        Pattern::And(a, b) => is_causal(a) || is_causal(b),
        Pattern::Or(a, b) => is_causal(a) && is_causal(b),
        _ => false,
    }
}
