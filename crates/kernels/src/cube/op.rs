//! Kernels as custom operations in Burn's fusion queue.

use std::fmt;

pub use burn::backend::fusion::custom::OperationOutput;
use burn::backend::fusion::custom::{
    CustomOpIr, HandleContainer, Operation, OperationIr, StreamId, TensorIr,
};
use burn::backend::fusion::{ExecutionError, FusionBackend, FusionRuntime};
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Cube, DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

type Runtime = <CubeBackend as FusionBackend>::FusionRuntime;
type Handles = HandleContainer<<Runtime as FusionRuntime>::FusionHandle>;

/// The inputs of an operation: an optional bool tensor, and float tensors in the order in which they
/// were registered.
#[derive(Debug)]
pub struct OpInputs {
    /// The bool tensor.
    pub mask: Option<CubeTensor>,
    /// The float tensors that have not been taken.
    pub floats: std::vec::IntoIter<CubeTensor>,
}

impl OpInputs {
    /// The next float tensor.
    ///
    /// # Panics
    ///
    /// If all have been taken.
    #[allow(clippy::should_implement_trait)] // an operation knows how many it has
    pub fn next(&mut self) -> CubeTensor {
        self.floats.next().expect("an input tensor")
    }
}

/// An operation whose inputs begin with the bool tensor, if there is one.
struct KernelOp<F> {
    ir: CustomOpIr,
    has_mask: bool,
    launch: F,
}

impl<F> fmt::Debug for KernelOp<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelOp").field("ir", &self.ir).finish()
    }
}

/// Registers an operation and returns its results, which have the given shapes and types. `launch`
/// launches its kernels when the queue is executed.
pub fn register<F, S>(
    name: &'static str,
    mask: Option<BoolTensor<Cube>>,
    floats: Vec<FloatTensor<Cube>>,
    outputs: Vec<(S, DType)>,
    launch: F,
) -> Vec<FloatTensor<Cube>>
where
    F: Fn(OpInputs) -> Vec<CubeTensor> + Send + Sync + 'static,
    S: Into<Shape>,
{
    let client = floats[0].client.clone();
    let has_mask = mask.is_some();
    let mut inputs: Vec<TensorIr> = mask.into_iter().map(|mask| mask.into_ir()).collect();
    inputs.extend(floats.into_iter().map(|tensor| tensor.into_ir()));
    let outputs: Vec<TensorIr> = outputs
        .into_iter()
        .map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape.into(), dtype))
        .collect();
    let op = KernelOp {
        ir: CustomOpIr::new(name, &inputs, &outputs),
        has_mask,
        launch,
    };
    let ir = OperationIr::Custom(op.ir.clone());
    client.register(StreamId::current(), ir, op)
}

impl<F> Operation<Runtime> for KernelOp<F>
where
    F: Fn(OpInputs) -> Vec<CubeTensor> + Send + Sync + 'static,
{
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        let (masks, floats) = self.ir.inputs.split_at(usize::from(self.has_mask));
        let mask = masks.first();
        let mask = mask.map(|mask| handles.get_bool_tensor::<CubeBackend>(mask));
        let floats: Vec<CubeTensor> = floats
            .iter()
            .map(|input| handles.get_float_tensor::<CubeBackend>(input))
            .collect();
        let floats = floats.into_iter();
        let results = (self.launch)(OpInputs { mask, floats });
        for (output, result) in self.ir.outputs.iter().zip(results) {
            handles.register_float_tensor::<CubeBackend>(&output.id, result);
        }
        Ok(())
    }
}
