//! Matmuls with the precision of `f32` on every backend.
//!
//! Burn's `f32` matmuls on `cuda` use tensor cores, which round their operands to TF32, and no option
//! disables that. There, the [matmul of other devices](crate::cube::matmul) is launched instead.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch};
use burn::tensor::Tensor;

use crate::flash::additive;

/// The product of two tensors, with the precision of `f32` if they are `f32`. Batch dimensions of
/// size 1 are broadcast.
pub(crate) fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if units::is_rounded(&lhs) {
        return units::matmul(lhs, rhs);
    }
    lhs.matmul(rhs)
}

/// Operations of the tile loops that backends can override.
pub(crate) trait TileOps: Backend {
    /// [`matmul`] of tensors with equal batch dimensions.
    fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(lhs, rhs)
    }

    /// The scores of [additive attention](additive::scores).
    fn mlp_scores(inputs: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let [query, key, vector] = inputs;
        additive::scores::<Self>(query, key, vector)
    }

    /// Their [gradients](additive::backward).
    fn mlp_scores_backward(
        inputs: [FloatTensor<Self>; 3],
        d_scores: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        additive::backward::<Self>(inputs, d_scores)
    }
}

#[cfg(feature = "flex")]
impl TileOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn 0.23 has neither.
impl TileOps for burn::backend::NdArray {}

// Burn's matmul, whose gradients autodiff computes.
impl TileOps for Dispatch {}
impl<B: Backend, C: CheckpointStrategy> TileOps for Autodiff<B, C> {}

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
    use zoo_kernels::autodiff::{Step, record};

    use super::*;
    use crate::cube::matmul::unit_matmul;
    use crate::cube::op::{self, OperationOutput};

    /// The product of `f32` tensors `[.., rows, inner]` and `[.., inner, columns]` with two equal batch
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
            let [outer, inner, rows, _] = lhs.shape().dims();
            let [.., columns] = rhs.shape().dims::<4>();
            let outputs = vec![([outer, inner, rows, columns], DType::F32)];
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

    impl TileOps for Cube {
        fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            if rounds(&<Self as Backend>::name(&lhs.device()), lhs.dtype()) {
                Self::unit_matmul(lhs, rhs)
            } else {
                Self::float_matmul(lhs, rhs)
            }
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
        let (rows, inner, columns) = (left[D - 2], left[D - 1], right[D - 1]);
        let mut dims = left;
        dims[D - 1] = columns;
        for (dim, (left, right)) in dims.iter_mut().zip(left.into_iter().zip(right)).take(D - 2) {
            *dim = left.max(right);
        }
        let batch = dims[..D - 2].iter().product();
        let flatten = |tensor: Tensor<D>, matrix: [usize; 2]| {
            let mut size = dims;
            size[D - 2..].copy_from_slice(&matrix);
            // Autodiff sums the gradients of broadcast dimensions.
            let flat = tensor
                .expand(size)
                .reshape([1, batch, matrix[0], matrix[1]]);
            flat.into_dispatch()
        };
        let lhs = flatten(lhs, [rows, inner]);
        let rhs = flatten(rhs, [inner, columns]);
        let product = <Dispatch as UnitMatmul>::unit_matmul(lhs, rhs);
        Tensor::<4>::from_dispatch(product).reshape(dims)
    }
}
