//! Which calls the kernels support, and with which tile layout.

use std::sync::OnceLock;

use burn::backend::DType;
use burn_cubecl::CubeDevice;
use cubecl::client::Client;
use cubecl::ir::features::{MmaConfig, TypeUsage};
use cubecl::ir::{DeviceProperties, ElemType, FloatKind};

use super::cooperative::{CooperativeLayout, CooperativeType};
use super::device_plan::{PlanKey, RowAxis};
use super::layout::{FRAGMENT, KernelLayout, Layout, Matmul, PLANE_SIZE};
use super::mma::{Instructions, MmaLayout, MmaType};
use super::program::KernelProgram;
use crate::AttentionShape;
use crate::cube::launch::half_type;
pub(super) use crate::cube::launch::is_software;
use crate::flash::FlashKernel;
use crate::flash::call::{Program, TiledSettings};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    Forward,
    Backward,
}

// The first layout that fits is used, unless others are tried. The more rows and columns a unit
// has, the more often each loaded element is used. But a GPU hides latency by running many units,
// each of which needs registers and shared memory: on an H200, 16 x 16 units with 4 x 4 elements
// were fastest forward, and 8 x 8 units with 4 x 8 elements backward (docs/design/flash.md has the
// times). A software adapter computes one cube after the other, and larger tiles are faster. With
// longer chunks there are fewer barriers.
const SIDE_16: Layout = Layout {
    cube_side: 16,
    unit_vec4s: 1,
    ..SIDE_8
};
const SIDE_8: Layout = Layout {
    matmul: Matmul::Unit,
    cube_side: 8,
    unit_rows: 4,
    unit_vec4s: 2,
    chunk_vec4s: 8,
};
/// 8 x 8 elements per unit, for software adapters.
const LARGE: Layout = Layout {
    unit_rows: 8,
    chunk_vec4s: 4,
    ..SIDE_8
};
/// 32 x 32 tiles for little work, and for adapters with the minimum limits of WebGPU.
pub(super) const COMPACT: Layout = Layout {
    unit_vec4s: 1,
    chunk_vec4s: 4,
    ..SIDE_8
};

const GPU_FORWARD: [Layout; 2] = [SIDE_16, SIDE_8];
const GPU_BACKWARD: [Layout; 2] = [SIDE_8, SIDE_8.with_chunk(4)];
const SOFTWARE: [Layout; 2] = [LARGE, SIDE_8.with_chunk(4)];
const CMMA: [Layout; 2] = [
    SIDE_16.with_chunk(16).with_cmma(),
    SIDE_8.with_chunk(16).with_cmma(),
];

/// The rows of a compact tile.
const FEW_QUERIES: usize = 32;

/// Pairs of query and key below which compiling a large kernel in software takes longer than
/// running a small one many times.
const FEW_PAIRS: usize = 64 * 64;

/// Up to this many queries and from this many keys on, the tile loops are faster in software: most
/// rows of a tile would be padding, which a software adapter computes as well.
const MAX_LOOP_QUERIES: usize = 8;
const MIN_LOOP_KEYS: usize = 256;

/// Blocks of columns that a unit may accumulate per row: more would spill registers.
const MAX_BLOCKS: usize = 4;

/// Buffers of a kernel, including that of its scalar arguments.
const MAX_BUFFERS: u32 = 14;

