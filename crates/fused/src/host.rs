//! Backends whose tensors are numbers in the host's memory: they all compute with the same
//! bodies, on the tensors' own memory.

use std::borrow::Cow;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::adam::Step;

/// A backend whose tensors can be read, made and written over as slices of `f32`.
pub(crate) trait Host: Backend {
    /// The numbers of a tensor, row by row; copied only if they do not lie so.
    fn numbers(tensor: &FloatTensor<Self>) -> Cow<'_, [f32]>;
    /// A tensor to be filled, with whatever numbers are there.
    fn room(dims: &[usize]) -> FloatTensor<Self>;
    /// A tensor of the same numbers whose memory is its own, row by row: the tensor itself
    /// if nobody else looks at it.
    fn own(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
    /// The numbers of a tensor that came from [`room`](Self::room) or [`own`](Self::own).
    fn slice(tensor: &mut FloatTensor<Self>) -> &mut [f32];

    /// Whether a tensor is in the host's memory. Where a backend has others, some ops have a
    /// body for them: those below.
    fn is_here(_tensor: &FloatTensor<Self>) -> bool {
        true
    }
    /// A step of Adam: the parameter and both moments after it.
    fn adam_elsewhere(
        _tensor: FloatTensor<Self>,
        _gradient: FloatTensor<Self>,
        _first: FloatTensor<Self>,
        _second: FloatTensor<Self>,
        _step: Step,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in the host's memory")
    }
    /// The norm of `[.., width]`, and the mean and the factor of each row.
    fn layer_norm_elsewhere(
        _input: &FloatTensor<Self>,
        _gamma: &FloatTensor<Self>,
        _beta: &FloatTensor<Self>,
        _epsilon: f64,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in the host's memory")
    }
    /// The gradients by input, gamma and beta.
    fn layer_norm_backward_elsewhere(
        _input: &FloatTensor<Self>,
        _gamma: &FloatTensor<Self>,
        _rows: &[FloatTensor<Self>; 2],
        _arrived: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        unreachable!("all tensors of this backend are in the host's memory")
    }
}

#[cfg(feature = "flex")]
mod flex {
    use burn::backend::flex::FlexTensor;
    use burn::backend::{Flex, TensorData};
    use burn::tensor::{DType, Shape};

    use super::*;

    impl Host for Flex {
        fn numbers(tensor: &FlexTensor) -> Cow<'_, [f32]> {
            match tensor.as_slice() {
                Some(numbers) => Cow::Borrowed(numbers),
                None => Cow::Owned(tensor.to_contiguous().storage().to_vec()),
            }
        }

        fn room(dims: &[usize]) -> FlexTensor {
            FlexTensor::empty(Shape::from(dims.to_vec()), DType::F32)
        }

        fn own(tensor: FlexTensor) -> FlexTensor {
            let whole = tensor.storage::<f32>().len();
            let is_whole = tensor.as_slice::<f32>().map(<[f32]>::len) == Some(whole);
            if is_whole && tensor.is_unique() {
                return tensor;
            }
            let shape = tensor.layout().shape().clone();
            let numbers = Self::numbers(&tensor).into_owned();
            FlexTensor::from_data(TensorData::new(numbers, shape))
        }

        fn slice(tensor: &mut FlexTensor) -> &mut [f32] {
            tensor.storage_mut()
        }
    }
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray; we carry it.
mod ndarray {
    use burn::backend::ndarray::NdArrayTensor;
    use burn::backend::{NdArray, TensorData, TensorMetadata};

    use super::*;

    impl Host for NdArray {
        fn numbers(tensor: &NdArrayTensor) -> Cow<'_, [f32]> {
            let NdArrayTensor::F32(numbers) = tensor else {
                panic!("fused: {:?} tensors cannot be here", tensor.dtype())
            };
            let view = numbers.view();
            match view.to_slice() {
                Some(numbers) => Cow::Borrowed(numbers),
                None => Cow::Owned(view.iter().copied().collect()),
            }
        }

