//! Kernel launches.

use burn::backend::{Backend, Cube, DType};
use burn_cubecl::CubeDevice;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::ChunkSettings;
use super::kernels::{
    COLUMNS, DecayKind, Direction, MAX_INVERTED, SUM_UNITS, ScanKind, invert_unit_lower,
    scan_chunks, sum_decay_gradient,
};
use crate::cube::launch::{buffer, cube_count, empty_like, is_software};

/// Buffers of a kernel, including that of its scalar arguments.
const MAX_BUFFERS: u32 = 8;

/// Cubes in a row of a grid: WebGPU's limit.
const MAX_CUBES: usize = 65_535;

/// Units of a cube: one for each vec4 of 64 rows on a GPU, and fewer on a software adapter, which
/// computes one after the other.
fn units(client: &Client) -> usize {
    if is_software(client.properties()) {
        64
    } else {
        256
    }
}

/// Whether a device has the limits for a recurrence.
///
/// On `cuda`, decays of rows that are no power of two are left to Burn's operations: gradients of `gla` with
/// heads of 20 elements were wrong next to this kernel (docs/known-issues.md).
pub(super) fn is_supported(device: &CubeDevice, settings: &ChunkSettings) -> bool {
    let has_padded_decays = settings.decay == DecayKind::Rows && !settings.d_head.is_power_of_two();
    if has_padded_decays && <Cube as Backend>::name(device).contains("cuda") {
        return false;
    }
    let client = device.client();
    let properties = client.properties();
    let hardware = &properties.hardware;
    let kind = settings.kind(&client, Direction::Forward);
    let (max_x, max_y, _) = hardware.max_cube_count;
    let states = settings.states_dims().map(|size| size as u64);
    let states: u64 = states.into_iter().product();
    let matrices = settings.heads * settings.count;
    hardware.max_bindings >= MAX_BUFFERS
        && kind.shared_bytes().max(4 * settings.size * settings.size)
            <= hardware.max_shared_memory_size
        && kind.units <= hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize
        && settings.size <= MAX_INVERTED
        && settings.width.div_ceil(COLUMNS).max(settings.count) <= max_x as usize
        && settings.heads <= max_y as usize
        && matrices.div_ceil(MAX_CUBES) <= max_y as usize
        // Indices have 32 bits.
        && states <= u64::from(u32::MAX)
        && states * 4 <= properties.memory.max_page_size
}

impl ChunkSettings {
    /// `[heads, count + 1, d_head, width]`
    pub(super) fn states_dims(&self) -> [usize; 4] {
        [self.heads, self.count + 1, self.d_head, self.width]
    }

    /// `[heads, count, 1, 1 or d_head]`; `None` without decays.
    pub(super) fn decay_dims(&self) -> Option<[usize; 4]> {
        let width = match self.decay {
            DecayKind::None => return None,
            DecayKind::Scalar => 1,
            DecayKind::Rows => self.d_head,
        };
        Some([self.heads, self.count, 1, width])
    }

    /// `[heads, count, size, width]`
    pub(super) fn rows_dims(&self) -> [usize; 4] {
        [self.heads, self.count, self.size, self.width]
    }

    fn kind(&self, client: &Client, direction: Direction) -> ScanKind {
        let is_forward = direction == Direction::Forward;
        ScanKind {
            direction,
            size: self.size,
            d_head: self.d_head,
            decay: self.decay,
            has_left: !is_forward || self.is_delta,
            has_right: is_forward || self.is_delta,
            has_rows: true,
            has_added: !is_forward || self.has_initial,
            units: units(client),
        }
    }
}

/// The tensors of a recurrence, in the layout of [`scan_chunks`].
pub(super) struct ScanTensors {
    pub(super) left: CubeTensor,
    pub(super) right: CubeTensor,
    /// `None` is zero.
    pub(super) rows: Option<CubeTensor>,
    pub(super) decay: CubeTensor,
    pub(super) added: CubeTensor,
}

/// The states, and the rows that change them; `None` if these are the input, in a forward pass without the
/// delta rule.
pub(super) fn launch_scan(
    tensors: ScanTensors,
    settings: &ChunkSettings,
    direction: Direction,
) -> (CubeTensor, Option<CubeTensor>) {
    let has_rows = tensors.rows.is_some();
    let [left, right, decay, added] =
        [tensors.left, tensors.right, tensors.decay, tensors.added].map(into_contiguous);
    let rows = tensors.rows.map_or_else(|| left.clone(), into_contiguous);
    let client = &left.client;
    let kind = ScanKind {
        has_rows,
        ..settings.kind(client, direction)
    };
    let states = empty_like(&left, settings.states_dims(), DType::F32);
    // Without `left` the rows are the input, and nothing is written.
    let rows_dims = if kind.has_left {
        settings.rows_dims()
    } else {
        [1; 4]
    };
    let rows_out = empty_like(&left, rows_dims, DType::F32);
    // SAFETY: the kernel accesses the tensors within the sizes of the settings.
    unsafe {
        scan_chunks::launch_unchecked(
            client,
            cube_count([settings.width.div_ceil(COLUMNS), settings.heads, 1]),
            CubeDim::new_1d(kind.units as u32),
            buffer(&left),
            buffer(&right),
            buffer(&rows),
            buffer(&decay),
            buffer(&added),
            buffer(&states),
            buffer(&rows_out),
            settings.count as u32,
            settings.width as u32,
            kind,
        );
    }
    (states, kind.has_left.then_some(rows_out))
}

/// The gradient of the decays, from the states and their gradients.
pub(super) fn launch_decay_gradient(
    states: CubeTensor,
    d_states: &CubeTensor,
    settings: &ChunkSettings,
) -> Option<CubeTensor> {
    let states = into_contiguous(states);
    let d_decay = empty_like(&states, settings.decay_dims()?, DType::F32);
    // SAFETY: the kernel accesses the tensors within the sizes of the settings.
    unsafe {
        sum_decay_gradient::launch_unchecked(
            &states.client,
            cube_count([settings.count, settings.heads, 1]),
            CubeDim::new_1d(SUM_UNITS as u32),
            buffer(&states),
            buffer(d_states),
            buffer(&d_decay),
            settings.count as u32,
            settings.d_head as u32,
            settings.width as u32,
            settings.decay,
        );
    }
    Some(d_decay)
}

/// The inverses of `I + B`, `[1, count, size, size]`.
pub(super) fn launch_inverse(lower: CubeTensor) -> CubeTensor {
    let lower = into_contiguous(lower);
    let [_, count, size, _] = lower.meta.shape().dims();
    let inverse = empty_like(&lower, [1, count, size, size], DType::F32);
    // SAFETY: the kernel accesses the tensors within these sizes.
    unsafe {
        invert_unit_lower::launch_unchecked(
            &lower.client,
            cube_count([count.min(MAX_CUBES), count.div_ceil(MAX_CUBES), 1]),
            CubeDim::new_1d(size as u32),
            buffer(&lower),
            buffer(&inverse),
            count as u32,
            size,
        );
    }
    inverse
}
