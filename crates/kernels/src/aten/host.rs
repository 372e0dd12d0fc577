//! Host memory of tensors as slices.

use std::borrow::Cow;
use std::ptr;

use tch::Tensor;

use crate::hosts::{HostElement, Strided, span};

use super::{Error, call, check, zoo_aten_host_data, zoo_aten_meta};

/// The data pointer (null if the tensor is empty), and whether the elements are contiguous.
fn data<T: HostElement>(tensor: &Tensor) -> Result<(*mut T, bool), Error> {
    let (mut data, mut is_contiguous) = (ptr::null_mut(), false);
    // SAFETY: the tensor outlives the call, and both results are writable.
    let message =
        unsafe { zoo_aten_host_data(&mut data, &mut is_contiguous, tensor.as_ptr(), T::IS_BF16) };
    check("access to host memory", message)?;
    Ok((data.cast(), is_contiguous))
}

/// The elements of a tensor on the CPU in row-major order, copied only if they are not
/// contiguous.
///
/// # Errors
///
/// If the tensor is on another device, or of another dtype or layout.
///
/// # Safety
///
/// The tensor's memory is not written, through this or another tensor, while the slice is in use.
pub unsafe fn host_slice<T: HostElement>(tensor: &Tensor) -> Result<Cow<'_, [T]>, Error> {
    let (data, is_contiguous) = data::<T>(tensor)?;
    let count = tensor.numel();
    if data.is_null() {
        return Ok(Cow::Borrowed(&[]));
    }
    if is_contiguous {
        // SAFETY: `count` contiguous elements in host memory, owned by the borrowed tensor; the caller
        // guarantees that nothing writes to them.
        let elements = unsafe { std::slice::from_raw_parts(data.cast_const(), count) };
        return Ok(Cow::Borrowed(elements));
    }
    let contiguous = tensor.contiguous();
    let (data, _) = self::data::<T>(&contiguous)?;
    // SAFETY: as above; nothing else accesses this tensor.
    let elements = unsafe { std::slice::from_raw_parts(data.cast_const(), count) };
    Ok(Cow::Owned(elements.to_vec()))
}

/// The elements of a contiguous `f32` tensor on the CPU, mutable.
///
/// # Errors
///
/// If the tensor is on another device, of another dtype or layout, or not contiguous.
///
/// # Safety
///
/// No other tensor over the same memory is used while the slice is in use.
pub unsafe fn host_slice_mut(tensor: &mut Tensor) -> Result<&mut [f32], Error> {
    let (data, is_contiguous) = data::<f32>(tensor)?;
    if data.is_null() {
        return Ok(&mut []);
    }
    if !is_contiguous {
        return Err(Error {
            op: "access to host memory",
            message: format!(
                "a mutable slice needs a contiguous tensor, got {:?} with strides {:?}",
                tensor.size(),
                tensor.stride()
            ),
        });
    }
    // SAFETY: contiguous f32 in host memory, owned by the borrowed tensor; the caller guarantees
    // exclusive access. Any bits are a valid f32.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, tensor.numel()) })
}

/// The memory of a tensor on the CPU from its first element to its last, and the strides of
/// its `D` dimensions; `None` if a stride is negative.
///
/// # Errors
///
/// If the tensor is on another device, of another dtype or layout, or does not have `D` dimensions.
///
/// # Safety
///
/// As for [`host_slice`].
pub unsafe fn host_strided<const D: usize, T: HostElement>(
    tensor: &Tensor,
) -> Result<Option<Strided<'_, D, T>>, Error> {
    let (data, _) = data::<T>(tensor)?;
    let (sizes, signed) = (tensor.size(), tensor.stride());
    if sizes.len() != D {
        return Err(Error {
            op: "access to host memory",
            message: format!("expected {D} dimensions, got {sizes:?}"),
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
    // SAFETY: as in `host_slice`; everything up to the last element is within the tensor's memory.
    let elements = unsafe { std::slice::from_raw_parts(data.cast_const(), count) };
    Ok(Some((elements, strides)))
}

/// An `f32` tensor on LibTorch's meta device (`Mps` in tch), which has no memory: in tests, a
/// tensor on another device.
///
/// # Panics
///
/// If LibTorch cannot create it.
#[doc(hidden)]
pub fn meta(dims: &[i64]) -> Tensor {
    // SAFETY: the pointer and length are those of `dims`, and out holds one tensor.
    let result = call("meta tensor", |out| unsafe {
        zoo_aten_meta(out, dims.as_ptr(), dims.len())
    });
    let [tensor] = result.unwrap_or_else(|error| panic!("{error}"));
    tensor
}
