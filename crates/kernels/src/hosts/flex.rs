//! [`Host`] for Flex.

use std::borrow::Cow;

use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, TensorData, TensorMetadata};
use burn::tensor::bf16;

use super::{DeviceKernels, Host, Strided, span};

/// [`Host::elements`] for any dtype.
macro_rules! elements {
    ($tensor:expr) => {
        match $tensor.as_slice() {
            Some(elements) => Cow::Borrowed(elements),
            None => Cow::Owned($tensor.to_contiguous().storage().to_vec()),
        }
    };
}

/// [`Host::strided`] for any dtype.
macro_rules! strided {
    ($tensor:expr) => {{
        let layout = $tensor.layout();
        let dims = $tensor.shape().dims::<4>();
        let (count, strides) = span(dims, layout.strides().iter().copied())?;
        let elements = $tensor.storage().get(layout.start_offset()..)?;
        Some((elements.get(..count)?, strides))
    }};
}

impl Host for Flex {
    fn elements(tensor: &FlexTensor) -> Cow<'_, [f32]> {
        elements!(tensor)
    }

    fn strided(tensor: &FlexTensor) -> Option<Strided<'_, 4>> {
        strided!(tensor)
    }

    fn bf16_elements(tensor: &FlexTensor) -> Cow<'_, [bf16]> {
        elements!(tensor)
    }

    fn bf16_strided(tensor: &FlexTensor) -> Option<Strided<'_, 4, bf16>> {
        strided!(tensor)
    }

    fn from_bf16(elements: Vec<bf16>, dims: &[usize]) -> FlexTensor {
        FlexTensor::from_data(TensorData::new(elements, dims.to_vec()))
    }

    fn bytes(tensor: &FlexTensor) -> Cow<'_, [u8]> {
        // Bools are stored as bytes for all of Flex's bool dtypes.
        Cow::Owned(tensor.to_contiguous().storage::<u8>().to_vec())
    }

    fn from_vec(elements: Vec<f32>, dims: &[usize]) -> FlexTensor {
        FlexTensor::from_data(TensorData::new(elements, dims.to_vec()))
    }

    fn into_unique(tensor: FlexTensor) -> FlexTensor {
        let whole = tensor.storage::<f32>().len();
        let is_whole = tensor.as_slice::<f32>().map(<[f32]>::len) == Some(whole);
        if is_whole && tensor.is_unique() {
            return tensor;
        }
        Self::from_vec(Self::elements(&tensor).into_owned(), &tensor.shape())
    }

    fn elements_mut(tensor: &mut FlexTensor) -> &mut [f32] {
        tensor.storage_mut()
    }
}

impl DeviceKernels for Flex {}
