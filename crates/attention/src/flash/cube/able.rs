//! Which calls the kernels compute, and how their cubes are laid out.

use std::sync::OnceLock;

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::CubeDevice;
use cubecl::client::Client;
use cubecl::ir::features::{MmaConfig, TypeUsage};
use cubecl::ir::{DeviceProperties, ElemType, FloatKind};

use super::device_plan::Rowwise;
use super::launch::wanted;
use super::layout::{By, Layout, MATRIX, PLANE};
use crate::AttentionShape;
use crate::flash::Body;
use crate::flash::call::TiledSettings;

/// Which way through a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    Forward,
    Backward,
}

/// How the cubes of a call are laid out, forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layouts {
    pub(super) forward: Layout,
    pub(super) backward: Layout,
}

const fn layout([side, rows, fours, chunk]: [usize; 4]) -> Layout {
    Layout {
        by: By::Units,
        side,
        rows,
        fours,
        chunk,
    }
}

// The first that fits is taken, forward and backward, unless others are tried. The more rows
// and columns a unit has, the more often each number is used that it loads; but a GPU hides the
// time of loading by having many units at work, each of which takes registers and shared memory:
// on an H200 16 by 16 units of 4 by 4 numbers were best forward, and 8 by 8 of 4 by 8 on the way
// back, docs/design/flash.md has the times. A software adapter computes one cube after the other, and
// the larger the blocks the better. With longer chunks units wait for each other less often.
const ON_A_GPU: [[Layout; 2]; 2] = [
    [layout([16, 4, 1, 8]), layout([8, 4, 2, 8])],
    [layout([8, 4, 2, 8]), layout([8, 4, 2, 4])],
];
const IN_SOFTWARE: [[Layout; 2]; 2] = [[layout([8, 8, 2, 4]), layout([8, 4, 2, 4])]; 2];

/// With matrix instructions. As above: many planes hide what each of them waits for.
const BY_MATRICES: [Layout; 2] = [
    layout([16, 4, 1, 16]).by_matrices(),
    layout([8, 4, 2, 16]).by_matrices(),
];

/// Half as large either way, for little work, and for adapters that have no more than
/// WebGPU promises.
const COMPACT: Layout = layout([8, 4, 1, 4]);

/// No more queries than a compact layout has rows.
const FEW_QUERIES: usize = 32;

/// Pairs of query and key below which compiling a large kernel in software takes longer than
/// a small one takes to run many times.
const FEW_PAIRS: usize = 64 * 64;

/// Queries up to which, and keys from which, the portable loops are faster in software: a
/// tile has rows for more queries, and what a GPU computes for nothing takes time there.
const FEWEST_QUERIES: usize = 8;
const MANY_KEYS: usize = 256;

/// Columns of a result that a unit may hold for each of its rows, in blocks: more would not
/// stay in registers.
const BLOCKS: usize = 4;

/// Buffers that a kernel has at most, with the one of its numbers.
const BUFFERS: u32 = 13;

/// What computes a call with numbers of a type on a device.
pub(crate) fn body(device: &CubeDevice, dtype: DType, settings: &TiledSettings) -> Body {
    match layouts(&device.client(), dtype, settings) {
        Some(layouts) if layouts.forward.by == By::Matrices => Body::CubeMatrices,
        Some(_) => Body::Cube,
        None => Body::Tiles,
    }
}

/// How the cubes of a call are laid out, if the kernels compute it.
pub(super) fn layouts(client: &Client, dtype: DType, settings: &TiledSettings) -> Option<Layouts> {
    let [forward, backward] = preferred(client.properties(), dtype, &settings.shape)?;
    let first = |list: Vec<Layout>, pass| {
        let mut list = list.into_iter();
        list.find(|&layout| takes(client, dtype, settings, layout, pass))
    };
    Some(Layouts {
        forward: first(forward, Pass::Forward)?,
        backward: first(backward, Pass::Backward)?,
    })
}

/// Whether the kernels of a pass compute a call with cubes laid out this way.
pub(super) fn takes(
    client: &Client,
    dtype: DType,
    settings: &TiledSettings,
    layout: Layout,
    pass: Pass,
) -> bool {
    let properties = client.properties();
    if settings.is_portable || !fits(properties, dtype, &settings.shape, layout) {
        return false;
    }
    let (most, ..) = properties.hardware.max_cube_count;
    let plans: &[Rowwise] = match pass {
        Pass::Forward => &[Rowwise::Queries],
        Pass::Backward => &[Rowwise::Queries, Rowwise::Keys],
    };
    plans.iter().all(|&rowwise| {
        let plan = wanted(settings, layout, rowwise).words(&settings.shape);
        let bytes = size_of_val(plan.words.as_slice()) as u64;
        bytes <= properties.memory.max_page_size && plan.rows <= most as usize
    })
}

/// Whether a device has room for cubes that are laid out this way, and the instructions.
fn fits(
    properties: &DeviceProperties,
    dtype: DType,
    shape: &AttentionShape,
    layout: Layout,
) -> bool {
    let hardware = &properties.hardware;
    let (_, most_heads, most_examples) = hardware.max_cube_count;
    let multiplies = match layout.by {
        By::Units => dtype == DType::F32,
        By::Matrices => has_matrices(properties, dtype),
    };
    multiplies
        && hardware.max_bindings >= BUFFERS
        && shape.heads <= most_heads as usize
        && shape.batch <= most_examples as usize
        && layout.shared_bytes() <= hardware.max_shared_memory_size
        && layout.units() <= hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize
        && layout.blocks(shape.d_head.max(shape.d_value)) <= BLOCKS
}

