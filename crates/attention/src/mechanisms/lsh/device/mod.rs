//! LSH attention without work on the host: positions are hashed, sorted and masked on the device.
//!
//! The layout is computed by [CubeCL kernels](cube) or, with LibTorch on CUDA, by [tensor
//! operations](tensors). All rounds are one call of flash attention: `[rounds · batch · heads, chunks,
//! size, width]`, with the keys of the previous chunk and of the chunk itself.

#[cfg(feature = "cube")]
mod cube;
mod gather;
#[cfg(feature = "tch")]
mod tensors;
#[cfg(test)]
mod tests;

#[cfg(feature = "tch")]
use burn::backend::BackendTensor;
use burn::backend::DispatchTensorKind;
#[cfg(feature = "cube")]
use burn::backend::TensorMetadata;
use burn::tensor::{Bool, Device, Int, Tensor};
use zoo_spec::Lsh;

pub(in crate::mechanisms) use self::gather::gather_rows;
use super::chunks::Chunks;
use super::hashing::{nearest, round_directions};
use crate::flash::{flash_with_log_sum_exp, has_kernels};
use crate::pattern::rule::Rule;
use crate::{AttentionOptions, AttentionShape, Pattern};

/// The sizes of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    batch: usize,
    heads: usize,
    seq: usize,
    chunks: Chunks,
    rounds: usize,
    /// Digits of a hash: 2 if it is a pair.
    digits: usize,
    /// Number of values of a digit.
    base: usize,
}

impl Sizes {
    fn new(hashing: &Lsh, shape: &AttentionShape) -> Self {
        let [batch, heads, _, seq] = shape.scores();
        let (chunks, rounds) = Chunks::new(hashing, seq);
        let directions = round_directions(hashing, seq);
        Self {
            batch,
            heads,
            seq,
            chunks,
            rounds,
            digits: directions.hashes,
            base: 2 * directions.each,
        }
    }

    /// Heads of all examples.
    fn all_heads(&self) -> usize {
        self.batch * self.heads
    }

    /// Positions of all heads.
    fn rows(&self) -> usize {
        self.all_heads() * self.seq
    }

    /// Heads of all examples in all rounds.
    fn sorted_heads(&self) -> usize {
        self.rounds * self.all_heads()
    }

    /// Number of chunks that a position is a key of, in each round.
    fn copies(&self) -> usize {
        self.chunks.keys() / self.chunks.size
    }

    /// The dimensions of the mask.
    fn mask_dims(&self) -> [usize; 4] {
        let Chunks { count, size } = self.chunks;
        [self.sorted_heads(), count, size, self.chunks.keys()]
    }
}

/// A pattern whose mask can be computed on the device.
struct DevicePattern {
    is_causal: bool,
    /// `[batch]`.
    lengths: Option<Tensor<1, Int>>,
    /// Broadcasts to `[batch, heads, seq, seq]`; `true` masks.
    mask: Option<Tensor<4, Bool>>,
}

impl DevicePattern {
    /// `None` if a rule of the pattern is neither causal nor key lengths.
    fn new(op: &str, pattern: &Pattern, shape: &AttentionShape, device: &Device) -> Option<Self> {
        let (rule, mask) = pattern.split(op, shape, device);
        let mut rules = SimpleRules::default();
        if !rules.add(&rule) {
            return None;
        }
        let lengths = rules.lengths.map(|lengths| {
            let lengths: Vec<i32> = lengths.into_iter().map(|length| length as i32).collect();
            Tensor::from_ints(lengths.as_slice(), device)
        });
        Some(Self {
            is_causal: rules.is_causal,
            lengths,
            mask,
        })
    }
}

/// A conjunction of rules.
#[derive(Default)]
struct SimpleRules {
    is_causal: bool,
    lengths: Option<Vec<usize>>,
}

impl SimpleRules {
    /// Adds a rule; `false` if it is of another kind.
    fn add(&mut self, rule: &Rule) -> bool {
        match rule {
            Rule::Full => true,
            // There are as many queries as keys, so indices are positions.
            Rule::Causal => {
                self.is_causal = true;
                true
            }
            Rule::KeyLengths(lengths) => {
                let shorter = match self.lengths.take() {
                    Some(other) => other.iter().zip(lengths).map(|(a, b)| *a.min(b)).collect(),
                    None => lengths.clone(),
                };
                self.lengths = Some(shorter);
                true
            }
            Rule::And(a, b) => self.add(a) && self.add(b),
            Rule::Window { .. }
            | Rule::Block { .. }
            | Rule::Blocks { .. }
            | Rule::Strided { .. }
            | Rule::SummaryColumns(_)
            | Rule::Monotonic { .. }
            | Rule::BlockCausal(_)
            | Rule::Global(_)
            | Rule::Documents(_)
            | Rule::Predicate(_)
            | Rule::Or(..) => false,
        }
    }
}

