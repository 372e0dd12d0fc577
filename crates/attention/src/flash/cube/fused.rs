//! The kernels as custom operations in Burn's fusion queue.

use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, OperationOutput, StreamId, TensorIr,
};
use burn::backend::fusion::{ExecutionError, FusionBackend, FusionRuntime};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, Shape, TensorMetadata};
use burn_cubecl::CubeBackend;

#[cfg(feature = "autotune")]
use super::autotune::launch_tuned as launch;
#[cfg(not(feature = "autotune"))]
use super::launch::launch;
use super::launch::{BackwardInputs, KernelInputs};
use super::layout::KernelLayout;
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
}

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
    let client = tensors.query.client.clone();
    let dtype = tensors.query.dtype();
    let has_mask = tensors.mask.as_ref().is_some();
    let has_bias = tensors.bias.as_ref().is_some();
    // The mask is first, because the others are float tensors.
    let mut inputs = Vec::new();
    if let DenseMask::Bool(mask) = tensors.mask {
        inputs.push(mask.into_ir());
    }
    let mut floats = vec![tensors.query, tensors.key, tensors.value];
    if let Optional::Tensor(bias) = tensors.bias {
        floats.push(bias);
    }
    floats.extend(others);
    inputs.extend(floats.into_iter().map(|tensor| tensor.into_ir()));
    let shape = &settings.shape;
    let result = |heads, rows, width, dtype| {
        let dims = [shape.batch, heads, rows, width];
        TensorIr::uninit(client.create_empty_handle(), Shape::from(dims), dtype)
    };
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
    let op = FlashOp {
        ir: CustomOpIr::new(name, &inputs, &outputs),
        pass,
        settings,
        layout,
        has_mask,
        has_bias,
    };
    let ir = OperationIr::Custom(op.ir.clone());
    client.register(StreamId::current(), ir, op).outputs()
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
        };
        let saved = match self.pass {
            Pass::Forward => None,
            Pass::Backward => Some(BackwardInputs {
                context: next(),
                stats: next(),
                d_context: next(),
                d_log_sum_exp: floats.next(),
            }),
        };
        let results = launch(kernel_inputs, saved, &self.settings, self.layout);
        for (output, result) in self.ir.outputs.iter().zip(results) {
            handles.register_float_tensor::<CubeBackend>(&output.id, result);
        }
        Ok(())
    }
}
