//! Matmuls with the precision of `f32` on every backend.
//!
//! Burn's `f32` matmuls on `cuda` use tensor cores, which round their operands to TF32, and no option
//! disables that. There, a matmul without tensor cores is launched instead.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch};
use burn::tensor::Tensor;

use crate::hosts::Host;

static ALLOWS_TF32: AtomicBool = AtomicBool::new(false);

/// Whether linear and recurrent layers in `f32` may round their operands to TF32 on `cuda`, which is
/// faster and has a relative error of about `3e-4`; by default they do not. It applies to all threads
/// of the process, forward and backward. Other backends and attention mechanisms ignore it.
pub fn allow_tf32(is_allowed: bool) {
    ALLOWS_TF32.store(is_allowed, Ordering::Relaxed);
}

pub(crate) fn is_tf32_allowed() -> bool {
    ALLOWS_TF32.load(Ordering::Relaxed)
}

/// The product of two tensors, with the precision of `f32` if they are `f32`. Batch dimensions of
/// size 1 are broadcast.
pub fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if units::is_rounded(&lhs) {
        return units::matmul(lhs, rhs);
    }
    lhs.matmul(rhs)
}

/// Whether Burn's matmul would round the operands of a linear layer, and this is not allowed.
pub(crate) fn needs_f32_matmul<const D: usize>(input: &Tensor<D>) -> bool {
    #[cfg(feature = "cube")]
    return !is_tf32_allowed() && units::is_rounded(input);
    #[cfg(not(feature = "cube"))]
    {
        let _ = input;
        false
    }
}

/// The product of an input and a parameter of a layer with equal batch dimensions, in TF32 if that
/// is [allowed](allow_tf32).
pub(crate) fn layer_matmul<B: MatmulOps>(
    input: FloatTensor<B>,
    parameter: FloatTensor<B>,
) -> FloatTensor<B> {
    if is_tf32_allowed() {
        B::float_matmul(input, parameter)
    } else {
        B::f32_matmul(input, parameter)
    }
}

/// The matmul of code that is generic over backends.
pub trait MatmulOps: Backend {
    /// [`matmul()`] of tensors with equal batch dimensions.
    fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(lhs, rhs)
    }
}

impl<B: Host> MatmulOps for B {}

// Autodiff computes the gradients.
impl MatmulOps for Dispatch {
    #[cfg(feature = "cube")]
    fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        units::dispatch_matmul(lhs, rhs)
    }
}
impl<B: Backend, C: CheckpointStrategy> MatmulOps for Autodiff<B, C> {}

/// The product of two `f32` tensors, without tensor cores on every CubeCL backend. For tests.
#[doc(hidden)]
pub fn matmul_by_units<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if units::cube_name(&lhs.clone().into_dispatch().kind).is_some() {
        return units::matmul(lhs, rhs);
    }
    lhs.matmul(rhs)
}

#[cfg(feature = "cube")]
mod units {
    use burn::backend::ops::FloatTensorOps;
    use burn::backend::{Cube, DispatchTensorKind, TensorMetadata, backend_extension};
    use burn::tensor::DType;

    use super::*;
    use crate::autodiff::{Step, record};
    use crate::cube::matmul::unit_matmul;
    use crate::cube::op::{self, OperationOutput};

    /// The product of `f32` tensors `[.., rows, inner]` and `[.., inner, columns]` with equal batch
    /// dimensions.
    #[backend_extension(
        Autodiff,
        Cube: cfg(feature = "cube"),
    )]
    pub(super) trait UnitMatmul: Backend {
        fn unit_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    impl UnitMatmul for Cube {
        fn unit_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            let (mut shape, right) = (lhs.shape(), rhs.shape());
            let last = shape.num_dims() - 1;
            shape[last] = right[last];
            let outputs = vec![(shape, DType::F32)];
            let launch = |mut inputs: op::OpInputs| {
                let lhs = inputs.next();
                vec![unit_matmul(lhs, inputs.next())]
            };
            let [product] =
                op::register("zoo::unit_matmul", None, vec![lhs, rhs], outputs, launch).outputs();
            product
        }
    }

    impl<B: UnitMatmul, C: CheckpointStrategy> UnitMatmul for Autodiff<B, C> {
        fn unit_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            let parents = [lhs.node(), rhs.node()];
            let [lhs, rhs] = [lhs, rhs].map(|tensor| tensor.into_primitive());
            let output = B::unit_matmul(lhs.clone(), rhs.clone());
            record::<B, C, _, 2>(Step(backward::<B>), parents, [lhs, rhs], output)
        }
    }

    /// The gradients of both operands.
    fn backward<B: UnitMatmul>(
        [lhs, rhs]: [FloatTensor<B>; 2],
        output_grad: FloatTensor<B>,
    ) -> [FloatTensor<B>; 2] {
        [
            B::unit_matmul(output_grad.clone(), B::float_transpose(rhs)),
            B::unit_matmul(B::float_transpose(lhs), output_grad),
        ]
    }

    impl MatmulOps for Cube {
        fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            if rounds(&<Self as Backend>::name(&lhs.device()), lhs.dtype()) {
                Self::unit_matmul(lhs, rhs)
            } else {
                Self::float_matmul(lhs, rhs)
            }
        }
    }

    pub(super) fn dispatch_matmul(
        lhs: FloatTensor<Dispatch>,
        rhs: FloatTensor<Dispatch>,
    ) -> FloatTensor<Dispatch> {
        let name = cube_name(&lhs.kind);
        if name.is_some_and(|name| rounds(&name, lhs.dtype())) {
            <Dispatch as UnitMatmul>::unit_matmul(lhs, rhs)
        } else {
            Dispatch::float_matmul(lhs, rhs)
        }
    }

    /// Whether the matmuls of a CubeCL backend round operands to TF32.
    fn rounds(name: &str, dtype: DType) -> bool {
        dtype == DType::F32 && name.contains("cuda")
    }

    /// Whether the matmuls of a tensor's device round it to TF32.
    pub(super) fn is_rounded<const D: usize>(tensor: &Tensor<D>) -> bool {
        let name = cube_name(&tensor.clone().into_dispatch().kind);
        name.is_some_and(|name| rounds(&name, tensor.dtype()))
    }

    /// The name of a tensor's backend, if it is one of CubeCL's.
    pub(super) fn cube_name(kind: &DispatchTensorKind) -> Option<String> {
        match kind {
            DispatchTensorKind::Autodiff(inner) => cube_name(inner),
            DispatchTensorKind::Cube(tensor) => Some(<Cube as Backend>::name(&tensor.device())),
            #[allow(unreachable_patterns)] // depends on the features
            _ => None,
        }
    }

    /// The product of two `f32` tensors of a CubeCL backend.
    pub(super) fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
        let (left, right) = (lhs.dims(), rhs.dims());
        let expand = |tensor: Tensor<D>| {
            let mut dims = tensor.dims();
            for (dim, (left, right)) in dims.iter_mut().zip(left.into_iter().zip(right)).take(D - 2)
            {
                *dim = left.max(right);
            }
            // Autodiff sums the gradients of broadcast dimensions.
            let is_broadcast = dims != tensor.dims();
            let tensor = if is_broadcast {
                tensor.expand(dims)
            } else {
                tensor
            };
            tensor.into_dispatch()
        };
        let (lhs, rhs) = (expand(lhs), expand(rhs));
        Tensor::from_dispatch(<Dispatch as UnitMatmul>::unit_matmul(lhs, rhs))
    }
}
