//! Rows selected by index, whose gradient is gathered by the inverse index.
//!
//! Autodiff would add the gradients of all selected rows to zeros, in the order of the index: on
//! CubeCL backends one column is one unit.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, Dispatch, Shape, TensorMetadata, backend_extension};
use burn::tensor::{Int, Tensor};
use zoo_kernels::autodiff::{Step, record};

/// The rows `index` of `[rows, width]`. Of `inverse`, `[copies, rows]`, column `i` has the indices
/// of row `i` in the result. Other rows of the result must have no gradient.
pub(super) fn gather_rows(
    rows: Tensor<2>,
    index: &Tensor<1, Int>,
    inverse: &Tensor<1, Int>,
) -> Tensor<2> {
    let [index, inverse] = [index, inverse].map(|index| index.clone().into_dispatch());
    let gathered = <Dispatch as GatherRows>::gather_rows(rows.into_dispatch(), index, inverse);
    Tensor::from_dispatch(gathered)
}

#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
trait GatherRows: Backend {
    #[allow(unused_variables)] // unused without backends
    fn gather_rows(
        rows: FloatTensor<Self>,
        index: IntTensor<Self>,
        inverse: IntTensor<Self>,
    ) -> FloatTensor<Self>;
}

macro_rules! impl_backend {
    ($($feature:literal: $backend:ident,)*) => {$(
        #[cfg(feature = $feature)]
        impl GatherRows for burn::backend::$backend {
            fn gather_rows(
                rows: FloatTensor<Self>,
                index: IntTensor<Self>,
                _: IntTensor<Self>,
            ) -> FloatTensor<Self> {
                Self::float_select(rows, 0, index)
            }
        }
    )*};
}

impl_backend! {
    "flex": Flex,
    "ndarray": NdArray,
    "tch": LibTorch,
    "cube": Cube,
}

impl<B: Backend, C: CheckpointStrategy> GatherRows for Autodiff<B, C> {
    fn gather_rows(
        rows: FloatTensor<Self>,
        index: IntTensor<Self>,
        inverse: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let parents = [rows.node()];
        let rows = rows.into_primitive();
        let [count, _] = rows.shape().dims();
        let output = B::float_select(rows, 0, index);
        record::<B, C, _, 1>(Step(backward::<B>), parents, (inverse, count), output)
    }
}

/// The sum of the gradients of each row's copies.
fn backward<B: Backend>(
    (inverse, rows): (IntTensor<B>, usize),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    let [_, width] = output_grad.shape().dims();
    let [indices] = inverse.shape().dims();
    let copies = B::float_select(output_grad, 0, inverse);
    let copies = B::float_reshape(copies, Shape::from([indices / rows, rows, width]));
    let sum = B::float_sum_dim(copies, 0);
    [B::float_reshape(sum, Shape::from([rows, width]))]
}
