//! Gradients of a key and value head that several cubes compute.
//!
//! With few key and value heads there are fewer tiles of keys than a GPU computes at the same time. The
//! query heads that share a key and value head are divided into parts; each has its own gradients, which a
//! second kernel adds.

use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::call::Call;
use super::splits::{CUBES_PER_MULTIPROCESSOR, multiprocessors};
use crate::cube::launch::{buffer, empty_like, unit_grid, unit_index};

/// Units per cube of [`add_parts`].
const UNITS: usize = 256;

/// The query heads of a cube.
#[derive(CubeType, Clone, Copy)]
pub(super) struct HeadPart {
    pub(super) kv_head: usize,
    pub(super) first_head: usize,
    pub(super) heads: usize,
    /// The number of the part among those of all heads.
    index: usize,
    parts: usize,
}

#[cube]
impl HeadPart {
    /// The index of the part's gradients.
    pub(super) fn result_head(&self, example: usize) -> usize {
        example * self.parts + self.index
    }
}

/// The part of a cube of a grid `[_, kv_heads * parts, batch]`.
#[cube]
pub(super) fn head_part(call: &Call) -> HeadPart {
    let index = CUBE_POS_Y as usize;
    let parts = CUBE_COUNT_Y as usize;
    let heads = call.heads as usize / parts;
    let first_head = index * heads;
    HeadPart {
        kv_head: first_head / call.group as usize,
        first_head,
        heads,
        index,
        parts,
    }
}

/// The number of parts of each group of query heads: the smallest divisor of `group` with which there are
/// enough cubes for the GPU, where one part has `cubes` of them.
pub(super) fn num_parts(client: &Client, cubes: usize, group: usize) -> usize {
    parts_for(
        CUBES_PER_MULTIPROCESSOR * multiprocessors(client),
        cubes,
        group,
    )
}

fn parts_for(min_cubes: usize, cubes: usize, group: usize) -> usize {
    (1..group)
        .find(|parts| group.is_multiple_of(*parts) && cubes * parts >= min_cubes)
        .unwrap_or(group)
}

/// Adds the gradients `[batch, kv_heads * parts, seq_k, width]` of the parts of each head.
pub(super) fn sum_parts(gradients: CubeTensor, parts: usize) -> CubeTensor {
    if parts == 1 {
        return gradients;
    }
    let [batch, heads, seq_k, width] = gradients.meta.shape().dims();
    let dims = [batch, heads / parts, seq_k, width];
    let sums = empty_like(&gradients, dims, gradients.dtype);
    // SAFETY: the kernel accesses the tensors within these sizes.
    unsafe {
        add_parts::launch_unchecked(
            &gradients.client,
            unit_grid(dims.iter().product(), UNITS),
            CubeDim::new_1d(UNITS as u32),
            buffer(&gradients),
            buffer(&sums),
            parts as u32,
            (seq_k * width) as u32,
            dtype_to_storage_type(gradients.dtype),
        );
    }
    sums
}

/// Each unit computes an element. `size` is the number of elements of a head.
#[cube(launch_unchecked)]
fn add_parts<E: Float>(
    gradients: &[E],
    sums: &mut [E],
    parts: u32,
    size: u32,
    #[define(E)] _dtype: ElemType,
) {
    let index = unit_index();
    if index < sums.len() {
        let size = size as usize;
        let parts = parts as usize;
        let first = index / size * parts * size + index % size;
        let mut sum = 0.0f32;
        for part in 0..parts {
            sum += f32::cast_from(gradients[first + part * size]);
        }
        sums[index] = E::cast_from(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_cubes_or_one_part_for_each_query_head() {
        assert_eq!(parts_for(512, 600, 8), 1);
        assert_eq!(parts_for(512, 512, 8), 1);
        assert_eq!(parts_for(512, 128, 8), 4);
        assert_eq!(parts_for(512, 32, 8), 8);
        assert_eq!(parts_for(512, 300, 6), 2);
        // Divisors only.
        assert_eq!(parts_for(512, 150, 6), 6);
        assert_eq!(parts_for(512, 1, 1), 1);
    }
}