/// The chunks of all rounds. Rows are those of `[batch, heads, seq]`; slots those of
/// `[rounds, batch, heads, chunks, size]`, or `keys` instead of `size`.
pub(super) struct DeviceLayout {
    /// How it was computed, and how its rounds are merged.
    method: Method,
    sizes: Sizes,
    /// The row in each slot of the queries; the first of its head for padding.
    query_rows: Tensor<1, Int>,
    /// `[rounds, rows]`: the slot of each query.
    query_slots: Tensor<1, Int>,
    /// The row in each slot of the keys; likewise.
    key_rows: Tensor<1, Int>,
    /// `[rounds, copies, rows]`: the slots of each key, in its own chunk and in the next.
    key_slots: Tensor<1, Int>,
    /// `[rounds · batch · heads, chunks, size, keys]`: `true` masks.
    mask: Tensor<4, Bool>,
}

impl DeviceLayout {
    /// `None` if the layout cannot be computed on the device of the queries.
    pub(super) fn new(
        op: &str,
        hashing: &Lsh,
        query: &Tensor<4>,
        pattern: &Pattern,
        shape: &AttentionShape,
    ) -> Option<Self> {
        let sizes = Sizes::new(hashing, shape);
        let method = Method::of(&query.clone().into_dispatch().kind, &sizes)?;
        let pattern = DevicePattern::new(op, pattern, shape, &query.device())?;
        Some(method.layout(hashes(hashing, query, &sizes), pattern, sizes))
    }
}

/// The digits of the hash of every query in every round, `[rows, rounds · digits]`; zeros if there
/// is one chunk only.
fn hashes(hashing: &Lsh, query: &Tensor<4>, sizes: &Sizes) -> Tensor<2, Int> {
    match sizes.chunks.count {
        1 => Tensor::zeros([sizes.rows(), sizes.digits], &query.device()),
        _ => nearest(hashing, query),
    }
}

/// How a layout is computed on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    #[cfg(feature = "cube")]
    Kernels,
    #[cfg(feature = "tch")]
    TensorOps,
}

impl Method {
    /// The method for the device of a tensor.
    #[allow(unused_variables)] // depends on the features
    fn of(kind: &DispatchTensorKind, sizes: &Sizes) -> Option<Self> {
        match kind {
            _ if !has_kernels(kind) => None,
            DispatchTensorKind::Autodiff(inner) => Self::of(inner, sizes),
            #[cfg(feature = "tch")]
            DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => {
                Self::of_libtorch(&tensor.tensor)
            }
            #[cfg(feature = "tch")]
            DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
                Self::of_libtorch(&tensor.primitive().tensor)
            }
            #[cfg(feature = "cube")]
            DispatchTensorKind::Cube(tensor) => {
                cube::is_supported(&tensor.device(), sizes).then_some(Self::Kernels)
            }
            #[allow(unreachable_patterns)] // depends on the features
            _ => None,
        }
    }

    /// In host memory, the CPU kernels gather the tiles of a plan.
    #[cfg(feature = "tch")]
    fn of_libtorch(tensor: &tch::Tensor) -> Option<Self> {
        matches!(tensor.device(), tch::Device::Cuda(_)).then_some(Self::TensorOps)
    }

    #[allow(unused_variables)] // depends on the features
    fn layout(self, hashes: Tensor<2, Int>, pattern: DevicePattern, sizes: Sizes) -> DeviceLayout {
        match self {
            #[cfg(feature = "cube")]
            Self::Kernels => cube::layout(hashes, pattern, sizes),
            #[cfg(feature = "tch")]
            Self::TensorOps => tensors::layout(hashes, &pattern, sizes),
        }
    }
}

/// LSH attention within the chunks of a layout, for `f32` tensors `[batch, heads, seq, _]`.
pub(super) fn attend(
    [query, key, value]: [Tensor<4>; 3],
    layout: DeviceLayout,
    options: &AttentionOptions,
) -> Tensor<4> {
    let sizes = layout.sizes;
    let Sizes {
        batch, heads, seq, ..
    } = sizes;
    let [sorted_heads, count, size, keys] = sizes.mask_dims();
    let flat = |tensor: Tensor<4>| {
        let [.., width] = tensor.dims();
        tensor.reshape([sizes.rows(), width])
    };
    let in_chunks = |tensor: Tensor<2>, length| {
        let [_, width] = tensor.dims();
        tensor.reshape([sorted_heads, count, length, width])
    };
    let query = gather_rows(flat(query), &layout.query_rows, &layout.query_slots);
    let [key, value] =
        [key, value].map(|tensor| gather_rows(flat(tensor), &layout.key_rows, &layout.key_slots));
    let part = flash_with_log_sum_exp(
        in_chunks(query, size),
        in_chunks(key, keys),
        in_chunks(value, keys),
        &options
            .clone()
            .with_pattern(Pattern::Dense(layout.mask.clone())),
    );
    let merged = match layout.method {
        #[cfg(feature = "cube")]
        Method::Kernels => cube::merge(part, &layout),
        #[cfg(feature = "tch")]
        Method::TensorOps => tensors::merge(part, &layout),
    };
    let [_, d_value] = merged.dims();
    merged.reshape([batch, heads, seq, d_value])
}
