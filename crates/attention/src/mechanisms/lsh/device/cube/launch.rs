//! Kernel launches.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::CubeDevice;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::{ElemType, UIntKind};
use cubecl::prelude::*;

use super::kernels::{
    CountTable, MASK_UNITS, MaskKind, PatternArgsLaunch, SizesLaunch, attend_to_self,
    sort_by_digit, write_indices, write_masks,
};
use super::{Rules, Sizes};
use crate::cube::launch::{buffer, cube_count, empty_like};
use crate::cube::rows::BroadcastStridesLaunch;

/// Values of a digit whose counts fit into shared memory.
const MAX_BASE: usize = 256;

/// Rounds whose chunks fit into shared memory.
const MAX_ROUNDS: usize = 64;

/// Units per cube of the kernels without shared memory.
const UNITS: u32 = 64;

pub(super) struct LayoutInputs {
    pub(super) hashes: CubeTensor,
    /// Any tensor if there are no key lengths.
    pub(super) lengths: CubeTensor,
    pub(super) mask: Option<CubeTensor>,
}

/// Whether a device has the limits for a layout.
pub(crate) fn is_supported(device: &CubeDevice, sizes: &Sizes) -> bool {
    if sizes.base > MAX_BASE || sizes.rounds > MAX_ROUNDS {
        return false;
    }
    let client = device.client();
    let properties = client.properties();
    let hardware = &properties.hardware;
    let table = CountTable::new(sizes.base);
    let units = table.units.max(MASK_UNITS);
    let (max_x, max_y, max_z) = hardware.max_cube_count;
    let max_row = (sizes.seq.div_ceil(UNITS as usize)).max(sizes.chunks.count);
    let mask = sizes.mask_dims().map(|size| size as u64);
    let mask: u64 = mask.into_iter().product();
    table.shared_bytes() <= hardware.max_shared_memory_size
        && units <= hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize
        && max_row <= max_x as usize
        && sizes.heads <= max_y as usize
        && sizes.rounds * sizes.batch <= max_z as usize
        // Elements of a mask may have four bytes, and indices have 31 bits.
        && mask <= i32::MAX as u64
        && mask * 4 <= properties.memory.max_page_size
}

/// Computes the tensors of a layout, which have these dimensions and types.
pub(super) fn launch(
    inputs: LayoutInputs,
    outputs: &[([usize; 4], DType)],
    rules: Rules,
    sizes: &Sizes,
) -> Vec<CubeTensor> {
    let hashes = into_contiguous(inputs.hashes);
    let lengths = into_contiguous(inputs.lengths);
    let order = sort(&hashes, sizes);
    let tensors: Vec<CubeTensor> = outputs
        .iter()
        .map(|(dims, dtype)| empty_like(&hashes, *dims, *dtype))
        .collect();
    let [query_rows, query_slots, key_rows, key_slots, mask] = tensors.as_slice() else {
        panic!(
            "lsh attention: a layout has five tensors, got {}",
            tensors.len()
        );
    };
    let (client, int) = (&hashes.client, dtype_to_storage_type(hashes.dtype));
    let slots = sizes.chunks.count * sizes.chunks.size;
    let of_rounds = sizes.rounds * sizes.batch;
    // SAFETY: the kernels access the tensors within the sizes passed to them.
    unsafe {
        write_indices::launch_unchecked(
            client,
            cube_count([slots.div_ceil(UNITS as usize), sizes.heads, of_rounds]),
            CubeDim::new_1d(UNITS),
            buffer(&order),
            buffer(query_rows),
            buffer(query_slots),
            buffer(key_rows),
            buffer(key_slots),
            sizes_args(sizes),
            int,
        );
    }
    let attends = empty_like(&hashes, [sizes.rounds, sizes.rows(), 1, 1], DType::U32);
    let kind = MaskKind {
        rounds: sizes.rounds,
        is_causal: rules.is_causal,
        has_lengths: rules.has_lengths,
        has_mask: inputs.mask.is_some(),
    };
    let pattern_mask = inputs.mask.as_ref();
    let pattern_elem = pattern_mask.map_or(ElemType::UInt(UIntKind::U32), |mask| {
        dtype_to_storage_type(mask.dtype)
    });
    let mask_elem = dtype_to_storage_type(mask.dtype);
    let pattern = PatternTensors {
        lengths: &lengths,
        mask: pattern_mask,
        unread: &attends,
    };
    // SAFETY: as above.
    unsafe {
        write_masks::launch_unchecked(
            client,
            cube_count([sizes.chunks.count, sizes.heads, of_rounds]),
            CubeDim::new_1d(MASK_UNITS as u32),
            buffer(&order),
            buffer(query_slots),
            pattern.args(),
            buffer(mask),
            buffer(&attends),
            sizes_args(sizes),
            kind,
            int,
            pattern_elem,
            mask_elem,
        );
        attend_to_self::launch_unchecked(
            client,
            cube_count([sizes.seq.div_ceil(UNITS as usize), sizes.heads, sizes.batch]),
            CubeDim::new_1d(UNITS),
            buffer(query_slots),
            buffer(&attends),
            pattern.args(),
            buffer(mask),
            sizes_args(sizes),
            kind,
            int,
            pattern_elem,
            mask_elem,
        );
    }
    tensors
}

/// The tensors of a pattern.
struct PatternTensors<'a> {
    lengths: &'a CubeTensor,
    mask: Option<&'a CubeTensor>,
    /// Passed for a missing mask, which is not read.
    unread: &'a CubeTensor,
}

impl PatternTensors<'_> {
    fn args<I: Int, T: Numeric>(&self) -> PatternArgsLaunch<I, T> {
        PatternArgsLaunch::new(
            buffer(self.lengths),
            buffer(self.mask.unwrap_or(self.unread)),
            BroadcastStridesLaunch::from_tensor(self.mask),
        )
    }
}

/// The positions of each head in each round by hash, then by position: one stable sort for each
/// digit, the last one first.
fn sort(hashes: &CubeTensor, sizes: &Sizes) -> CubeTensor {
    let table = CountTable::new(sizes.base);
    let int = dtype_to_storage_type(hashes.dtype);
    let mut earlier: Option<CubeTensor> = None;
    for digit in (0..sizes.digits).rev() {
        let dims = [sizes.rounds, sizes.all_heads(), sizes.seq, 1];
        let order = empty_like(hashes, dims, hashes.dtype);
        // SAFETY: the kernel accesses the tensors within the sizes passed to it.
        unsafe {
            sort_by_digit::launch_unchecked(
                &hashes.client,
                cube_count([1, sizes.heads, sizes.rounds * sizes.batch]),
                CubeDim::new_1d(table.units as u32),
                buffer(hashes),
                // Not read in the first pass.
                buffer(earlier.as_ref().unwrap_or(hashes)),
                buffer(&order),
                sizes_args(sizes),
                digit as u32,
                sizes.digits as u32,
                earlier.is_none(),
                table,
                int,
            );
        }
        earlier = Some(order);
    }
    earlier.expect("a hash has a digit")
}

fn sizes_args(sizes: &Sizes) -> SizesLaunch {
    SizesLaunch::new(
        sizes.batch as u32,
        sizes.heads as u32,
        sizes.seq as u32,
        sizes.rounds as u32,
        sizes.chunks.count as u32,
        sizes.chunks.size as u32,
        sizes.chunks.keys() as u32,
    )
}
