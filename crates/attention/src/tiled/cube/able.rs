//! Which calls the kernels compute, and how large their tiles are.

use burn_cubecl::CubeDevice;
use cubecl::client::Client;

use super::device_plan::Rowwise;
use super::launch::wanted;
use super::tile::Layout;
use crate::tiled::Body;
use crate::tiled::ops::TiledSettings;

/// Layouts of cubes, the best first.
const LAYOUTS: [Layout; 2] = [
    Layout {
        side: 16,
        rows: 4,
        chunk: 4,
    },
    Layout {
        side: 8,
        rows: 4,
        chunk: 4,
    },
];

/// Columns of a result that a unit may hold, in fours for each of its rows: more would not
/// stay in registers.
const BLOCKS: usize = 4;

/// Buffers that a kernel has at most, with the one of its numbers.
const BUFFERS: u32 = 13;

/// What computes a call on a device.
pub(in crate::tiled) fn body(device: &CubeDevice, settings: &TiledSettings) -> Body {
    match layout(&device.client(), settings) {
        Some(_) => Body::Cube,
        None => Body::Tiles,
    }
}

/// How the cubes of a call are laid out, if the kernels compute it.
pub(super) fn layout(client: &Client, settings: &TiledSettings) -> Option<Layout> {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let shape = &settings.shape;
    let (most_x, most_y, most_z) = hardware.max_cube_count;
    let wide = shape.d_head.max(shape.d_value);
    if settings.is_portable
        || hardware.max_bindings < BUFFERS
        || shape.heads > most_y as usize
        || shape.batch > most_z as usize
    {
        return None;
    }
    let layout = LAYOUTS.into_iter().find(|layout| {
        layout.shared_bytes() <= hardware.max_shared_memory_size
            && layout.units() <= hardware.max_units_per_cube as usize
            && layout.units() <= hardware.max_cube_dim.0 as usize
            && layout.blocks(wide) <= BLOCKS
    })?;
    let fits = |rowwise| {
        let plan = wanted(settings, layout, rowwise).words(shape);
        let bytes = size_of_val(plan.words.as_slice()) as u64;
        bytes <= properties.memory.max_page_size && plan.rows <= most_x as usize
    };
    let all_fit = [Rowwise::Queries, Rowwise::Keys].into_iter().all(fits);
    all_fit.then_some(layout)
}
