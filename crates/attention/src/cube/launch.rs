//! Buffers, sizes and layouts of kernel launches.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{DeviceProperties, ElemType};
use cubecl::prelude::*;
use cubecl::server::Handle;

pub(crate) fn word_buffer(handle: &Handle) -> BufferArg {
    let length = handle.size() as usize / size_of::<u32>();
    // SAFETY: the length is that of the handle.
    unsafe { BufferArg::from_raw_parts(handle.clone(), length) }
}

pub(crate) fn buffer(tensor: &CubeTensor) -> BufferArg {
    let length = tensor.handle.size() as usize / tensor.dtype.size();
    // SAFETY: the length is that of the handle.
    unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), length) }
}

static LAUNCHES: AtomicUsize = AtomicUsize::new(0);

/// The number of kernels that this process has launched. For tests.
pub fn kernel_launches() -> usize {
    LAUNCHES.load(Ordering::Relaxed)
}

/// The number of cubes of a launch.
pub(crate) fn cube_count([x, y, z]: [usize; 3]) -> CubeCount {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    CubeCount::Static(x as u32, y as u32, z as u32)
}

/// Cubes in a row of a grid: WebGPU's limit.
const MAX_CUBES: usize = 65_535;

/// The cubes for a number of units, each of which knows its [index](unit_index). Any number of units fits.
pub(crate) fn unit_grid(units: usize, per_cube: usize) -> CubeCount {
    let cubes = units.div_ceil(per_cube);
    cube_count([cubes.min(MAX_CUBES), cubes.div_ceil(MAX_CUBES), 1])
}

/// The index of a unit in a [`unit_grid`] with cubes of one dimension. The last ones are beyond the number
/// of units.
#[cube]
pub(crate) fn unit_index() -> usize {
    let cube = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
    cube * CUBE_DIM_X as usize + UNIT_POS_X as usize
}

/// Copies a tensor unless its rows are contiguous.
pub(crate) fn into_contiguous_rows(tensor: CubeTensor) -> CubeTensor {
    if has_contiguous_rows(&tensor) {
        tensor
    } else {
        into_contiguous(tensor)
    }
}

pub(crate) fn has_contiguous_rows(tensor: &CubeTensor) -> bool {
    !tensor.meta.is_tiled() && (tensor.meta.strides()[3] == 1 || tensor.meta.shape()[3] == 1)
}

/// Whether every row is contiguous and aligned to `width` elements.
pub(crate) fn has_aligned_rows(tensor: &CubeTensor, width: usize) -> bool {
    let offset = tensor.handle.offset_start.unwrap_or(0);
    let strides = tensor.meta.strides();
    has_contiguous_rows(tensor)
        && offset.is_multiple_of((width * tensor.dtype.size()) as u64)
        && (0..3).all(|dim| strides[dim].is_multiple_of(width))
}

/// An uninitialised tensor on the device of another.
pub(crate) fn empty_like(tensor: &CubeTensor, dims: [usize; 4], dtype: DType) -> CubeTensor {
    let shape = Shape::from(dims);
    let bytes = shape.num_elements() * dtype.size();
    CubeTensor::new_contiguous(
        tensor.client.clone(),
        tensor.device.clone(),
        shape,
        tensor.client.empty(bytes),
        dtype,
    )
}

/// The element type of a half-precision tensor.
pub(crate) fn half_type(dtype: DType) -> Option<ElemType> {
    match dtype {
        DType::F16 | DType::BF16 => Some(dtype_to_storage_type(dtype)),
        _ => None,
    }
}

pub(crate) fn is_software(properties: &DeviceProperties) -> bool {
    properties.identity.physical.is_none()
}
