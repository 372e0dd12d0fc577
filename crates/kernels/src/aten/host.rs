//! The elements of tensors in the host's memory.

use std::borrow::Cow;
use std::ptr;

use tch::Tensor;

use crate::hosts::{Strided, span};

use super::{Error, check, made, zoo_aten_host_data, zoo_aten_meta};

/// Where the elements are, if there are any, and whether they are contiguous.
fn data(tensor: &Tensor) -> Result<(*mut f32, bool), Error> {
    let (mut data, mut is_contiguous) = (ptr::null_mut(), false);
    // SAFETY: a tensor that lives through the call, and memory for both results.
    let message = unsafe { zoo_aten_host_data(&mut data, &mut is_contiguous, tensor.as_ptr()) };
    check("access to host memory", message)?;
    Ok((data, is_contiguous))
}

/// The elements of an `f32` tensor on the CPU in row-major order, copied only if they are not
/// contiguous.
///
/// # Errors
///
/// If the tensor is on another device, or of another dtype or layout.
///
/// # Safety
///
/// Nothing writes to the tensor's memory, through whichever tensor, as long as the slice is used.
pub unsafe fn host_slice(tensor: &Tensor) -> Result<Cow<'_, [f32]>, Error> {
    let (data, is_contiguous) = data(tensor)?;
    let count = tensor.numel();
    if data.is_null() {
        return Ok(Cow::Borrowed(&[]));
    }
    if is_contiguous {
        // SAFETY: so many contiguous f32 in the host's memory, owned by a tensor that is borrowed
        // as long; the caller sees to it that nothing writes there.
        let elements = unsafe { std::slice::from_raw_parts(data.cast_const(), count) };
        return Ok(Cow::Borrowed(elements));
    }
    let mut elements = vec![0.0; count];
    tensor.contiguous().copy_data(&mut elements, count);
    Ok(Cow::Owned(elements))
}

/// The elements of a contiguous `f32` tensor on the CPU, to be written to.
///
/// # Errors
///
/// If the tensor is on another device, of another dtype or layout, or not contiguous.
///
/// # Safety
///
/// No other tensor over the same memory is used as long as the slice is.
pub unsafe fn host_slice_mut(tensor: &mut Tensor) -> Result<&mut [f32], Error> {
    let (data, is_contiguous) = data(tensor)?;
    if data.is_null() {
        return Ok(&mut []);
    }
    if !is_contiguous {
        return Err(Error {
            op: "access to host memory",
            message: format!(
                "a tensor that is written to must be contiguous, got {:?} with strides {:?}",
                tensor.size(),
                tensor.stride()
            ),
        });
    }
    // SAFETY: so many contiguous f32 in the host's memory, owned by a tensor that is borrowed as
    // long; the caller sees to it that nobody else uses them. Any bits are an f32.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, tensor.numel()) })
}

/// All elements from the first of an `f32` tensor on the CPU to its last, and the strides between
/// neighbours along each of its `D` dimensions; `None` if a stride is negative.
///
/// # Errors
///
/// If the tensor is on another device, of another dtype or layout, or has not `D` dimensions.
///
/// # Safety
///
/// As for [`host_slice`].
pub unsafe fn host_strided<const D: usize>(
    tensor: &Tensor,
) -> Result<Option<Strided<'_, D>>, Error> {
    let (data, _) = data(tensor)?;
    let (sizes, signed) = (tensor.size(), tensor.stride());
    if sizes.len() != D {
        return Err(Error {
            op: "access to host memory",
            message: format!("{D} dimensions were expected, got {sizes:?}"),
        });
    }
    let dims = sizes.iter().map(|size| (*size as usize).max(1));
    let Some((count, strides)) = span(dims, signed.into_iter().map(|stride| stride as isize))
    else {
        return Ok(None);
    };
    if data.is_null() {
        return Ok(Some((&[], strides)));
    }
    // SAFETY: as in `host_slice`; all up to its last element is within the tensor's memory.
    let elements = unsafe { std::slice::from_raw_parts(data.cast_const(), count) };
    Ok(Some((elements, strides)))
}

/// An `f32` tensor without memory, on LibTorch's meta device. tch calls that device `Mps`. Here
/// only for tests: a tensor of another device, on a machine that has none.
///
/// # Panics
///
/// If LibTorch cannot make it.
#[doc(hidden)]
pub fn meta(dims: &[i64]) -> Tensor {
    // SAFETY: as many dimensions as are counted, and memory for one tensor.
    let made = made("meta tensor", |out| unsafe {
        zoo_aten_meta(out, dims.as_ptr(), dims.len())
    });
    let [tensor] = made.unwrap_or_else(|error| panic!("{error}"));
    tensor
}
