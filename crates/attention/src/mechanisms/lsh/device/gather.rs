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

#[cfg(feature = "cube")]
use super::cube;
#[cfg(feature = "cube")]
use crate::cube::op::{self, OperationOutput};

/// The rows `index` of `[rows, width]`. Of `inverse`, `[copies, rows]`, column `i` has the indices
/// of row `i` in the result. Other rows of the result must have no gradient.
pub(in crate::mechanisms) fn gather_rows(
    rows: Tensor<2>,
    index: &Tensor<1, Int>,
    inverse: &Tensor<1, Int>,
) -> Tensor<2> {
    let [count] = index.dims();
    let [index, inverse] = [index, inverse].map(|index| index.clone().into_dispatch());
    let gathered = <Dispatch as SumRows>::sum_rows(rows.into_dispatch(), index, inverse, count);
    Tensor::from_dispatch(gathered)
}

#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
trait SumRows: Backend {
    /// `[count, width]`: row `i` is the sum of the rows in column `i` of `index`, `[copies, count]`.
    /// `inverse` is the index of the gradient, where `copies` is one.
    #[allow(unused_variables)] // unused without backends
    fn sum_rows(
        rows: FloatTensor<Self>,
        index: IntTensor<Self>,
        inverse: IntTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self>;
}

macro_rules! impl_backend {
    ($($feature:literal: $backend:ident,)*) => {$(
        #[cfg(feature = $feature)]
        impl SumRows for burn::backend::$backend {
            fn sum_rows(
                rows: FloatTensor<Self>,
                index: IntTensor<Self>,
                _: IntTensor<Self>,
                count: usize,
            ) -> FloatTensor<Self> {
                let [_, width] = rows.shape().dims();
                let [indices] = index.shape().dims();
                let selected = Self::float_select(rows, 0, index);
                if indices == count {
                    return selected;
                }
                let copies = Shape::from([indices / count, count, width]);
                let sum = Self::float_sum_dim(Self::float_reshape(selected, copies), 0);
                Self::float_reshape(sum, Shape::from([count, width]))
            }
        }
    )*};
}

impl_backend! {
    "flex": Flex,
    "ndarray": NdArray,
    "tch": LibTorch,
}

#[cfg(feature = "cube")]
impl SumRows for burn::backend::Cube {
    fn sum_rows(
        rows: FloatTensor<Self>,
        index: IntTensor<Self>,
        _: IntTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self> {
        let [_, width] = rows.shape().dims();
        let outputs = vec![([count, 1, 1, width], rows.dtype())];
        let launch = move |mut inputs: op::OpInputs| {
            vec![cube::sum_rows(inputs.next(), inputs.next(), count)]
        };
        let [sum] =
            op::register("zoo::sum_rows", None, vec![rows, index], outputs, launch).outputs();
        Self::float_reshape(sum, Shape::from([count, width]))
    }
}

impl<B: SumRows, C: CheckpointStrategy> SumRows for Autodiff<B, C> {
    fn sum_rows(
        rows: FloatTensor<Self>,
        index: IntTensor<Self>,
        inverse: IntTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self> {
        let parents = [rows.node()];
        let rows = rows.into_primitive();
        let [parent_rows, _] = rows.shape().dims();
        let state = (inverse.clone(), index.clone(), parent_rows);
        let output = B::sum_rows(rows, index, inverse, count);
        record::<B, C, _, 1>(Step(backward::<B>), parents, state, output)
    }
}

/// The sum of the gradients of each row's copies.
fn backward<B: SumRows>(
    (inverse, index, rows): (IntTensor<B>, IntTensor<B>, usize),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    [B::sum_rows(output_grad, inverse, index, rows)]
}
