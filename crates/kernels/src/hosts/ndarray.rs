//! [`Host`] for NdArray.

use std::borrow::Cow;

use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{NdArray, TensorData, TensorMetadata};
use burn::tensor::bf16;

use super::{DeviceKernels, Host, Strided, span};

fn unexpected_dtype(tensor: &NdArrayTensor, expected: &str) -> ! {
    panic!("kernels: expected {expected}, got {:?}", tensor.dtype())
}

impl Host for NdArray {
    fn elements(tensor: &NdArrayTensor) -> Cow<'_, [f32]> {
        let NdArrayTensor::F32(elements) = tensor else {
            unexpected_dtype(tensor, "F32")
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
        // SAFETY: everything from the first element to the last is within the array's memory, which
        // outlives the borrow of the tensor. Nothing writes to the inputs of a kernel.
        let elements = unsafe { std::slice::from_raw_parts(view.as_ptr(), count) };
        Some((elements, strides))
    }

    fn bf16_elements(tensor: &NdArrayTensor) -> Cow<'_, [bf16]> {
        unexpected_dtype(tensor, "BF16, which NdArray does not have")
    }

    fn bf16_strided(tensor: &NdArrayTensor) -> Option<Strided<'_, 4, bf16>> {
        unexpected_dtype(tensor, "BF16, which NdArray does not have")
    }

    fn from_bf16(_: Vec<bf16>, _: &[usize]) -> NdArrayTensor {
        unreachable!("NdArray does not have BF16")
    }

    fn bytes(tensor: &NdArrayTensor) -> Cow<'_, [u8]> {
        let NdArrayTensor::Bool(bools) = tensor else {
            unexpected_dtype(tensor, "a bool tensor")
        };
        Cow::Owned(bools.view().iter().copied().map(u8::from).collect())
    }

    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> NdArrayTensor {
        NdArrayTensor::from_data(TensorData::new(elements, dims.to_vec()))
    }

    fn into_unique(mut tensor: NdArrayTensor) -> NdArrayTensor {
        if let NdArrayTensor::F32(elements) = &mut tensor {
            // Borrowed bytes are copied here.
            if elements.ensure_owned().is_standard_layout() {
                return tensor;
            }
        }
        Self::from_vec(Self::elements(&tensor).into_owned(), &tensor.shape())
    }

    fn elements_mut(tensor: &mut NdArrayTensor) -> &mut [f32] {
        let NdArrayTensor::F32(elements) = tensor else {
            unexpected_dtype(tensor, "F32")
        };
        let elements = elements.ensure_owned().as_slice_mut();
        elements.expect("a tensor's own elements are contiguous")
    }
}

impl DeviceKernels for NdArray {}
