//! The kernels as operations among those that Burn's fusion queues.

use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, OperationOutput, StreamId, TensorIr,
};
use burn::backend::fusion::{ExecutionError, FusionBackend, FusionRuntime};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, Shape, TensorMetadata};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::able::{Layouts, layouts};
use super::launch::{Given, GivenBack};
#[cfg(not(feature = "autotune"))]
use super::launch::{launch_backward as backward, launch_forward as forward};
#[cfg(feature = "autotune")]
use super::tuned::{backward, forward};
use crate::flash::call::{Arrived, Bias, InputGradients, MoreHidden, Saved, TiledSettings};
use crate::flash::ops::{TiledBackward, TiledForward};
use crate::flash::portable;

type Runtime = <CubeBackend as FusionBackend>::FusionRuntime;
type Handles = HandleContainer<<Runtime as FusionRuntime>::FusionHandle>;

/// What a queued operation is told.
#[derive(Debug)]
struct Queued {
    described: CustomOpIr,
    settings: TiledSettings,
    layouts: Layouts,
    has_mask: bool,
    has_bias: bool,
}

impl TiledForward for Cube {
    fn tiled_forward(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        hidden: MoreHidden<Self>,
        bias: Bias<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let client = query.client.clone();
        let dtype = query.dtype();
        let Some(layouts) = layouts(&client.device().client(), dtype, &settings) else {
            return portable::forward::<Self>(query, key, value, hidden, bias, &settings);
        };
        let shape = &settings.shape;
        let mut inputs = vec![query.into_ir(), key.into_ir(), value.into_ir()];
        let (has_mask, has_bias) = push_more(&mut inputs, hidden, bias);
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
            settings,
            layouts,
            has_mask,
            has_bias,
        };
        let described = OperationIr::Custom(queued.described.clone());
        let [context, log_sum_exp, stats] = client
            .register(StreamId::current(), described, Forward(queued))
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
        let client = saved.query.client.clone();
        let dtype = saved.query.dtype();
        let layouts = match layouts(&client.device().client(), dtype, settings) {
            // The gradient by a bias is summed over examples and heads, which no cube has
            // all of.
            Some(layouts) if !arrived.wants_bias => layouts,
            _ => return portable::backward::<Self>(saved, arrived, settings),
        };
        let shape = &settings.shape;
        let mut inputs = vec![
            saved.query.into_ir(),
            saved.key.into_ir(),
            saved.value.into_ir(),
            saved.context.into_ir(),
            saved.stats.into_ir(),
            arrived.d_context.into_ir(),
        ];
        let (has_mask, has_bias) = push_more(&mut inputs, saved.hidden, saved.bias);
        inputs.extend(arrived.d_log_sum_exp.map(|tensor| tensor.into_ir()));
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
            settings: settings.clone(),
            layouts,
            has_mask,
            has_bias,
        };
        let described = OperationIr::Custom(queued.described.clone());
        let [query, key, value] = client
            .register(StreamId::current(), described, Backward(queued))
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

fn publish(
    handles: &mut Handles,
    described: &CustomOpIr,
    results: impl IntoIterator<Item = CubeTensor>,
) {
    for (output, result) in described.outputs.iter().zip(results) {
        handles.register_float_tensor::<CubeBackend>(&output.id, result);
    }
}

#[derive(Debug)]
struct Forward(Queued);

impl Operation<Runtime> for Forward {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        let Self(queued) = self;
        let mut inputs = Inputs::of(handles, &queued.described);
        let given = Given {
            query: inputs.float(),
            key: inputs.float(),
            value: inputs.float(),
            mask: queued.has_mask.then(|| inputs.mask()),
            bias: queued.has_bias.then(|| inputs.float()),
        };
        let results = forward(given, &queued.settings, queued.layouts.forward);
        publish(handles, &queued.described, results);
        Ok(())
    }
}

#[derive(Debug)]
struct Backward(Queued);

impl Operation<Runtime> for Backward {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        let Self(queued) = self;
        let mut inputs = Inputs::of(handles, &queued.described);
        let [query, key, value] = [inputs.float(), inputs.float(), inputs.float()];
        let [context, stats, d_context] = [inputs.float(), inputs.float(), inputs.float()];
        let given = Given {
            query,
            key,
            value,
            mask: queued.has_mask.then(|| inputs.mask()),
            bias: queued.has_bias.then(|| inputs.float()),
        };
        let back = GivenBack {
            context,
            stats,
            d_context,
            d_log_sum_exp: inputs.take(),
        };
        let results = backward(given, back, &queued.settings, queued.layouts.backward);
        publish(handles, &queued.described, results);
        Ok(())
    }
}