        fn room(dims: &[usize]) -> NdArrayTensor {
            let numbers = vec![0.0_f32; dims.iter().product()];
            Self::own(NdArrayTensor::from_data(TensorData::new(
                numbers,
                dims.to_vec(),
            )))
        }

        fn own(mut tensor: NdArrayTensor) -> NdArrayTensor {
            if let NdArrayTensor::F32(numbers) = &mut tensor {
                // Those that came as bytes are taken over, or copied.
                if numbers.ensure_owned().is_standard_layout() {
                    return tensor;
                }
            }
            let shape = tensor.shape();
            let numbers = Self::numbers(&tensor).into_owned();
            Self::own(NdArrayTensor::from_data(TensorData::new(numbers, shape)))
        }

        fn slice(tensor: &mut NdArrayTensor) -> &mut [f32] {
            let NdArrayTensor::F32(numbers) = tensor else {
                panic!("fused: only f32 tensors can be here")
            };
            let numbers = numbers.ensure_owned().as_slice_mut();
            numbers.expect("a tensor's own numbers lie row by row")
        }
    }
}

#[cfg(feature = "tch")]
#[allow(deprecated)] // Burn 0.22 is the last to carry LibTorch; we carry it.
mod libtorch {
    use burn::backend::LibTorch;
    use burn::backend::libtorch::TchTensor;
    use tch::{Device, Kind, Tensor};

    use super::*;
    use crate::cuda;

    /// What a tensor of these ops cannot be.
    fn refused<T>(error: zoo_aten::Error) -> T {
        panic!("fused: {error}")
    }

    impl Host for LibTorch {
        fn numbers(tensor: &TchTensor) -> Cow<'_, [f32]> {
            // SAFETY: nothing writes to a tensor that others look at.
            unsafe { zoo_aten::host_slice(&tensor.tensor) }.unwrap_or_else(refused)
        }

        fn room(dims: &[usize]) -> TchTensor {
            let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
            TchTensor::new(Tensor::empty(dims.as_slice(), (Kind::Float, Device::Cpu)))
        }

        fn own(tensor: TchTensor) -> TchTensor {
            if tensor.can_mut() && tensor.tensor.is_contiguous() {
                return tensor;
            }
            let mut copy = tensor.tensor.empty_like();
            if !copy.is_contiguous() {
                copy = copy.contiguous();
            }
            copy.copy_(&tensor.tensor);
            TchTensor::new(copy)
        }

        fn slice(tensor: &mut TchTensor) -> &mut [f32] {
            // SAFETY: this tensor alone looks at its memory: it was just made, or nobody else
            // had it.
            unsafe { zoo_aten::host_slice_mut(&mut tensor.tensor) }.unwrap_or_else(refused)
        }

        fn is_here(tensor: &TchTensor) -> bool {
            tensor.tensor.device() == Device::Cpu
        }

        fn adam_elsewhere(
            tensor: TchTensor,
            gradient: TchTensor,
            first: TchTensor,
            second: TchTensor,
            step: Step,
        ) -> [TchTensor; 3] {
            let mut moved = [tensor, first, second].map(Self::own);
            let [tensor, first, second] = &mut moved;
            cuda::adam_step(
                &mut tensor.tensor,
                &gradient.tensor.contiguous(),
                [&mut first.tensor, &mut second.tensor],
                step.asked,
            );
            moved
        }

        fn layer_norm_elsewhere(
            input: &TchTensor,
            gamma: &TchTensor,
            beta: &TchTensor,
            epsilon: f64,
        ) -> [TchTensor; 3] {
            let tensors = [&input.tensor, &gamma.tensor, &beta.tensor];
            cuda::layer_norm(tensors, epsilon).map(TchTensor::new)
        }

        fn layer_norm_backward_elsewhere(
            input: &TchTensor,
            gamma: &TchTensor,
            rows: &[TchTensor; 2],
            arrived: TchTensor,
        ) -> [TchTensor; 3] {
            let rows = rows.each_ref().map(|rows| &rows.tensor);
            let tensors = [&input.tensor, &gamma.tensor, &arrived.tensor];
            cuda::layer_norm_backward(tensors, rows).map(TchTensor::new)
        }
    }
}
