//! The kernels as operations among those that Burn's fusion queues.

use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, OperationOutput, StreamId, TensorIr,
};
use burn::backend::fusion::{ExecutionError, FusionBackend, FusionRuntime};
use burn::backend::{Cube, DType, Shape, TensorMetadata};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::able::{Layouts, Pass, layouts};
use super::launch::{Given, GivenBack};
#[cfg(not(feature = "autotune"))]
use super::launch::{launch_backward as backward, launch_forward as forward};
#[cfg(feature = "autotune")]
use super::tuned::{backward, forward};
use crate::flash::call::{
    Arrived, Bias, InputGradients, Inputs as Tensors, MoreHidden, Outputs, Saved, TiledSettings,
};
use crate::flash::ops::{TiledBackward, TiledForward};
use crate::flash::portable;

type Runtime = <CubeBackend as FusionBackend>::FusionRuntime;
type Handles = HandleContainer<<Runtime as FusionRuntime>::FusionHandle>;

#[derive(Debug)]
struct Queued {
    described: CustomOpIr,
    pass: Pass,
    settings: TiledSettings,
    layouts: Layouts,
    has_mask: bool,
    has_bias: bool,
}

impl TiledForward for Cube {
    fn tiled_forward(tensors: Tensors<Self>, settings: TiledSettings) -> Outputs<Self> {
        let client = tensors.query.client.clone();
        let dtype = tensors.query.dtype();
        let Some(layouts) = layouts(&client.device().client(), dtype, &settings) else {
            return portable::forward(tensors, &settings);
        };
        let shape = &settings.shape;
        let [query, key, value] = [tensors.query, tensors.key, tensors.value];
        let mut inputs = vec![query.into_ir(), key.into_ir(), value.into_ir()];
        let (has_mask, has_bias) = push_more(&mut inputs, tensors.hidden, tensors.bias);
        let result = |width, dtype| {
            let dims = [shape.batch, shape.heads, shape.seq_q, width];
            TensorIr::uninit(client.create_empty_handle(), Shape::from(dims), dtype)
        };
        let outputs = [
            result(shape.d_value, dtype),
            result(1, DType::F32),
            result(2, DType::F32),
        ];
        let queued = Queued {
            described: CustomOpIr::new("zoo::tiled_forward", &inputs, &outputs),
            pass: Pass::Forward,
            settings,
            layouts,
            has_mask,
            has_bias,
        };
        let described = OperationIr::Custom(queued.described.clone());
        let [context, log_sum_exp, stats] = client
            .register(StreamId::current(), described, queued)
            .outputs();
        (context, log_sum_exp, stats)
    }
}

impl TiledBackward for Cube {
    fn tiled_backward(
        saved: Saved<Self>,
        arrived: Arrived<Self>,
        settings: &TiledSettings,
    ) -> InputGradients<Self> {
        let client = saved.inputs.query.client.clone();
        let dtype = saved.inputs.query.dtype();
        let layouts = match layouts(&client.device().client(), dtype, settings) {
            // The gradient by a bias is summed over examples and heads, which no cube has
            // all of.
            Some(layouts) if !arrived.wants_bias => layouts,
            _ => return portable::backward::<Self>(saved, arrived, settings),
        };
        let shape = &settings.shape;
        let tensors = saved.inputs;
        let [query, key, value] = [tensors.query, tensors.key, tensors.value];
        let mut inputs = vec![query.into_ir(), key.into_ir(), value.into_ir()];
        let (has_mask, has_bias) = push_more(&mut inputs, tensors.hidden, tensors.bias);
        let known = [saved.context, saved.stats, arrived.d_context].into_iter();
        inputs.extend(
            known
                .chain(arrived.d_log_sum_exp)
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
        let queued = Queued {
            described: CustomOpIr::new("zoo::tiled_backward", &inputs, &outputs),
            pass: Pass::Backward,
            settings: settings.clone(),
            layouts,
            has_mask,
            has_bias,
        };
        let described = OperationIr::Custom(queued.described.clone());
        let [query, key, value] = client
            .register(StreamId::current(), described, queued)
            .outputs();
        InputGradients {
            query,
            key,
            value,
            bias: None,
        }
    }
}

/// Adds a mask and a bias to the inputs of an operation, and says which there are.
fn push_more(
    inputs: &mut Vec<TensorIr>,
    hidden: MoreHidden<Cube>,
    bias: Bias<Cube>,
) -> (bool, bool) {
    let before = inputs.len();
    if let MoreHidden::Where(hidden) = hidden {
        inputs.push(hidden.into_ir());
    }
    let has_mask = inputs.len() > before;
    let before = inputs.len();
    if let Bias::Added(bias) = bias {
        inputs.push(bias.into_ir());
    }
    (has_mask, inputs.len() > before)
}

/// The inputs of an operation, one after the other.
struct Inputs<'a> {
    handles: &'a mut Handles,
    left: std::slice::Iter<'a, TensorIr>,
}

impl<'a> Inputs<'a> {
    fn of(handles: &'a mut Handles, described: &'a CustomOpIr) -> Self {
        Self {
            handles,
            left: described.inputs.iter(),
        }
    }

    fn take(&mut self) -> Option<CubeTensor> {
        let next = self.left.next()?;
        Some(self.handles.get_float_tensor::<CubeBackend>(next))
    }

    fn float(&mut self) -> CubeTensor {
        self.take().expect("as many inputs as were queued")
    }

    fn mask(&mut self) -> CubeTensor {
        let next = self.left.next().expect("as many inputs as were queued");
        self.handles.get_bool_tensor::<CubeBackend>(next)
    }
}

impl Operation<Runtime> for Queued {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        let mut inputs = Inputs::of(handles, &self.described);
        let given = Given {
            query: inputs.float(),
            key: inputs.float(),
            value: inputs.float(),
            mask: self.has_mask.then(|| inputs.mask()),
            bias: self.has_bias.then(|| inputs.float()),
        };
        let results = match self.pass {
            Pass::Forward => forward(given, &self.settings, self.layouts.forward),
            Pass::Backward => {
                let back = GivenBack {
                    context: inputs.float(),
                    stats: inputs.float(),
                    d_context: inputs.float(),
                    d_log_sum_exp: inputs.take(),
                };
                backward(given, back, &self.settings, self.layouts.backward)
            }
        };
        for (output, result) in self.described.outputs.iter().zip(results) {
            handles.register_float_tensor::<CubeBackend>(&output.id, result);
        }
        Ok(())
    }
}