/// Whether a device multiplies matrices of such numbers, in half precision, by instructions of
/// its own.
fn has_matrices(properties: &DeviceProperties, dtype: DType) -> bool {
    let numbers = match dtype {
        DType::F16 | DType::BF16 => dtype_to_storage_type(dtype),
        _ => return false,
    };
    let hardware = &properties.hardware;
    let (plane, side) = (PLANE as u32, MATRIX as u32);
    let wanted = MmaConfig {
        a_type: numbers,
        b_type: numbers,
        cd_type: ElemType::Float(FloatKind::F32),
        m: side,
        n: side,
        k: side,
    };
    let usage = properties.type_usage(numbers);
    hardware.plane_size_min == plane
        && hardware.plane_size_max == plane
        && usage.is_superset(TypeUsage::Buffer | TypeUsage::Conversion)
        && properties.features.matmul.cmma.contains(&wanted)
}

/// Whether a device is a program: a software rasterizer is no card.
pub(super) fn is_software(properties: &DeviceProperties) -> bool {
    properties.identity.physical.is_none()
}

/// Layouts for forward and backward, the best first; none where the portable loops are
/// better.
fn preferred(
    properties: &DeviceProperties,
    dtype: DType,
    shape: &AttentionShape,
) -> Option<[Vec<Layout>; 2]> {
    let is_few = shape.seq_q <= FEW_QUERIES;
    if dtype != DType::F32 {
        // The gradients by a query and by its only key are zero, and what is left of two
        // roundings is not: in f32 they are the same.
        if shape.seq_k == 1 {
            return None;
        }
        let mut list = BY_MATRICES.to_vec();
        if is_few {
            list.reverse();
        }
        return Some([list.clone(), list]);
    }
    if let Some(layouts) = asked_for() {
        return Some(layouts.map(|layout| vec![layout, COMPACT]));
    }
    let is_software = is_software(properties);
    if is_software && shape.seq_q <= FEWEST_QUERIES && shape.seq_k >= MANY_KEYS {
        return None;
    }
    let is_little = is_few || (is_software && shape.seq_q * shape.seq_k < FEW_PAIRS);
    let lists = if is_software { IN_SOFTWARE } else { ON_A_GPU };
    Some(lists.map(|list| {
        let first = is_little.then_some(COMPACT);
        first.into_iter().chain(list).chain([COMPACT]).collect()
    }))
}

/// Layouts of which any may be the fastest on some GPU.
#[cfg(any(feature = "autotune", test))]
pub(super) fn worth_trying(pass: Pass) -> Vec<Layout> {
    let units = match pass {
        Pass::Forward => [[16, 4, 1, 8], [8, 4, 2, 8], [16, 4, 1, 4]],
        Pass::Backward => [[8, 4, 2, 8], [16, 4, 1, 4], [8, 4, 2, 4]],
    };
    units.into_iter().map(layout).chain(BY_MATRICES).collect()
}

/// What computes `f32` forward and backward instead, to try layouts on a new GPU without building
/// anything: `ZOO_CUBE_LAYOUT=16,4,1,8,16,4,1,4` has side, rows, fours and chunk of both.
pub(super) fn asked_for() -> Option<[Layout; 2]> {
    static ASKED: OnceLock<Option<[Layout; 2]>> = OnceLock::new();
    *ASKED.get_or_init(|| {
        let text = std::env::var("ZOO_CUBE_LAYOUT").ok()?;
        let numbers: Vec<usize> = text.split(',').flat_map(|number| number.parse()).collect();
        let layouts = match numbers.as_slice() {
            &[a, b, c, d, e, f, g, h] => [layout([a, b, c, d]), layout([e, f, g, h])],
            _ => panic!("ZOO_CUBE_LAYOUT: expected eight numbers with commas, got {text:?}"),
        };
        let are_even = layouts.into_iter().all(Layout::is_even);
        assert!(
            are_even,
            "ZOO_CUBE_LAYOUT: {layouts:?} does not come out even"
        );
        Some(layouts)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernels divide must come out even, and the compact layout fits into what
    /// WebGPU promises.
    #[test]
    fn layouts_come_out_even() {
        let lists = ON_A_GPU.into_iter().chain(IN_SOFTWARE).flatten();
        for layout in lists.chain(BY_MATRICES).chain([COMPACT]) {
            assert!(layout.is_even(), "{layout:?}");
            assert!(layout.units() <= 256, "{layout:?}");
            assert!(layout.shared_bytes() <= 48 << 10, "{layout:?}");
        }
        for layout in [Pass::Forward, Pass::Backward].map(worth_trying).concat() {
            assert!(layout.is_even(), "{layout:?}");
        }
        for layout in IN_SOFTWARE.into_iter().flatten() {
            assert!(layout.shared_bytes() <= 32 << 10, "{layout:?}");
        }
        assert!(!layout([8, 3, 1, 4]).is_even());
        assert!(COMPACT.shared_bytes() <= 16 << 10);
        assert_eq!(COMPACT.down(), FEW_QUERIES);
    }
}
