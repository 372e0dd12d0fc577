//! The kernels as custom operations in Burn's fusion queue.

use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, OperationOutput, StreamId, TensorIr,
};
use burn::backend::fusion::{ExecutionError, FusionBackend, FusionRuntime};
use burn::backend::{Cube, DType, Shape, TensorMetadata};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

#[cfg(feature = "autotune")]
use super::autotune::launch_tuned as launch;
#[cfg(not(feature = "autotune"))]
use super::launch::launch;
use super::launch::{BackwardInputs, KernelInputs};
use super::layout::Layout;
use super::support::{Pass, layouts};
use crate::flash::call::{
    Bias, DenseMask, InputGrads, Inputs, OutputGrads, Outputs, Saved, TiledSettings,
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
    layout: Layout,
    has_mask: bool,
    has_bias: bool,
}

impl TiledForward for Cube {
    fn tiled_forward(tensors: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
        let client = tensors.query.client.clone();
        let dtype = tensors.query.dtype();
        let Some(layouts) = layouts(&client.device().client(), dtype, &settings) else {
            return portable::forward(tensors, &settings);
        };
        let shape = &settings.shape;
        let [query, key, value] = [tensors.query, tensors.key, tensors.value];
        let mut inputs = vec![query.into_ir(), key.into_ir(), value.into_ir()];
        let (has_mask, has_bias) = push_mask_and_bias(&mut inputs, tensors.mask, tensors.bias);
        let result = |width, dtype| {
            let dims = [shape.batch, shape.heads, shape.seq_q, width];
            TensorIr::uninit(client.create_empty_handle(), Shape::from(dims), dtype)
        };
        let outputs = [
            result(shape.d_value, dtype),
            result(1, DType::F32),
            result(2, DType::F32),
        ];
        let op = FlashOp {
            ir: CustomOpIr::new("zoo::tiled_forward", &inputs, &outputs),
            pass: Pass::Forward,
            settings,
            layout: layouts.forward,
            has_mask,
            has_bias,
        };
        let ir = OperationIr::Custom(op.ir.clone());
        let [context, log_sum_exp, stats] = client.register(StreamId::current(), ir, op).outputs();
        (context, log_sum_exp, stats)
    }
}

impl TiledBackward for Cube {
    fn tiled_backward(
        saved: Saved<Self>,
        output_grads: OutputGrads<Self>,
        settings: &TiledSettings,
    ) -> InputGrads<Self> {
        let client = saved.inputs.query.client.clone();
        let dtype = saved.inputs.query.dtype();
        let layouts = match layouts(&client.device().client(), dtype, settings) {
            // The bias gradient is a sum over examples and heads, which are in different cubes.
            Some(layouts) if !output_grads.needs_bias_grad => layouts,
            _ => return portable::backward::<Self>(saved, output_grads, settings),
        };
        let shape = &settings.shape;
        let tensors = saved.inputs;
        let [query, key, value] = [tensors.query, tensors.key, tensors.value];
        let mut inputs = vec![query.into_ir(), key.into_ir(), value.into_ir()];
        let (has_mask, has_bias) = push_mask_and_bias(&mut inputs, tensors.mask, tensors.bias);
        let others = [saved.context, saved.stats, output_grads.d_context].into_iter();
        inputs.extend(
            others
                .chain(output_grads.d_log_sum_exp)
                .map(|tensor| tensor.into_ir()),
        );
        let result = |[heads, rows, width]: [usize; 3]| {
            let dims = [shape.batch, heads, rows, width];
            TensorIr::uninit(client.create_empty_handle(), Shape::from(dims), dtype)
        };
        let outputs = [
            result([shape.heads, shape.seq_q, shape.d_head]),
            result([shape.kv_heads, shape.seq_k, shape.d_head]),
            result([shape.kv_heads, shape.seq_k, shape.d_value]),
        ];
        let op = FlashOp {
            ir: CustomOpIr::new("zoo::tiled_backward", &inputs, &outputs),
            pass: Pass::Backward,
            settings: settings.clone(),
            layout: layouts.backward,
            has_mask,
            has_bias,
        };
        let ir = OperationIr::Custom(op.ir.clone());
        let [query, key, value] = client.register(StreamId::current(), ir, op).outputs();
        InputGrads {
            query,
            key,
            value,
            bias: None,
        }
    }
}

/// Appends the mask and the bias to the inputs of an operation. Returns which of them exist.
fn push_mask_and_bias(
    inputs: &mut Vec<TensorIr>,
    mask: DenseMask<Cube>,
    bias: Bias<Cube>,
) -> (bool, bool) {
    let (mut has_mask, mut has_bias) = (false, false);
    if let DenseMask::Bool(mask) = mask {
        inputs.push(mask.into_ir());
        has_mask = true;
    }
    if let Bias::Added(bias) = bias {
        inputs.push(bias.into_ir());
        has_bias = true;
    }
    (has_mask, has_bias)
}

/// An iterator over the input tensors of an operation.
struct InputTensors<'a> {
    handles: &'a mut Handles,
    inputs: std::slice::Iter<'a, TensorIr>,
}

impl InputTensors<'_> {
    fn next_float(&mut self) -> Option<CubeTensor> {
        let next = self.inputs.next()?;
        Some(self.handles.get_float_tensor::<CubeBackend>(next))
    }

    fn float(&mut self) -> CubeTensor {
        self.next_float().expect("an input tensor")
    }

    fn mask(&mut self) -> CubeTensor {
        let next = self.inputs.next().expect("an input tensor");
        self.handles.get_bool_tensor::<CubeBackend>(next)
    }
}

impl Operation<Runtime> for FlashOp {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        let mut inputs = InputTensors {
            handles,
            inputs: self.ir.inputs.iter(),
        };
        let kernel_inputs = KernelInputs {
            query: inputs.float(),
            key: inputs.float(),
            value: inputs.float(),
            mask: self.has_mask.then(|| inputs.mask()),
            bias: self.has_bias.then(|| inputs.float()),
        };
        let saved = (self.pass == Pass::Backward).then(|| BackwardInputs {
            context: inputs.float(),
            stats: inputs.float(),
            d_context: inputs.float(),
            d_log_sum_exp: inputs.next_float(),
        });
        let results = launch(kernel_inputs, saved, &self.settings, self.layout);
        for (output, result) in self.ir.outputs.iter().zip(results) {
            handles.register_float_tensor::<CubeBackend>(&output.id, result);
        }
        Ok(())
    }
}
