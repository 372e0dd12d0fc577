//! Access to the memory of host backends, which share the CPU kernels.
//!
//! Each backend has a file here. Burn 0.22 is the last release with NdArray and LibTorch; to remove
//! them, delete:
//!
//! - `ndarray.rs`, `libtorch.rs`, the folders `aten` and `zoo-attention`'s `flash/libtorch`, and
//!   `build.rs`;
//! - the features `ndarray` and `tch` and the code behind them: the lines of that name in the
//!   `backend_extension` lists, here, in `location`, and in `zoo-attention`'s `flash`;
//! - `DeviceKernels`, whose only non-empty implementation is LibTorch's.

#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "tch")]
#[allow(deprecated)] // Burn 0.22 is the last release with LibTorch
mod libtorch;
#[allow(deprecated)] // as above, and NdArray
pub mod location;
#[cfg(feature = "ndarray")]
#[allow(deprecated)] // as above
mod ndarray;

use std::borrow::Cow;

use burn::backend::Backend;
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::tensor::bf16;

use crate::adam::Step;
use crate::cpu::Float;
use crate::cpu::gemm::{Finish, Matrix, gemm};

/// Elements, and the stride of each dimension.
pub type Strided<'a, const D: usize, T = f32> = (&'a [T], [usize; D]);

/// A dtype of tensors that kernels read: `f32` or bf16.
pub trait HostElement: Float + Send + Sync {
    /// Whether it is bf16.
    const IS_BF16: bool;

    /// As [`Host::elements`].
    fn elements<B: Host>(tensor: &FloatTensor<B>) -> Cow<'_, [Self]>;

    /// As [`Host::strided`].
    fn strided<B: Host>(tensor: &FloatTensor<B>) -> Option<Strided<'_, 4, Self>>;
}

impl HostElement for f32 {
    const IS_BF16: bool = false;

    fn elements<B: Host>(tensor: &FloatTensor<B>) -> Cow<'_, [Self]> {
        B::elements(tensor)
    }

    fn strided<B: Host>(tensor: &FloatTensor<B>) -> Option<Strided<'_, 4>> {
        B::strided(tensor)
    }
}

impl HostElement for bf16 {
    const IS_BF16: bool = true;

    fn elements<B: Host>(tensor: &FloatTensor<B>) -> Cow<'_, [Self]> {
        B::bf16_elements(tensor)
    }

    fn strided<B: Host>(tensor: &FloatTensor<B>) -> Option<Strided<'_, 4, Self>> {
        B::bf16_strided(tensor)
    }
}

/// A backend whose tensors can be accessed as slices. Functions that do not name a dtype are for `f32`.
pub trait Host: Backend {
    /// The elements of a tensor in row-major order, copied only if they are not contiguous.
    fn elements(tensor: &FloatTensor<Self>) -> Cow<'_, [f32]>;

    /// The memory of a tensor from its first element to its last, and the strides; `None` if a
    /// stride is negative or unknown.
    fn strided(tensor: &FloatTensor<Self>) -> Option<Strided<'_, 4>>;

    /// [`elements`](Self::elements) of a bf16 tensor.
    fn bf16_elements(tensor: &FloatTensor<Self>) -> Cow<'_, [bf16]>;

    /// [`strided`](Self::strided) of a bf16 tensor.
    fn bf16_strided(tensor: &FloatTensor<Self>) -> Option<Strided<'_, 4, bf16>>;

    /// [`from_vec`](Self::from_vec) for a bf16 tensor.
    fn from_bf16(elements: Vec<bf16>, dims: &[usize]) -> FloatTensor<Self>;

    /// A bool tensor as bytes, zero for false, in row-major order.
    fn bytes(tensor: &BoolTensor<Self>) -> Cow<'_, [u8]>;

    /// Creates a tensor from its elements.
    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> FloatTensor<Self>;

    /// Creates a writable tensor with unspecified elements.
    fn empty(dims: &[usize]) -> FloatTensor<Self> {
        Self::from_vec(vec![0.0; dims.iter().product()], dims)
    }

    /// Makes a tensor contiguous and the only owner of its memory, copying it if necessary.
    fn into_unique(tensor: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The elements of a tensor from [`empty`](Self::empty) or [`into_unique`](Self::into_unique).
    fn elements_mut(tensor: &mut FloatTensor<Self>) -> &mut [f32];

    /// The product of matrices `[rows, inner]` and `[inner, columns]`, each given as a tensor with
    /// its elements and whether they are those of the transpose. The output has this shape.
    fn matmul(
        size: [usize; 3],
        a: (&FloatTensor<Self>, bool),
        b: (&FloatTensor<Self>, bool),
        shape: &[usize],
        finish: Finish<'_>,
    ) -> FloatTensor<Self> {
        host_matmul::<Self>(size, a, b, shape, finish)
    }

    /// Whether a tensor is in host memory.
    fn is_on_host(_tensor: &FloatTensor<Self>) -> bool {
        true
    }
}

/// [`Host::matmul`] by the CPU kernels.
fn host_matmul<B: Host>(
    size: [usize; 3],
    (a, a_is_transposed): (&FloatTensor<B>, bool),
    (b, b_is_transposed): (&FloatTensor<B>, bool),
    shape: &[usize],
    finish: Finish<'_>,
) -> FloatTensor<B> {
    let [rows, inner, columns] = size;
    let (a, b) = (B::elements(a), B::elements(b));
    let a = Matrix::new(&a, [rows, inner], a_is_transposed);
    let b = Matrix::new(&b, [inner, columns], b_is_transposed);
    B::from_vec(gemm(size, a, b, finish), shape)
}

/// Kernels for tensors of a [`Host`] backend that are not in host memory.
pub(crate) trait DeviceKernels: Host {
    /// Adam step of a parameter and its moments.
    fn adam(
        _tensors: [FloatTensor<Self>; 3],
        _gradient: FloatTensor<Self>,
        _step: Step,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in host memory")
    }

    /// Layer norm of `[.., width]`, and the mean and reciprocal standard deviation of each row.
    fn device_layer_norm(
        _input: &FloatTensor<Self>,
        _gamma: &FloatTensor<Self>,
        _beta: &FloatTensor<Self>,
        _epsilon: f64,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in host memory")
    }

    /// The gradients of input, gamma and beta.
    fn device_layer_norm_backward(
        _input: &FloatTensor<Self>,
        _gamma: &FloatTensor<Self>,
        _stats: &[FloatTensor<Self>; 2],
        _output_grad: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in host memory")
    }
}

/// The number of elements from the first to the last, and the strides; `None` if one is negative.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
pub(crate) fn span<const D: usize>(
    dims: impl IntoIterator<Item = usize>,
    signed: impl IntoIterator<Item = isize>,
) -> Option<(usize, [usize; D])> {
    let mut strides = [0; D];
    for (to, stride) in strides.iter_mut().zip(signed) {
        *to = usize::try_from(stride).ok()?;
    }
    let steps = dims.into_iter().zip(strides);
    let last: usize = steps.map(|(dim, stride)| (dim - 1) * stride).sum();
    Some((last + 1, strides))
}