pub(crate) fn kernel_for(
    device: &CubeDevice,
    dtype: DType,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> FlashKernel {
    match layouts(&device.client(), dtype, has_mask_or_bias, settings) {
        Some([KernelLayout::Mma(_), _]) => FlashKernel::CubeMma,
        Some([KernelLayout::Cooperative(_), _]) => FlashKernel::CubeCmma,
        Some([KernelLayout::Units(forward), _]) => match forward.matmul {
            Matmul::Cmma => FlashKernel::CubeCmma,
            Matmul::Unit => FlashKernel::Cube,
        },
        None => FlashKernel::TileLoops,
    }
}

/// The layouts of the forward and the backward pass, if the kernels support the call.
pub(super) fn layouts(
    client: &Client,
    dtype: DType,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> Option<[KernelLayout; 2]> {
    if let Some(layouts) = mma_layouts(client, dtype, has_mask_or_bias, settings) {
        return Some(layouts.map(KernelLayout::Mma));
    }
    if let Some(layouts) = cooperative_layouts(client, dtype, has_mask_or_bias, settings) {
        return Some(layouts.map(KernelLayout::Cooperative));
    }
    let first = |pass| {
        let mut list = preferred(client.properties(), dtype, settings, pass)?.into_iter();
        list.find(|&layout| is_supported(client, dtype, settings, layout, pass))
    };
    Some([first(Pass::Forward)?, first(Pass::Backward)?].map(KernelLayout::Units))
}

/// The layouts of the [`mma`](super::mma) kernels, if the device has the instructions and the call
/// no options.
fn mma_layouts(
    client: &Client,
    dtype: DType,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> Option<[MmaLayout; 2]> {
    let properties = client.properties();
    let shape = &settings.shape;
    let ty = MmaType::new(dtype)?;
    let (_, max_heads, max_batch) = properties.hardware.max_cube_count;
    let is_supported = KernelProgram::new(settings) == Some(KernelProgram::Softmax)
        && !has_mask_or_bias
        && settings.softcap.is_none()
        && settings.alibi.is_none()
        && settings.dropout.is_none()
        // The maximum of the scores is that of the dot products.
        && settings.scale > 0.0
        // See `preferred`.
        && (dtype == DType::F32 || shape.seq_k > 1)
        && shape.heads <= max_heads as usize
        && shape.batch <= max_batch as usize
        && has_mma(properties, ty);
    if !is_supported {
        return None;
    }
    let with = |instructions| {
        let layouts = [
            MmaLayout::forward(instructions, ty, shape.d_head, shape.d_value),
            MmaLayout::backward_keys(instructions, ty, shape.d_head, shape.d_value),
        ];
        let kernels = [
            (layouts[0], RowAxis::Queries),
            (layouts[1].with_query_gradient(), RowAxis::Queries),
            (layouts[1], RowAxis::Keys),
        ];
        let is_supported = kernels.into_iter().all(|(layout, row_axis)| {
            layout.supports()
                && layout.shared_bytes() <= properties.hardware.max_shared_memory_size
                && has_plan(properties, settings, layout.tile(), row_axis)
        });
        is_supported.then_some(layouts)
    };
    has_wgmma(properties, ty)
        .then(|| with(Instructions::Wgmma))
        .flatten()
        .or_else(|| with(Instructions::Mma))
}

/// Whether a device has `wgmma`, which only GPUs of compute capability 9.0 have. CubeCL's fingerprint of
/// a CUDA device is the target of its compiler.
fn has_wgmma(properties: &DeviceProperties, ty: MmaType) -> bool {
    !ty.is_split() && properties.identity.fingerprint == "ptx_sm90"
}

/// The layouts of the [cooperative](super::cooperative) kernels, if the device has the instructions
/// and the call no options.
fn cooperative_layouts(
    client: &Client,
    dtype: DType,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> Option<[CooperativeLayout; 2]> {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let shape = &settings.shape;
    let (_, max_heads, max_batch) = hardware.max_cube_count;
    let max_units = hardware.max_units_per_cube.min(hardware.max_cube_dim.0);
    let ty = CooperativeType::new(dtype)?;
    let is_supported = KernelProgram::new(settings) == Some(KernelProgram::Softmax)
        && !has_mask_or_bias
        && settings.softcap.is_none()
        && settings.alibi.is_none()
        && settings.dropout.is_none()
        // The maximum of the scores is that of the dot products.
        && settings.scale > 0.0
        // See `preferred`.
        && shape.seq_k > 1
        // These kernels do not split the keys of few queries.
        && shape.seq_q >= FRAGMENT
        && shape.heads <= max_heads as usize
        && shape.batch <= max_batch as usize
        && has_cmma(properties, ty.operand())
        // CubeCL reports matrices of a whole cube for `VK_NV_cooperative_matrix2` alone, which also
        // has functions of elements.
        && !properties.features.matmul.cube_mma.is_empty();
    if !is_supported {
        return None;
    }
    let layouts = [
        CooperativeLayout::forward(ty, shape.d_head, shape.d_value),
        CooperativeLayout::backward_keys(ty, shape.d_head, shape.d_value),
    ];
    let kernels = [
        (layouts[0], RowAxis::Queries),
        (layouts[1].with_query_gradient(), RowAxis::Queries),
        (layouts[1], RowAxis::Keys),
    ];
    let is_supported = kernels.into_iter().all(|(layout, row_axis)| {
        layout.supports()
            && layout.units() <= max_units as usize
            && layout.shared_bytes() <= hardware.max_shared_memory_size
            && has_plan(properties, settings, layout.tile(), row_axis)
    });
    is_supported.then_some(layouts)
}

pub(super) fn is_supported(
    client: &Client,
    dtype: DType,
    settings: &TiledSettings,
    layout: Layout,
    pass: Pass,
) -> bool {
    let properties = client.properties();
    let Some(program) = KernelProgram::new(settings) else {
        return false;
    };
    if !fits(properties, dtype, &settings.shape, layout, program) {
        return false;
    }
    let plans: &[RowAxis] = match pass {
        Pass::Forward => &[RowAxis::Queries],
        Pass::Backward => &[RowAxis::Queries, RowAxis::Keys],
    };
    plans
        .iter()
        .all(|&row_axis| has_plan(properties, settings, layout.tile(), row_axis))
}

/// Whether a device has the limits for the plan of a call.
fn has_plan(
    properties: &DeviceProperties,
    settings: &TiledSettings,
    tile: [usize; 2],
    row_axis: RowAxis,
) -> bool {
    let (max_rows, ..) = properties.hardware.max_cube_count;
    let plan = PlanKey::new(settings, tile, row_axis).device_plan(&settings.shape);
    let bytes = size_of_val(plan.words.as_slice()) as u64;
    bytes <= properties.memory.max_page_size && plan.rows <= max_rows as usize
}

/// Whether a device has the limits and the instructions for a layout.
fn fits(
    properties: &DeviceProperties,
    dtype: DType,
    shape: &AttentionShape,
    layout: Layout,
    program: KernelProgram,
) -> bool {
    let hardware = &properties.hardware;
    let (_, max_heads, max_batch) = hardware.max_cube_count;
    let supports_matmul = match layout.matmul {
        Matmul::Unit => dtype == DType::F32,
        Matmul::Cmma => program == KernelProgram::Softmax && has_cmma(properties, dtype),
    };
    supports_matmul
        && hardware.max_bindings >= MAX_BUFFERS
        && shape.heads <= max_heads as usize
        && shape.batch <= max_batch as usize
        && layout.shared_bytes() <= hardware.max_shared_memory_size
        && layout.units() <= hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize
        && layout.blocks(shape.d_head.max(shape.d_value)) <= MAX_BLOCKS
}

/// Whether a device multiplies fragments in registers, loads them with `ldmatrix`, and copies to
/// shared memory asynchronously. The kernels rely on NVIDIA's layout of fragments, which only its
/// devices report with `ldmatrix`.
fn has_mma(properties: &DeviceProperties, ty: MmaType) -> bool {
    let features = &properties.features;
    let elem = ty.elem();
    let config = MmaConfig {
        a_type: elem,
        b_type: elem,
        cd_type: ElemType::Float(FloatKind::F32),
        m: 16,
        n: 8,
        k: ty.step() as u32,
    };
    features.copy_async
        && !features.matmul.ldmatrix.is_empty()
        && features.matmul.mma.contains(&config)
}

fn has_cmma(properties: &DeviceProperties, dtype: DType) -> bool {
    let Some(elem) = half_type(dtype) else {
        return false;
    };
    let hardware = &properties.hardware;
    let (plane, side) = (PLANE_SIZE as u32, FRAGMENT as u32);
    let config = MmaConfig {
        a_type: elem,
        b_type: elem,
        cd_type: ElemType::Float(FloatKind::F32),
        m: side,
        n: side,
        k: side,
    };
    let usage = properties.type_usage(elem);
    hardware.plane_size_min == plane
        && hardware.plane_size_max == plane
        && usage.is_superset(TypeUsage::Buffer | TypeUsage::Conversion)
        && properties.features.matmul.cmma.contains(&config)
}

/// Layouts in order of preference; `None` if the tile loops are faster.
fn preferred(
    properties: &DeviceProperties,
    dtype: DType,
    settings: &TiledSettings,
    pass: Pass,
) -> Option<Vec<Layout>> {
    let shape = &settings.shape;
    let is_few = shape.seq_q <= FEW_QUERIES;
    if dtype != DType::F32 {
        // With a single key, the gradients of query and key are zero, but not the difference of
        // two half-precision roundings. In f32 both are rounded identically.
        if shape.seq_k == 1 {
            return None;
        }
        let mut list = CMMA.to_vec();
        if is_few {
            list.reverse();
        }
        return Some(list);
    }
    if let Some(layout) = env_layout(pass) {
        return Some(vec![layout, COMPACT]);
    }
    let is_software = is_software(properties);
    if is_software && shape.seq_q <= MAX_LOOP_QUERIES && shape.seq_k >= MIN_LOOP_KEYS {
        return None;
    }
    // Each MLP score of a unit is separate code.
    if is_software && settings.program == Program::Additive {
        return Some(vec![COMPACT]);
    }
    let is_little = is_few || (is_software && shape.seq_q * shape.seq_k < FEW_PAIRS);
    let list = match pass {
        _ if is_software => SOFTWARE,
        Pass::Forward => GPU_FORWARD,
        Pass::Backward => GPU_BACKWARD,
    };
    let first = is_little.then_some(COMPACT);
    Some(first.into_iter().chain(list).chain([COMPACT]).collect())
}

/// The layouts that autotuning tries.
#[cfg(any(feature = "autotune", test))]
pub(super) fn candidates(pass: Pass) -> Vec<Layout> {
    let units = match pass {
        Pass::Forward => [SIDE_16, SIDE_8, SIDE_16.with_chunk(4)],
        Pass::Backward => [SIDE_8, SIDE_16.with_chunk(4), SIDE_8.with_chunk(4)],
    };
    units.into_iter().chain(CMMA).collect()
}

/// The `f32` layout from the environment, to try layouts on a new GPU without a rebuild.
/// `ZOO_CUBE_LAYOUT=16,4,1,8,16,4,1,4` sets cube side, unit rows, unit vec4s and chunk vec4s of the
/// forward and of the backward pass.
pub(super) fn env_layout(pass: Pass) -> Option<Layout> {
    static LAYOUTS: OnceLock<Option<[Layout; 2]>> = OnceLock::new();
    let layouts = LAYOUTS.get_or_init(|| {
        let text = std::env::var("ZOO_CUBE_LAYOUT").ok()?;
        let sizes: Vec<usize> = text.split(',').flat_map(|size| size.parse()).collect();
        let layouts = match sizes.as_chunks::<4>().0 {
            &[forward, backward] if sizes.len() == 8 => [forward, backward].map(from_sizes),
            _ => panic!(
                "ZOO_CUBE_LAYOUT must be eight integers separated by commas, got {text:?}\n\
                 help: cube side, unit rows, unit vec4s and chunk vec4s, forward and backward, for \
                 example 16,4,1,8,8,4,2,8"
            ),
        };
        for layout in layouts {
            assert!(
                layout.is_valid(),
                "ZOO_CUBE_LAYOUT: {layout:?} does not divide its tiles evenly\n\
                 help: docs/design/flash.md lists valid layouts"
            );
        }
        Some(layouts)
    });
    layouts.map(|layouts| layouts[pass as usize])
}

fn from_sizes([cube_side, unit_rows, unit_vec4s, chunk_vec4s]: [usize; 4]) -> Layout {
    Layout {
        matmul: Matmul::Unit,
        cube_side,
        unit_rows,
        unit_vec4s,
        chunk_vec4s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layouts are valid, and the compact one is within the minimum limits of WebGPU.
    #[test]
    fn layouts_are_valid() {
        let lists = [GPU_FORWARD, GPU_BACKWARD, SOFTWARE, CMMA, [COMPACT; 2]];
        for layout in lists.into_iter().flatten() {
            assert!(layout.is_valid(), "{layout:?}");
            assert!(layout.units() <= 256, "{layout:?}");
            assert!(layout.shared_bytes() <= 48 << 10, "{layout:?}");
        }
        for layout in [Pass::Forward, Pass::Backward].map(candidates).concat() {
            assert!(layout.is_valid(), "{layout:?}");
        }
        for layout in SOFTWARE {
            assert!(layout.shared_bytes() <= 32 << 10, "{layout:?}");
        }
        assert!(!from_sizes([8, 3, 1, 4]).is_valid());
        assert!(COMPACT.shared_bytes() <= 16 << 10);
        assert_eq!(COMPACT.tile_m(), FEW_QUERIES);
    }
}
