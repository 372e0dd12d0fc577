//! Backends whose tensors lie in host memory, or may: they all compute with the same kernels, on
//! the tensors' own memory.
//!
//! Each backend is a file here. Burn 0.22 is the last release with NdArray and LibTorch; without
//! them, delete:
//!
//! - `ndarray.rs`, `libtorch.rs`, the folders `aten` and `zoo-attention`'s `flash/libtorch`, and
//!   `build.rs`;
//! - the features `ndarray` and `tch` with what is behind them: the lines of that name in the
//!   `backend_extension` lists, here, in `location`, and in `zoo-attention`'s `flash`;
//! - `DeviceKernels`, whose one implementation that is not empty is LibTorch's.

#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "tch")]
#[allow(deprecated)] // Burn 0.22 is the last to carry LibTorch; we carry it.
mod libtorch;
#[allow(deprecated)] // as above, and NdArray
pub(crate) mod location;
#[cfg(feature = "ndarray")]
#[allow(deprecated)] // as above
mod ndarray;

use std::borrow::Cow;

use burn::backend::Backend;
use burn::backend::tensor::{BoolTensor, FloatTensor};

use crate::adam::Step;

/// Elements, and the strides between neighbours along each dimension.
pub type Strided<'a, const D: usize> = (&'a [f32], [usize; D]);

/// A backend whose tensors can be read, made and written to as slices of `f32`.
pub trait Host: Backend {
    /// The elements of a tensor in row-major order, copied only if they are not contiguous.
    fn elements(tensor: &FloatTensor<Self>) -> Cow<'_, [f32]>;

    /// All elements from the first of a tensor to its last, and the strides between neighbours;
    /// `None` where a stride is negative or not known.
    fn strided(tensor: &FloatTensor<Self>) -> Option<Strided<'_, 4>>;

    /// A bool tensor as bytes, zero for false, in row-major order.
    fn bytes(tensor: &BoolTensor<Self>) -> Cow<'_, [u8]>;

    /// A tensor of these elements.
    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> FloatTensor<Self>;

    /// A tensor to be written to, with arbitrary elements.
    fn empty(dims: &[usize]) -> FloatTensor<Self> {
        Self::from_vec(vec![0.0; dims.iter().product()], dims)
    }

    /// A contiguous tensor of the same elements whose memory nobody else has: the tensor itself
    /// if that is so.
    fn into_unique(tensor: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The elements of a tensor that came from [`empty`](Self::empty) or
    /// [`into_unique`](Self::into_unique).
    fn elements_mut(tensor: &mut FloatTensor<Self>) -> &mut [f32];

    /// Whether a tensor is in host memory.
    fn is_on_host(_tensor: &FloatTensor<Self>) -> bool {
        true
    }
}

/// Kernels for tensors of a [`Host`] backend that are not in host memory.
pub(crate) trait DeviceKernels: Host {
    /// A step of Adam: the parameter and both moments after it.
    fn adam(
        _tensors: [FloatTensor<Self>; 3],
        _gradient: FloatTensor<Self>,
        _step: Step,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in host memory")
    }

    /// The norm of `[.., width]`, and the mean and the factor of each row.
    fn norm(
        _input: &FloatTensor<Self>,
        _gamma: &FloatTensor<Self>,
        _beta: &FloatTensor<Self>,
        _epsilon: f64,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in host memory")
    }

    /// The gradients by input, gamma and beta.
    fn norm_backward(
        _input: &FloatTensor<Self>,
        _gamma: &FloatTensor<Self>,
        _rows: &[FloatTensor<Self>; 2],
        _arrived: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in host memory")
    }
}

/// Strides that are not negative, and how many elements there are from the first to the last.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
pub(crate) fn span<const D: usize>(
    dims: impl IntoIterator<Item = usize>,
    signed: impl IntoIterator<Item = isize>,
) -> Option<(usize, [usize; D])> {
    let mut strides = [0; D];
    for (into, stride) in strides.iter_mut().zip(signed) {
        *into = usize::try_from(stride).ok()?;
    }
    let steps = dims.into_iter().zip(strides);
    let last: usize = steps.map(|(dim, stride)| (dim - 1) * stride).sum();
    Some((last + 1, strides))
}
