//! The layout by CubeCL kernels: one operation in Burn's fusion queue.

mod gather;
mod kernels;
mod launch;
mod merge;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{BoolTensor, IntTensor};
use burn::backend::{
    Autodiff, Backend, Cube, DType, Dispatch, ExtensionType, TensorMetadata, backend_extension,
    get_or_init_device_settings,
};
use burn::tensor::{Int, Tensor};

pub(super) use self::gather::launch as sum_rows;
pub(super) use self::launch::is_supported;
use self::launch::{LayoutInputs, launch};
pub(super) use self::merge::merge;
use super::{DeviceLayout, DevicePattern, Method, Sizes};
use crate::cube::op::{self, OperationOutput};
use crate::flash::DenseMask;

/// Sorts the positions by hash and computes the masks.
pub(super) fn layout(hashes: Tensor<2, Int>, pattern: DevicePattern, sizes: Sizes) -> DeviceLayout {
    let hashes = hashes.into_dispatch();
    let rules = Rules {
        is_causal: pattern.is_causal,
        has_lengths: pattern.lengths.is_some(),
    };
    let lengths = match pattern.lengths {
        Some(lengths) => lengths.into_dispatch(),
        // Not read.
        None => hashes.clone(),
    };
    let mask = match pattern.mask {
        Some(mask) => DenseMask::Bool(mask.into_dispatch()),
        None => DenseMask::None,
    };
    let layout = <Dispatch as SortChunks>::sort_chunks(hashes, lengths, mask, rules, sizes);
    let flat = |tensor| Tensor::<4, Int>::from_dispatch(tensor).reshape([-1]);
    DeviceLayout {
        method: Method::Kernels,
        sizes,
        query_rows: flat(layout.query_rows),
        query_slots: flat(layout.query_slots),
        key_rows: flat(layout.key_rows),
        key_slots: flat(layout.key_slots),
        mask: Tensor::from_dispatch(layout.mask),
    }
}

/// The rules of a pattern, besides its tensor mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Rules {
    is_causal: bool,
    has_lengths: bool,
}

/// The tensors of a [`DeviceLayout`], in four dimensions.
#[derive(Debug, Clone, ExtensionType)]
struct LayoutTensors<B: Backend> {
    query_rows: IntTensor<B>,
    query_slots: IntTensor<B>,
    key_rows: IntTensor<B>,
    key_slots: IntTensor<B>,
    mask: BoolTensor<B>,
}

#[backend_extension(
    Autodiff,
    Cube: cfg(feature = "cube"),
)]
trait SortChunks: Backend {
    /// The layout of hashes, `[rows, rounds · digits]`.
    fn sort_chunks(
        hashes: IntTensor<Self>,
        lengths: IntTensor<Self>,
        #[extension_type] mask: DenseMask<Self>,
        rules: Rules,
        sizes: Sizes,
    ) -> LayoutTensors<Self>;
}

/// Neither hashes nor masks have a gradient.
impl<B: SortChunks, C: CheckpointStrategy> SortChunks for Autodiff<B, C> {
    fn sort_chunks(
        hashes: IntTensor<Self>,
        lengths: IntTensor<Self>,
        mask: DenseMask<Self>,
        rules: Rules,
        sizes: Sizes,
    ) -> LayoutTensors<Self> {
        let mask = match mask {
            DenseMask::None => DenseMask::None,
            DenseMask::Bool(mask) => DenseMask::Bool(mask),
        };
        let layout = B::sort_chunks(hashes, lengths, mask, rules, sizes);
        LayoutTensors {
            query_rows: layout.query_rows,
            query_slots: layout.query_slots,
            key_rows: layout.key_rows,
            key_slots: layout.key_slots,
            mask: layout.mask,
        }
    }
}

impl SortChunks for Cube {
    fn sort_chunks(
        hashes: IntTensor<Self>,
        lengths: IntTensor<Self>,
        mask: DenseMask<Self>,
        rules: Rules,
        sizes: Sizes,
    ) -> LayoutTensors<Self> {
        let mask = match mask {
            DenseMask::None => None,
            DenseMask::Bool(mask) => Some(mask),
        };
        let int = hashes.dtype();
        let bool = DType::from(get_or_init_device_settings::<Self>(&hashes.device()).bool_dtype);
        let [sorted_heads, count, size, keys] = sizes.mask_dims();
        let outputs = vec![
            ([sorted_heads, count, size, 1], int),
            ([sizes.rounds, sizes.rows(), 1, 1], int),
            ([sorted_heads, count, keys, 1], int),
            ([sizes.rounds, sizes.copies(), sizes.rows(), 1], int),
            ([sorted_heads, count, size, keys], bool),
        ];
        let dims: Vec<_> = outputs.clone();
        let launch = move |mut inputs: op::OpInputs| {
            let inputs = LayoutInputs {
                hashes: inputs.next(),
                lengths: inputs.next(),
                mask: inputs.mask.take(),
            };
            launch(inputs, &dims, rules, &sizes)
        };
        let tensors = vec![hashes, lengths];
        let [query_rows, query_slots, key_rows, key_slots, mask] =
            op::register("zoo::sort_chunks", mask, tensors, outputs, launch).outputs();
        LayoutTensors {
            query_rows,
            query_slots,
            key_rows,
            key_slots,
            mask,
        }
    }
}
