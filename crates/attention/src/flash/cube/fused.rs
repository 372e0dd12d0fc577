//! The kernels as operations in Burn's fusion queue.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, TensorMetadata};

#[cfg(feature = "autotune")]
use super::autotune::launch_tuned as launch;
#[cfg(not(feature = "autotune"))]
use super::launch::launch;
use super::launch::{BackwardInputs, KernelInputs};
use super::layout::KernelLayout;
use super::support::{Pass, layouts};
use crate::cube::op;
use crate::flash::call::{
    DenseMask, InputGrads, Inputs, Optional, OutputGrads, Outputs, Saved, TiledSettings,
};
use crate::flash::ops::{TiledBackward, TiledForward};
use crate::flash::portable;

impl TiledForward for Cube {
    fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
        let Some([layout, _]) = layouts_of(&inputs, &settings) else {
            return portable::forward(inputs, &settings);
        };
        let [context, log_sum_exp, stats] =
            register(Pass::Forward, inputs, Vec::new(), settings, layout);
        (context, log_sum_exp, stats)
    }
}

impl TiledBackward for Cube {
    fn tiled_backward(
        saved: Saved<Self>,
        output_grads: OutputGrads<Self>,
        settings: &TiledSettings,
    ) -> InputGrads<Self> {
        let layout = match layouts_of(&saved.inputs, settings) {
            // The bias gradient is a sum over examples and heads, which are in different cubes.
            Some([_, layout]) if !output_grads.needs_bias_grad => layout,
            _ => return portable::backward::<Self>(saved, output_grads, settings),
        };
        let mut others = vec![saved.context, saved.stats, output_grads.d_context];
        others.extend(output_grads.d_log_sum_exp);
        let settings = settings.clone();
        InputGrads {
            qkv: register(Pass::Backward, saved.inputs, others, settings, layout),
            bias: None,
            parameter: None,
        }
    }
}

fn layouts_of(inputs: &Inputs<Cube>, settings: &TiledSettings) -> Option<[KernelLayout; 2]> {
    let query = &inputs.query;
    let has_mask_or_bias = inputs.mask.as_ref().is_some() || inputs.bias.as_ref().is_some();
    let client = query.client.device().client();
    layouts(&client, query.dtype(), has_mask_or_bias, settings)
}

/// Registers an operation with the inputs of the call and other tensors. Returns its results.
fn register(
    pass: Pass,
    tensors: Inputs<Cube>,
    others: Vec<FloatTensor<Cube>>,
    settings: TiledSettings,
    layout: KernelLayout,
) -> [FloatTensor<Cube>; 3] {
    let dtype = tensors.query.dtype();
    let has_bias = tensors.bias.as_ref().is_some();
    let mask = match tensors.mask {
        DenseMask::None => None,
        DenseMask::Bool(mask) => Some(mask),
    };
    let mut floats = vec![tensors.query, tensors.key, tensors.value];
    if let Optional::Tensor(bias) = tensors.bias {
        floats.push(bias);
    }
    floats.extend(others);
    let shape = &settings.shape;
    let result = |heads, rows, width, dtype| ([shape.batch, heads, rows, width], dtype);
    let (name, outputs) = match pass {
        Pass::Forward => (
            "zoo::tiled_forward",
            [
                result(shape.heads, shape.seq_q, shape.d_value, dtype),
                result(shape.heads, shape.seq_q, 1, DType::F32),
                result(shape.heads, shape.seq_q, 2, DType::F32),
            ],
        ),
        Pass::Backward => (
            "zoo::tiled_backward",
            [
                result(shape.heads, shape.seq_q, shape.d_head, dtype),
                result(shape.kv_heads, shape.seq_k, shape.d_head, dtype),
                result(shape.kv_heads, shape.seq_k, shape.d_value, dtype),
            ],
        ),
    };
    op::register(name, mask, floats, outputs, move |mut inputs| {
        let kernel_inputs = KernelInputs {
            query: inputs.next(),
            key: inputs.next(),
            value: inputs.next(),
            bias: has_bias.then(|| inputs.next()),
            mask: inputs.mask.take(),
        };
        let saved = match pass {
            Pass::Forward => None,
            Pass::Backward => Some(BackwardInputs {
                context: inputs.next(),
                stats: inputs.next(),
                d_context: inputs.next(),
                d_log_sum_exp: inputs.floats.next(),
            }),
        };
        launch(kernel_inputs, saved, &settings, layout)
    })
}
