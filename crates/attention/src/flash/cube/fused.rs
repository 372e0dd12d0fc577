//! The kernels as operations in Burn's fusion queue.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, TensorMetadata};

#[cfg(feature = "autotune")]
use super::autotune::launch_tuned as launch;
use super::bias_gradient::{self, sum_partial};
#[cfg(not(feature = "autotune"))]
use super::launch::launch;
use super::launch::{BackwardInputs, KernelInputs};
use super::layout::KernelLayout;
use super::program::KernelProgram;
use super::support::{Pass, layouts};
use crate::cube::op::{self, OperationOutput};
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
        let shape = &settings.shape;
        let dtype = inputs.query.dtype();
        let program = KernelProgram::new(&settings).expect("a program that the kernels support");
        let rows = |width| [shape.batch, shape.heads, shape.seq_q, width];
        let results = [
            (rows(shape.d_value), dtype),
            (rows(1), DType::F32),
            (rows(program.stats_width(&settings)), DType::F32),
        ];
        let results = register(
            Pass::Forward,
            inputs,
            None,
            results.into(),
            settings,
            layout,
        );
        let [context, log_sum_exp, stats] = results.outputs();
        (context, log_sum_exp, stats)
    }
}

impl TiledBackward for Cube {
    fn tiled_backward(
        saved: Saved<Self>,
        output_grads: OutputGrads<Self>,
        settings: &TiledSettings,
    ) -> InputGrads<Self> {
        let bias_dims = saved
            .inputs
            .bias
            .as_ref()
            .filter(|_| output_grads.needs_bias_grad)
            .map(|bias| bias.shape().dims::<4>());
        let Some([_, layout]) = layouts_of(&saved.inputs, settings) else {
            return portable::backward::<Self>(saved, output_grads, settings);
        };
        let shape = &settings.shape;
        let dtype = saved.inputs.query.dtype();
        let keys = |width| [shape.batch, shape.kv_heads, shape.seq_k, width];
        let mut results = vec![
            ([shape.batch, shape.heads, shape.seq_q, shape.d_head], dtype),
            (keys(shape.d_head), dtype),
            (keys(shape.d_value), dtype),
        ];
        results.extend(
            bias_dims.map(|dims| (bias_gradient::partial_dims(dims, settings), DType::F32)),
        );
        let has_parameter = saved.inputs.parameter.as_ref().is_some();
        if has_parameter {
            results.push(results[0]);
        }
        let Saved {
            inputs,
            context,
            stats,
        } = saved;
        let settings = settings.clone();
        let saved = Some((context, stats, output_grads));
        let mut grads = register(
            Pass::Backward,
            inputs,
            saved,
            results,
            settings.clone(),
            layout,
        )
        .into_iter();
        let mut next = || grads.next().expect("a gradient");
        InputGrads {
            qkv: [next(), next(), next()],
            bias: bias_dims.map(|dims| sum_partial(next(), dims, &settings)),
            // The sum of the terms of all queries.
            parameter: has_parameter.then(|| {
                let by_example = Cube::float_sum_dim(next(), 2);
                Cube::float_sum_dim(by_example, 0)
            }),
        }
    }
}

fn layouts_of(inputs: &Inputs<Cube>, settings: &TiledSettings) -> Option<[KernelLayout; 2]> {
    let query = &inputs.query;
    let has_mask_or_bias = inputs.mask.as_ref().is_some() || inputs.bias.as_ref().is_some();
    let client = query.client.device().client();
    layouts(&client, query.dtype(), has_mask_or_bias, settings)
}

/// Context and statistics of the forward pass, and output gradients.
type SavedTensors = (FloatTensor<Cube>, FloatTensor<Cube>, OutputGrads<Cube>);

/// Registers an operation with the inputs of the call and saved tensors. Returns its results, which
/// have these shapes and types.
fn register(
    pass: Pass,
    tensors: Inputs<Cube>,
    saved: Option<SavedTensors>,
    results: Vec<([usize; 4], DType)>,
    settings: TiledSettings,
    layout: KernelLayout,
) -> Vec<FloatTensor<Cube>> {
    let has_bias = tensors.bias.as_ref().is_some();
    let has_parameter = tensors.parameter.as_ref().is_some();
    let mask = match tensors.mask {
        DenseMask::None => None,
        DenseMask::Bool(mask) => Some(mask),
    };
    let mut floats = vec![tensors.query, tensors.key, tensors.value];
    for optional in [tensors.bias, tensors.parameter] {
        if let Optional::Tensor(tensor) = optional {
            floats.push(tensor);
        }
    }
    let mut needs_bias_grad = false;
    if let Some((context, stats, grads)) = saved {
        needs_bias_grad = grads.needs_bias_grad;
        floats.extend([context, stats, grads.d_context]);
        floats.extend(grads.d_log_sum_exp);
    }
    let name = match pass {
        Pass::Forward => "zoo::tiled_forward",
        Pass::Backward => "zoo::tiled_backward",
    };
    op::register(name, mask, floats, results, move |mut inputs| {
        let kernel_inputs = KernelInputs {
            query: inputs.next(),
            key: inputs.next(),
            value: inputs.next(),
            bias: has_bias.then(|| inputs.next()),
            parameter: has_parameter.then(|| inputs.next()),
            mask: inputs.mask.take(),
        };
        let saved = match pass {
            Pass::Forward => None,
            Pass::Backward => Some(BackwardInputs {
                context: inputs.next(),
                stats: inputs.next(),
                d_context: inputs.next(),
                d_log_sum_exp: inputs.floats.next(),
                needs_bias_grad,
            }),
        };
        launch(kernel_inputs, saved, &settings, layout)
    })
}
