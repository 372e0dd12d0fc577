//! Which calls the kernels compute, and how their cubes are laid out.

use burn_cubecl::CubeDevice;
use cubecl::client::Client;
use cubecl::ir::DeviceProperties;

use super::device_plan::Rowwise;
use super::launch::wanted;
use super::tile::Layout;
use crate::AttentionShape;
use crate::tiled::Body;
use crate::tiled::ops::TiledSettings;

/// How the cubes of a call are laid out, forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layouts {
    pub(super) forward: Layout,
    pub(super) backward: Layout,
}

const fn layout([side, rows, fours, chunk]: [usize; 4]) -> Layout {
    Layout {
        side,
        rows,
        fours,
        chunk,
    }
}

// The first that fits is taken. A unit should have as many rows and columns as its registers
// hold, for each number it loads is then used more often: 8 by 8 forward. A real GPU has 255
// registers for a unit, so backward, where a unit holds four such blocks, it has 4 rows; a
// software adapter has its stack for them. Longer chunks are fewer waits for each other.
const ON_A_GPU: [[Layout; 3]; 2] = [
    [
        layout([8, 8, 2, 8]),
        layout([8, 8, 2, 4]),
        layout([8, 4, 1, 4]),
    ],
    [
        layout([8, 4, 2, 8]),
        layout([8, 4, 2, 4]),
        layout([8, 4, 1, 4]),
    ],
];
const IN_SOFTWARE: [[Layout; 3]; 2] = [
    [
        layout([8, 8, 2, 4]),
        layout([8, 4, 2, 4]),
        layout([8, 4, 1, 4]),
    ],
    [
        layout([8, 8, 2, 4]),
        layout([8, 4, 2, 4]),
        layout([8, 4, 1, 4]),
    ],
];

/// Columns of a result that a unit may hold for each of its rows, in blocks: more would not
/// stay in registers.
const BLOCKS: usize = 4;

/// Buffers that a kernel has at most, with the one of its numbers.
const BUFFERS: u32 = 13;

/// What computes a call on a device.
pub(in crate::tiled) fn body(device: &CubeDevice, settings: &TiledSettings) -> Body {
    match layouts(&device.client(), settings) {
        Some(_) => Body::Cube,
        None => Body::Tiles,
    }
}

/// How the cubes of a call are laid out, if the kernels compute it.
pub(super) fn layouts(client: &Client, settings: &TiledSettings) -> Option<Layouts> {
    let properties = client.properties();
    if settings.is_portable {
        return None;
    }
    let layouts = fitting(properties, &settings.shape)?;
    let Layouts { forward, backward } = layouts;
    let (most, ..) = properties.hardware.max_cube_count;
    let plans = [
        (forward, Rowwise::Queries),
        (backward, Rowwise::Queries),
        (backward, Rowwise::Keys),
    ];
    let plans_fit = plans.into_iter().all(|(layout, rowwise)| {
        let plan = wanted(settings, layout, rowwise).words(&settings.shape);
        let bytes = size_of_val(plan.words.as_slice()) as u64;
        bytes <= properties.memory.max_page_size && plan.rows <= most as usize
    });
    plans_fit.then_some(layouts)
}

/// The layouts that a device has room for.
fn fitting(properties: &DeviceProperties, shape: &AttentionShape) -> Option<Layouts> {
    let hardware = &properties.hardware;
    let (_, most_heads, most_examples) = hardware.max_cube_count;
    if hardware.max_bindings < BUFFERS
        || shape.heads > most_heads as usize
        || shape.batch > most_examples as usize
    {
        return None;
    }
    let fits = |layout: &Layout| {
        layout.shared_bytes() <= hardware.max_shared_memory_size
            && layout.units() <= hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize
            && layout.blocks(shape.d_head.max(shape.d_value)) <= BLOCKS
    };
    let [forward, backward] = match properties.identity.physical {
        Some(_) => ON_A_GPU,
        None => IN_SOFTWARE,
    };
    Some(Layouts {
        forward: forward.into_iter().find(fits)?,
        backward: backward.into_iter().find(fits)?,
    })
}
