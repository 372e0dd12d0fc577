//! An operation of your own: a body for every backend, a faster one for flex, and a gradient
//! by hand. `flash` is made in the same way.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin own_backend_extension
//! ```
//!
//! `softsign(x) = x / (1 + |x|)`, with the slope `1 / (1 + |x|)²`.

#![allow(deprecated)] // Burn 0.22 is the last with NdArray and LibTorch.

use std::process::ExitCode;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::autodiff::{NodeId, grads::Gradients};
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension, tensor::FloatTensor};
use burn::tensor::Tensor;
use zoo_backend::Opened;

/// The operation, for the backends in the list.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
trait Softsign: Backend {
    fn softsign(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let size = Self::float_add_scalar(Self::float_abs(x.clone()), 1.0.into());
        Self::float_div(x, size)
    }
}

/// One pass over memory instead of three.
#[cfg(feature = "flex")]
impl Softsign for burn::backend::Flex {
    fn softsign(x: FloatTensor<Self>) -> FloatTensor<Self> {
        use burn::backend::{TensorData, TensorMetadata, flex::FlexTensor};
        let (shape, x) = (x.shape(), x.to_contiguous());
        let bent = x.storage::<f32>().iter().map(|x| x / (1.0 + x.abs()));
        FlexTensor::from_data(TensorData::new(bent.collect::<Vec<_>>(), shape))
    }
}
#[cfg(feature = "ndarray")]
impl Softsign for burn::backend::NdArray {}
#[cfg(feature = "tch")]
impl Softsign for burn::backend::LibTorch {}
#[cfg(feature = "cube")]
impl Softsign for burn::backend::Cube {}

/// The way back, from `softsign(x)` to `x`.
#[derive(Debug)]
struct Slope;

impl<B: Backend> Backward<B, 1> for Slope {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, to: &mut Gradients, kept: &mut Checkpointer) {
        let arrived = to.consume::<B>(&ops.node);
        let x: FloatTensor<B> = kept.retrieve_node_output(ops.state);
        let size = B::float_add_scalar(B::float_abs(x), 1.0.into());
        let gradient = B::float_div(B::float_div(arrived, size.clone()), size);
        if let [Some(parent)] = ops.parents {
            to.register::<B>(parent.id, gradient);
        }
    }
}

impl<B: Softsign, C: CheckpointStrategy> Softsign for Autodiff<B, C> {
    fn softsign(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let prepared = Backward::<B, 1>::prepare::<C>(Slope, [x.node()]);
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
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let device = &opened.device.clone().autodiff();
    let x = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 4.0], device).require_grad();
    let y = Tensor::<1>::from_dispatch(Dispatch::softsign(x.clone().into_dispatch()));
    let gradients = y.clone().sum().backward();
    let slope = x.grad(&gradients).ok_or("x has a gradient")?;
    for (name, tensor) in [("x", x.inner()), ("softsign", y.inner()), ("slope", slope)] {
        println!("{name:8}  {:?}", tensor.try_into_vec_as::<f32>()?);
    }
    Ok(())
}
