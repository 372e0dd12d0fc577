//! The kernels as custom operations in Burn's fusion queue.

use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, OperationOutput, StreamId, TensorIr,
};
use burn::backend::fusion::{ExecutionError, FusionBackend, FusionRuntime};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, Shape, TensorMetadata};
use burn_cubecl::CubeBackend;

#[cfg(feature = "autotune")]
use super::autotune::launch_tuned as launch;
use super::bias_gradient::{self, sum_partial};
#[cfg(not(feature = "autotune"))]
use super::launch::launch;
use super::launch::{BackwardInputs, KernelInputs};
use super::layout::KernelLayout;
use super::program::KernelProgram;
use super::support::{Pass, layouts};
use crate::flash::call::{
    DenseMask, InputGrads, Inputs, Optional, OutputGrads, Outputs, Saved, TiledSettings,
};
use crate::flash::ops::{TiledBackward, TiledForward};
use crate::flash::portable;

type Runtime = <CubeBackend as FusionBackend>::FusionRuntime;
type Handles = HandleContainer<<Runtime as FusionRuntime>::FusionHandle>;

#[derive(Debug)]
struct FlashOp {
    ir: CustomOpIr,
    pass: Pass,
    settings: TiledSettings,
    layout: KernelLayout,
    has_mask: bool,
    has_bias: bool,
    has_parameter: bool,
    has_d_log_sum_exp: bool,
    needs_bias_grad: bool,
}

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
    let client = tensors.query.client.clone();
    let has_mask = tensors.mask.as_ref().is_some();
    let has_bias = tensors.bias.as_ref().is_some();
    let has_parameter = tensors.parameter.as_ref().is_some();
    // The mask is first, because the others are float tensors.
    let mut inputs = Vec::new();
    if let DenseMask::Bool(mask) = tensors.mask {
        inputs.push(mask.into_ir());
    }
    let mut floats = vec![tensors.query, tensors.key, tensors.value];
    for optional in [tensors.bias, tensors.parameter] {
        if let Optional::Tensor(tensor) = optional {
            floats.push(tensor);
        }
    }
    let (mut has_d_log_sum_exp, mut needs_bias_grad) = (false, false);
    if let Some((context, stats, grads)) = saved {
        has_d_log_sum_exp = grads.d_log_sum_exp.is_some();
        needs_bias_grad = grads.needs_bias_grad;
        floats.extend([context, stats, grads.d_context]);
        floats.extend(grads.d_log_sum_exp);
    }
    inputs.extend(floats.into_iter().map(|tensor| tensor.into_ir()));
    let outputs: Vec<TensorIr> = results
        .into_iter()
        .map(|(dims, dtype)| {
            TensorIr::uninit(client.create_empty_handle(), Shape::from(dims), dtype)
        })
        .collect();
    let name = match pass {
        Pass::Forward => "zoo::tiled_forward",
        Pass::Backward => "zoo::tiled_backward",
    };
    let op = FlashOp {
        ir: CustomOpIr::new(name, &inputs, &outputs),
        pass,
        settings,
        layout,
        has_mask,
        has_bias,
        has_parameter,
        has_d_log_sum_exp,
        needs_bias_grad,
    };
    let ir = OperationIr::Custom(op.ir.clone());
    client.register(StreamId::current(), ir, op)
}

impl Operation<Runtime> for FlashOp {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        let (masks, floats) = self.ir.inputs.split_at(usize::from(self.has_mask));
        let mask = masks.first();
        let mask = mask.map(|mask| handles.get_bool_tensor::<CubeBackend>(mask));
        let mut floats = floats
            .iter()
            .map(|input| handles.get_float_tensor::<CubeBackend>(input));
        let mut next = || floats.next().expect("an input tensor");
        let kernel_inputs = KernelInputs {
            query: next(),
            key: next(),
            value: next(),
            mask,
            bias: self.has_bias.then(&mut next),
            parameter: self.has_parameter.then(&mut next),
        };
        let saved = match self.pass {
            Pass::Forward => None,
            Pass::Backward => Some(BackwardInputs {
                context: next(),
                stats: next(),
                d_context: next(),
                d_log_sum_exp: self.has_d_log_sum_exp.then(&mut next),
                needs_bias_grad: self.needs_bias_grad,
            }),
        };
        let results = launch(kernel_inputs, saved, &self.settings, self.layout);
        for (output, result) in self.ir.outputs.iter().zip(results) {
            handles.register_float_tensor::<CubeBackend>(&output.id, result);
        }
        Ok(())
    }
}
