//! Matmuls by units instead of tensor cores, which round `f32` operands to TF32.
//!
//! An output with few tiles would leave most multiprocessors without work, such as the gradient of a
//! weight, whose inner dimension are the rows of a batch. Then the inner dimension is split: one
//! launch computes the products of all parts, and another adds them.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::backend::{DType, Shape};
use burn::tensor::FloatDType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level;
use cubek::matmul::multi_level::routines::TileSizeSelection;
use cubek::matmul::multi_level::routines::batch::simple_unit::SimpleUnitSelectionArgs;
use cubek::matmul::routine::BlueprintStrategy;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

/// Rows of the output that a cube computes; half as many if the left operand is transposed.
const TILE_ROWS: usize = 128;
const TILE_COLUMNS: usize = 64;
/// Inner elements of a part, at least.
const MIN_PART: usize = 128;
/// Cubes for each multiprocessor, so that some compute while others load.
const CUBES_PER_PROCESSOR: usize = 2;
/// Multiprocessors of a device that does not report their number.
const DEFAULT_PROCESSORS: usize = 64;

/// The product of `f32` tensors `[.., rows, inner]` and `[.., inner, columns]` with equal batch
/// dimensions.
pub(crate) fn unit_matmul(lhs: CubeTensor, rhs: CubeTensor) -> CubeTensor {
    let [lhs, rhs] = [lhs, rhs].map(without_storage_tiles);
    let rank = lhs.meta.rank();
    let (inner, columns) = (lhs.meta.shape()[rank - 1], rhs.meta.shape()[rank - 1]);
    let mut shape = lhs.meta.shape().clone();
    shape[rank - 1] = columns;
    if inner == 0 || shape.num_elements() == 0 {
        return CubeBackend::float_zeros(shape, &lhs.device, FloatDType::F32);
    }
    let processors = lhs
        .client
        .properties()
        .hardware
        .num_streaming_multiprocessors;
    let processors = processors.map_or(DEFAULT_PROCESSORS, |count| count as usize);
    match num_parts(&shape, inner, processors) {
        1 => launch(lhs, rhs, shape),
        parts => {
            let mut part_shape = shape.clone();
            part_shape.insert(0, parts);
            let lhs = split_dim(lhs, rank - 1, parts);
            let rhs = split_dim(rhs, rank - 2, parts);
            let products = launch(lhs, rhs, part_shape);
            CubeBackend::float_reshape(CubeBackend::float_sum_dim(products, 0), shape)
        }
    }
}

fn without_storage_tiles(tensor: CubeTensor) -> CubeTensor {
    if tensor.meta.is_tiled() {
        into_contiguous(tensor)
    } else {
        tensor
    }
}

/// The number of parts of the inner dimension, which divides it, for an output of this shape.
fn num_parts(output: &Shape, inner: usize, processors: usize) -> usize {
    let rank = output.num_dims();
    let tiles = output[rank - 2].div_ceil(TILE_ROWS) * output[rank - 1].div_ceil(TILE_COLUMNS);
    let batch: usize = output.iter().take(rank - 2).product();
    let target = CUBES_PER_PROCESSOR * processors / (batch * tiles);
    let most = target.min(inner / MIN_PART).max(1);
    (1..=most)
        .rev()
        .find(|parts| inner.is_multiple_of(*parts))
        .unwrap_or(1)
}

/// A view of a tensor with a dimension split into equal parts, which are the new first dimension.
fn split_dim(mut tensor: CubeTensor, dim: usize, parts: usize) -> CubeTensor {
    let size = tensor.meta.shape()[dim] / parts;
    let stride = tensor.meta.strides()[dim];
    tensor.meta.shape_mut()[dim] = size;
    tensor.meta.insert(0, parts, size * stride);
    tensor
}

fn launch(lhs: CubeTensor, rhs: CubeTensor, shape: Shape) -> CubeTensor {
    let bytes = shape.num_elements() * DType::F32.size();
    let product = CubeTensor::new_contiguous(
        lhs.client.clone(),
        lhs.device.clone(),
        shape,
        lhs.client.empty(bytes),
        DType::F32,
    );
    let f32 = dtype_to_storage_type(DType::F32);
    let mut result = Ok(());
    // The large tiles have few cubes of many units, which wait for their loads together. They are
    // tried only if cubek cannot set up the small ones.
    for tile_size in [
        TileSizeSelection::MinTileSize,
        TileSizeSelection::MaxTileSize,
    ] {
        let mut types = MatmulElems::from_globals(&MatmulGlobalElems {
            lhs: f32,
            rhs: f32,
            out: f32,
        });
        let tiles = SimpleUnitSelectionArgs { tile_size };
        let strategy = multi_level::Strategy::SimpleUnit(BlueprintStrategy::Inferred(tiles));
        result = launch_ref(
            &Strategy::MultiLevel(strategy),
            &product.client,
            InputBinding::new(lhs.clone().binding(), f32),
            InputBinding::new(rhs.clone().binding(), f32),
            product.clone().binding(),
            &mut types,
        );
        if result.is_ok() {
            break;
        }
    }
    if let Err(error) = result {
        panic!("matmul in f32: {error:?}");
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_dimension_is_split_if_there_are_few_tiles() {
        let parts = |dims: [usize; 2], inner| num_parts(&Shape::from(dims), inner, 132);
        // The target is 264 cubes: two for each of the processors of an H200.
        assert_eq!(parts([4096, 512], 512), 1, "256 tiles");
        // The gradient of a weight: 32 tiles, eight parts of 512 rows.
        assert_eq!(parts([512, 512], 4096), 8);
        assert_eq!(parts([512, 512], 4095), 7, "4095 = 7 * 585");
        assert_eq!(parts([512, 512], 4093), 1, "a prime");
        // One row, as in decoding: eight tiles, four parts of 128.
        assert_eq!(parts([1, 512], 512), 4);
        assert_eq!(parts([1, 512], 254), 1, "smaller than two parts");
        assert_eq!(num_parts(&Shape::from([4, 8, 128, 128]), 4096, 132), 4);
    }
}
