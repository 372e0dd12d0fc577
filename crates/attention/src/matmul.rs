//! Matmuls in `f32` on every backend.
//!
//! Burn's `f32` matmuls on `cuda` round their operands to TF32, 11 significant bits, and no option
//! disables that. There, an operand is split into a high part, which TF32 represents exactly, and
//! the rest, and three products are added:
//!
//! ```text
//! a b = a_high b_high + (a_high b_low + a_low b_high) + a_low b_low    the last is below 2⁻²² |a b|
//! ```

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, Tensor};

/// The product of two tensors, with `f32` precision if they are `f32`. Batch dimensions of size 1
/// are broadcast.
pub(crate) fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if autodiff::is_rounded(&lhs) {
        return autodiff::matmul(lhs, rhs);
    }
    lhs.matmul(rhs)
}

/// [`matmul`] of primitive tensors.
pub(crate) fn float_matmul<B: Backend>(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
    if rounds_to_tf32::<B>(&lhs.device(), lhs.dtype()) {
        split_matmul::<B>(lhs, rhs, B::float_matmul)
    } else {
        B::float_matmul(lhs, rhs)
    }
}

/// Whether matmuls of a backend round their operands.
fn rounds_to_tf32<B: Backend>(device: &B::Device, dtype: DType) -> bool {
    dtype == DType::F32 && B::name(device).contains("cubecl<cuda")
}

/// The product of two `f32` tensors, from products that round their operands to TF32.
fn split_matmul<B: Backend>(
    lhs: FloatTensor<B>,
    rhs: FloatTensor<B>,
    product: impl Fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let [lhs_high, lhs_low] = split::<B>(lhs);
    let [rhs_high, rhs_low] = split::<B>(rhs);
    let corrections = B::float_add(
        product(lhs_high.clone(), rhs_low),
        product(lhs_low, rhs_high.clone()),
    );
    B::float_add(product(lhs_high, rhs_high), corrections)
}

/// The 11 high bits of each element, and the rest (Veltkamp's splitting).
fn split<B: Backend>(tensor: FloatTensor<B>) -> [FloatTensor<B>; 2] {
    /// 24 bits less the 11 of TF32.
    const LOW_BITS: i32 = 13;
    // A sum instead of a product by `2^13 + 1`: a compiler would contract that product and the
    // difference below to a fused multiply-add, whose result is the tensor itself.
    let shifted = B::float_mul_scalar(tensor.clone(), 2.0f32.powi(LOW_BITS).into());
    let sum = B::float_add(shifted, tensor.clone());
    let high = B::float_sub(sum.clone(), B::float_sub(sum, tensor.clone()));
    let low = B::float_sub(tensor.clone(), high.clone());
    // Elements that are not finite, or too large to be split.
    let bool_dtype = get_or_init_device_settings::<B>(&tensor.device()).bool_dtype;
    let is_whole = B::float_is_nan(low.clone(), bool_dtype);
    [
        B::float_mask_where(high, is_whole.clone(), tensor),
        B::float_mask_fill(low, is_whole, 0.0f32.into()),
    ]
}

#[cfg(feature = "cube")]
mod autodiff {
    use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
    use burn::backend::{Autodiff, Cube, Dispatch, DispatchTensorKind, backend_extension};
    use zoo_kernels::autodiff::{Step, record};

    use super::*;

