//! Calls on bf16 tensors in host memory: by the kernels for bf16, or widened to `f32` if an element is
//! not finite or a gradient of the bias is needed.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::bf16;
use zoo_kernels::hosts::Host;

use super::call::{InputGrads, Inputs, OutputGrads, Outputs, Saved, TiledSettings};
use super::cpu::{self, BackwardInputs, Call};
use super::host::{bias_dims, check_contexts, outputs, with_call};

pub(super) fn forward<B: Host>(inputs: &Inputs<B>, settings: &TiledSettings) -> Outputs<B> {
    let dims = settings.shape.context_dims();
    let outputs_bf16 = with_call(inputs, settings, |call: &Call<'_, bf16>| {
        let (context, stats) = cpu::forward_bf16(call)?;
        Some(outputs::<B, _>(call, B::from_bf16(context, &dims), stats))
    });
    outputs_bf16.unwrap_or_else(|| {
        with_call(&widen(inputs), settings, |call: &Call<'_>| {
            let (context, stats) = cpu::forward(call);
            outputs::<B, _>(call, round::<B>(context, &dims), stats)
        })
    })
}

pub(super) fn backward<B: Host>(
    saved: &Saved<B>,
    output_grads: &OutputGrads<B>,
    settings: &TiledSettings,
) -> InputGrads<B> {
    let inputs = &saved.inputs;
    let context = B::bf16_elements(&saved.context);
    let d_context = B::bf16_elements(&output_grads.d_context);
    let d_log_sum_exp = output_grads.d_log_sum_exp.as_ref().map(B::elements);
    check_contexts([context.len(), d_context.len()], settings);
    let bias_dims = bias_dims(inputs, output_grads);
    let grads = match bias_dims {
        Some(_) => None,
        None => with_call(inputs, settings, |call: &Call<'_, bf16>| {
            let saved = BackwardInputs {
                context: &context[..],
                stats: &B::elements(&saved.stats),
                selected: &[],
                d_context: &d_context,
                d_log_sum_exp: d_log_sum_exp.as_deref(),
            };
            cpu::backward_bf16(call, &saved)
        }),
    };
    let dims = [&inputs.query, &inputs.key, &inputs.value].map(|tensor| tensor.shape());
    if let Some([query, key, value]) = grads {
        let [query_dims, key_dims, value_dims] = dims;
        return InputGrads {
            qkv: [
                B::from_bf16(query, &query_dims),
                B::from_bf16(key, &key_dims),
                B::from_bf16(value, &value_dims),
            ],
            bias: None,
            parameter: None,
        };
    }
    let d_context: Vec<f32> = d_context.iter().map(|x| x.to_f32()).collect();
    let ([query, key, value, _], d_bias) =
        with_call(&widen(inputs), settings, |call: &Call<'_>| {
            // Those of the bf16 kernels are of scores with other rounding errors.
            let (context, stats) = cpu::recompute(call);
            let saved = BackwardInputs {
                context: &context[..],
                stats: &stats,
                selected: &[],
                d_context: &d_context,
                d_log_sum_exp: d_log_sum_exp.as_deref(),
            };
            let d_bias = bias_dims.map(|dims| cpu::backward_bias(call, &saved, dims));
            (cpu::backward(call, &saved), d_bias)
        });
    let [query_dims, key_dims, value_dims] = dims;
    InputGrads {
        qkv: [
            round::<B>(query, &query_dims),
            round::<B>(key, &key_dims),
            round::<B>(value, &value_dims),
        ],
        bias: d_bias
            .zip(bias_dims)
            .map(|(values, dims)| B::from_vec(values, &dims)),
        parameter: None,
    }
}

/// The inputs with query, key and value in `f32`. The bias is in `f32` already.
fn widen<B: Host>(inputs: &Inputs<B>) -> Inputs<B> {
    let widen = |tensor: &FloatTensor<B>| {
        let elements = B::bf16_elements(tensor);
        let elements = elements.iter().map(|x| x.to_f32()).collect();
        B::from_vec(elements, &tensor.shape())
    };
    Inputs {
        query: widen(&inputs.query),
        key: widen(&inputs.key),
        value: widen(&inputs.value),
        ..inputs.clone()
    }
}

fn round<B: Host>(elements: Vec<f32>, dims: &[usize]) -> FloatTensor<B> {
    let elements = elements.into_iter().map(bf16::from_f32).collect();
    B::from_bf16(elements, dims)
}
