//! A custom operation: a default implementation for every backend, a faster kernel for flex, and a
//! manual backward pass. `flash` is implemented in the same way.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin custom_op
//! ```
//!
//! `softsign(x) = x / (1 + |x|)`, with the derivative `1 / (1 + |x|)²`.

#![allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch.

use std::process::ExitCode;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::autodiff::{NodeId, grads::Gradients};
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;

/// The operation, for the listed backends.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
trait Softsign: Backend {
    fn softsign(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let divisor = Self::float_add_scalar(Self::float_abs(x.clone()), 1.0.into());
        Self::float_div(x, divisor)
    }
}

/// One pass over memory instead of three.
#[cfg(feature = "flex")]
impl Softsign for burn::backend::Flex {
    fn softsign(x: FloatTensor<Self>) -> FloatTensor<Self> {
        use burn::backend::{TensorData, TensorMetadata, flex::FlexTensor};
        let (shape, x) = (x.shape(), x.to_contiguous());
        let output = x.storage::<f32>().iter().map(|x| x / (1.0 + x.abs()));
        FlexTensor::from_data(TensorData::new(output.collect::<Vec<_>>(), shape))
    }
}
#[cfg(feature = "ndarray")]
impl Softsign for burn::backend::NdArray {}
#[cfg(feature = "tch")]
impl Softsign for burn::backend::LibTorch {}
#[cfg(feature = "cube")]
impl Softsign for burn::backend::Cube {}

/// Backward pass of `softsign`.
#[derive(Debug)]
struct SoftsignBackward;

impl<B: Backend> Backward<B, 1> for SoftsignBackward {
    type State = NodeId;

    fn backward(
        self,
        ops: Ops<NodeId, 1>,
        gradients: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let output_grad = gradients.consume::<B>(&ops.node);
        let x: FloatTensor<B> = checkpointer.retrieve_node_output(ops.state);
        let divisor = B::float_add_scalar(B::float_abs(x), 1.0.into());
        let input_grad = B::float_div(B::float_div(output_grad, divisor.clone()), divisor);
        if let [Some(parent)] = ops.parents {
            gradients.register::<B>(parent.id, input_grad);
        }
    }
}

impl<B: Softsign, C: CheckpointStrategy> Softsign for Autodiff<B, C> {
    fn softsign(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let prepared = Backward::<B, 1>::prepare::<C>(SoftsignBackward, [x.node()]);
        match prepared.compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let node = prep.checkpoint(&x);
                prep.finish(node, B::softsign(x.into_primitive()))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::softsign(x.into_primitive())),
        }
    }
}

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let device = &opened.device.clone().autodiff();
        let x = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 4.0], device).require_grad();
        let y = Tensor::<1>::from_dispatch(Dispatch::softsign(x.clone().into_dispatch()));
        let gradients = y.clone().sum().backward();
        let gradient = x.grad(&gradients).ok_or("x has no gradient")?;
        for (name, tensor) in [
            ("x", x.inner()),
            ("softsign", y.inner()),
            ("gradient", gradient),
        ] {
            println!("{name:8}  {:?}", tensor.try_into_vec_as::<f32>()?);
        }
        Ok(())
    })
}