    /// A matmul in `f32`. Batch dimensions are equal.
    #[backend_extension(
        Autodiff,
        Cube: cfg(feature = "cube"),
    )]
    pub(super) trait F32Matmul: Backend {
        fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    impl F32Matmul for Cube {
        fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            float_matmul::<Self>(lhs, rhs)
        }
    }

    impl<B: F32Matmul, C: CheckpointStrategy> F32Matmul for Autodiff<B, C> {
        fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            let parents = [lhs.node(), rhs.node()];
            let [lhs, rhs] = [lhs, rhs].map(|tensor| tensor.into_primitive());
            let output = B::f32_matmul(lhs.clone(), rhs.clone());
            record::<B, C, _, 2>(Step(backward::<B>), parents, [lhs, rhs], output)
        }
    }

    /// The gradients of both operands.
    fn backward<B: F32Matmul>(
        [lhs, rhs]: [FloatTensor<B>; 2],
        output_grad: FloatTensor<B>,
    ) -> [FloatTensor<B>; 2] {
        [
            B::f32_matmul(output_grad.clone(), B::float_transpose(rhs)),
            B::f32_matmul(B::float_transpose(lhs), output_grad),
        ]
    }

    /// Whether the matmuls of a tensor's device round it to TF32.
    pub(super) fn is_rounded<const D: usize>(tensor: &Tensor<D>) -> bool {
        fn is_rounded(kind: &DispatchTensorKind, dtype: DType) -> bool {
            match kind {
                DispatchTensorKind::Autodiff(inner) => is_rounded(inner, dtype),
                DispatchTensorKind::Cube(tensor) => rounds_to_tf32::<Cube>(&tensor.device(), dtype),
                #[allow(unreachable_patterns)] // depends on the features
                _ => false,
            }
        }
        is_rounded(&tensor.clone().into_dispatch().kind, tensor.dtype())
    }

    pub(super) fn matmul<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> Tensor<D> {
        let [lhs, rhs] = broadcast(lhs, rhs).map(Tensor::into_dispatch);
        Tensor::from_dispatch(<Dispatch as F32Matmul>::f32_matmul(lhs, rhs))
    }

    /// Expands batch dimensions of size 1; autodiff sums their gradients.
    fn broadcast<const D: usize>(lhs: Tensor<D>, rhs: Tensor<D>) -> [Tensor<D>; 2] {
        let dims = [lhs.dims(), rhs.dims()];
        [lhs, rhs].map(|tensor| {
            let mut size = tensor.dims();
            for dim in 0..D - 2 {
                size[dim] = dims[0][dim].max(dims[1][dim]);
            }
            tensor.expand(size)
        })
    }

    #[cfg(all(test, feature = "flex"))]
    impl F32Matmul for burn::backend::Flex {
        fn f32_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            split_matmul::<Self>(lhs, rhs, |lhs, rhs| {
                <Self as burn::backend::ops::FloatTensorOps<Self>>::float_matmul(lhs, rhs)
            })
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::TensorData;
    use zoo_kernels::random::{mix, unit};

    use super::*;

    fn tensor(elements: Vec<f32>, dims: [usize; 2]) -> FloatTensor<Flex> {
        Flex::float_from_data(TensorData::new(elements, dims), &Default::default())
    }

    fn elements(tensor: FloatTensor<Flex>) -> Vec<f32> {
        let data = burn::tensor::try_read_sync(Flex::float_into_data(tensor));
        let data = data.expect("flex is synchronous").expect("no error");
        data.try_into_vec().expect("f32")
    }

    fn draw(seed: u64, count: usize) -> Vec<f32> {
        let element = |i: u64| unit(mix(mix(seed) ^ i)) as f32 - 0.5;
        (0..count as u64).map(element).collect()
    }

    /// Rounds the operands as tensor cores do, by dropping bits.
    fn tf32_product(lhs: FloatTensor<Flex>, rhs: FloatTensor<Flex>) -> FloatTensor<Flex> {
        let [lhs, rhs] = [lhs, rhs].map(|operand| {
            let dims: [usize; 2] = operand.shape().dims();
            let truncate = |x: f32| f32::from_bits(x.to_bits() & !0x1fff);
            tensor(elements(operand).into_iter().map(truncate).collect(), dims)
        });
        Flex::float_matmul(lhs, rhs)
    }

    #[test]
    fn products_of_split_operands_have_f32_precision() {
        let (rows, inner) = (16, 64);
        let (a, b) = (draw(1, rows * inner), draw(2, rows * inner));
        let exact = |row: usize, column: usize| -> f64 {
            let terms =
                (0..inner).map(|k| f64::from(a[row * inner + k]) * f64::from(b[k * rows + column]));
            terms.sum()
        };
        let error = |product: FloatTensor<Flex>| {
            let product = elements(product).into_iter().enumerate();
            let error = |(i, x): (usize, f32)| (f64::from(x) - exact(i / rows, i % rows)).abs();
            product.map(error).fold(0.0, f64::max)
        };
        let operands = || {
            let lhs = tensor(a.clone(), [rows, inner]);
            (lhs, tensor(b.clone(), [inner, rows]))
        };
        let (lhs, rhs) = operands();
        let rounded = error(tf32_product(lhs, rhs));
        let (lhs, rhs) = operands();
        let split = error(split_matmul::<Flex>(lhs, rhs, tf32_product));
        assert!(
            rounded > 1e-4,
            "the product is not rounded: error {rounded}"
        );
        assert!(split < 2e-6, "error {split}");
    }

    #[test]
    fn large_and_non_finite_elements_are_not_split() {
        for element in [f32::MAX, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1e-45] {
            let [high, low] = split::<Flex>(tensor(vec![element], [1, 1]));
            let sum = elements(high)[0] + elements(low)[0];
            assert_eq!(sum, element);
        }
        let [high, low] = split::<Flex>(tensor(vec![f32::NAN], [1, 1]));
        assert!(elements(high)[0].is_nan());
        assert_eq!(elements(low), [0.0]);
    }

    #[cfg(feature = "cube")]
    #[test]
    fn gradients_are_those_of_a_matmul() {
        use burn::backend::Autodiff;
        use burn::backend::AutodiffBackend;

        type B = Autodiff<Flex>;
        let leaf = |seed, dims: [usize; 2]| {
            let leaf = B::from_inner(tensor(draw(seed, dims[0] * dims[1]), dims));
            B::float_set_require_grad(leaf, true)
        };
        let (lhs, rhs, weights) = (leaf(1, [5, 7]), leaf(2, [7, 4]), leaf(3, [5, 4]));
        let products: [fn(_, _) -> _; 2] =
            [<B as autodiff::F32Matmul>::f32_matmul, B::float_matmul];
        let [own, burn] = products.map(
            |product: fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>| {
                let product = product(lhs.clone(), rhs.clone());
                let loss = B::float_sum(B::float_mul(product, weights.clone()));
                let grads = B::backward(loss);
                [&lhs, &rhs].map(|leaf| elements(B::grad(leaf, &grads).expect("a gradient")))
            },
        );
        for (own, burn) in own.into_iter().flatten().zip(burn.into_iter().flatten()) {
            assert!((own - burn).abs() < 1e-6, "{own} instead of {burn}");
        }
    }
}
