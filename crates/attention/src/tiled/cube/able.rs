//! Which calls the kernels compute, and how their cubes are laid out.

use std::sync::OnceLock;

use burn_cubecl::CubeDevice;
use cubecl::client::Client;
use cubecl::ir::DeviceProperties;

use super::device_plan::Rowwise;
use super::launch::wanted;
use super::layout::Layout;
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

// The first that fits is taken, forward and backward. The more rows and columns a unit has, the
// more often each number is used that it loads; but a GPU hides the time of loading by having
// many units at work, each of which takes registers and shared memory: on an H200 16 by 16
// units of 4 by 4 numbers were best, ARCHITECTURE.md has the times. A software adapter computes
// one cube after the other, and the larger the blocks the better. With longer chunks units wait
// for each other less often.
const ON_A_GPU: [[Layout; 2]; 2] = [
    [layout([16, 4, 1, 8]), layout([8, 4, 2, 8])],
    [layout([16, 4, 1, 4]), layout([8, 4, 2, 4])],
];
const IN_SOFTWARE: [[Layout; 2]; 2] = [[layout([8, 8, 2, 4]), layout([8, 4, 2, 4])]; 2];

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
    // A software rasterizer is no card.
    let is_software = properties.identity.physical.is_none();
    if is_software && shape.seq_q <= FEWEST_QUERIES && shape.seq_k >= MANY_KEYS {
        return None;
    }
    let is_little =
        shape.seq_q <= FEW_QUERIES || (is_software && shape.seq_q * shape.seq_k < FEW_PAIRS);
    let [forward, backward] = match asked_for() {
        Some(layouts) => layouts.map(|layout| [layout; 2]),
        None if is_software => IN_SOFTWARE,
        None => ON_A_GPU,
    };
    let is_little = is_little && asked_for().is_none();
    let compact = |when: bool| when.then_some(COMPACT);
    let first = |list: [Layout; 2]| {
        let preferred = compact(is_little).into_iter().chain(list);
        preferred.chain(compact(true)).find(fits)
    };
    Some(Layouts {
        forward: first(forward)?,
        backward: first(backward)?,
    })
}

/// What computes forward and backward instead, to try layouts on a new GPU without building
/// anything: `ZOO_CUBE_LAYOUT=8,8,2,8,8,4,2,8` has side, rows, fours and chunk of both.
fn asked_for() -> Option<[Layout; 2]> {
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
        for layout in lists.chain([COMPACT]) {
            assert!(layout.is_even(), "{layout:?}");
            assert!(layout.units() <= 256, "{layout:?}");
            assert!(layout.shared_bytes() <= 48 << 10, "{layout:?}");
        }
        for layout in IN_SOFTWARE.into_iter().flatten() {
            assert!(layout.shared_bytes() <= 32 << 10, "{layout:?}");
        }
        assert!(!layout([8, 3, 1, 4]).is_even());
        assert!(COMPACT.shared_bytes() <= 16 << 10);
        assert_eq!(COMPACT.down(), FEW_QUERIES);
    }
}
