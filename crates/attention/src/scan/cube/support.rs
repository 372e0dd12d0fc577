//! Which calls the kernels support.

use std::sync::OnceLock;

use burn::backend::DType;
use burn_cubecl::CubeDevice;
use cubecl::client::Client;
use cubecl::ir::DeviceProperties;
use cubecl::ir::features::TypeUsage;

use super::launch::Chunks;
use super::tile::{MEMORY_BYTES, Tile};
use crate::AttentionShape;
use crate::cube::launch::{half_type, is_software};

/// Buffers of a kernel, including that of its scalar arguments.
const MAX_BUFFERS: u32 = 13;

/// 4 x 4 elements per unit: a GPU hides latency by running many units.
const GPU: Tile = Tile { cube_side: 16 };
/// 8 x 8 elements per unit: a software adapter computes one unit after the other, and each load is
/// used more often.
const SOFTWARE: Tile = Tile { cube_side: 8 };

/// The tile for a device.
pub(super) fn tile(client: &Client) -> Tile {
    match env_tile() {
        Some(tile) => tile,
        None if is_software(client.properties()) => SOFTWARE,
        None => GPU,
    }
}

/// The tile from the environment, to try another without a rebuild: `ZOO_SCAN_CUBE_SIDE` is 8 or 16
/// units.
fn env_tile() -> Option<Tile> {
    static TILE: OnceLock<Option<Tile>> = OnceLock::new();
    *TILE.get_or_init(|| {
        let text = std::env::var("ZOO_SCAN_CUBE_SIDE").ok()?;
        let tile = [GPU, SOFTWARE]
            .into_iter()
            .find(|tile| tile.cube_side.to_string() == text);
        assert!(
            tile.is_some(),
            "ZOO_SCAN_CUBE_SIDE must be 8 or 16, got {text:?}"
        );
        tile
    })
}

/// Whether the kernels support a call whose features have the width of a head.
pub(crate) fn supports(device: &CubeDevice, dtype: DType, shape: &AttentionShape) -> bool {
    let client = device.client();
    let properties = client.properties();
    let hardware = &properties.hardware;
    let (max_x, max_heads, max_batch) = hardware.max_cube_count;
    let units = tile(&client).units();
    // A causal call has at least as many chunks.
    let chunks = Chunks::new(shape, true);
    let [features, values] = chunks.blocks;
    let rows = chunks.keys.max(chunks.queries) * features * values;
    supports_type(properties, dtype)
        && hardware.max_bindings >= MAX_BUFFERS
        && MEMORY_BYTES <= hardware.max_shared_memory_size
        && units <= hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize
        && rows <= max_x as usize
        && shape.heads <= max_heads as usize
        && shape.batch <= max_batch as usize
        && chunks.state_bytes(shape) <= properties.memory.max_page_size
}

/// Whether the kernels can load and store a type. They compute in `f32`.
fn supports_type(properties: &DeviceProperties, dtype: DType) -> bool {
    dtype == DType::F32
        || half_type(dtype).is_some_and(|elem| {
            let usage = properties.type_usage(elem);
            usage.is_superset(TypeUsage::Buffer | TypeUsage::Conversion)
        })
}
