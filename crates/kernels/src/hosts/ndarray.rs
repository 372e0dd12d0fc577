//! NdArray.

use std::borrow::Cow;

use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{NdArray, TensorData, TensorMetadata};

use super::{DeviceKernels, Host, Strided, span};

/// What a tensor of these kernels cannot be.
fn refused(tensor: &NdArrayTensor, expected: &str) -> ! {
    panic!("kernels: {expected} expected, got {:?}", tensor.dtype())
}

impl Host for NdArray {
    fn elements(tensor: &NdArrayTensor) -> Cow<'_, [f32]> {
        let NdArrayTensor::F32(elements) = tensor else {
            refused(tensor, "F32")
        };
        let view = elements.view();
        match view.to_slice() {
            Some(elements) => Cow::Borrowed(elements),
            None => Cow::Owned(view.iter().copied().collect()),
        }
    }

    fn strided(tensor: &NdArrayTensor) -> Option<Strided<'_, 4>> {
        let NdArrayTensor::F32(elements) = tensor else {
            return None;
        };
        let view = elements.view();
        let dims = tensor.shape().dims::<4>();
        let (count, strides) = span(dims, view.strides().iter().copied())?;
        // SAFETY: the first element of the tensor and all up to its last are within the
        // memory of its array, which lives as long as the tensor is borrowed. Nothing writes to
        // a tensor that is an input of a kernel.
        let elements = unsafe { std::slice::from_raw_parts(view.as_ptr(), count) };
        Some((elements, strides))
    }

    fn bytes(tensor: &NdArrayTensor) -> Cow<'_, [u8]> {
        let NdArrayTensor::Bool(bools) = tensor else {
            refused(tensor, "a mask")
        };
        Cow::Owned(bools.view().iter().copied().map(u8::from).collect())
    }

    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> NdArrayTensor {
        NdArrayTensor::from_data(TensorData::new(elements, dims.to_vec()))
    }

    fn into_unique(mut tensor: NdArrayTensor) -> NdArrayTensor {
        if let NdArrayTensor::F32(elements) = &mut tensor {
            // Those that came as bytes are taken over, or copied.
            if elements.ensure_owned().is_standard_layout() {
                return tensor;
            }
        }
        Self::from_vec(Self::elements(&tensor).into_owned(), &tensor.shape())
    }

    fn elements_mut(tensor: &mut NdArrayTensor) -> &mut [f32] {
        let NdArrayTensor::F32(elements) = tensor else {
            refused(tensor, "F32")
        };
        let elements = elements.ensure_owned().as_slice_mut();
        elements.expect("a tensor's own elements are contiguous")
    }
}

impl DeviceKernels for NdArray {}
