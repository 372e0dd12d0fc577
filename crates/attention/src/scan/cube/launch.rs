//! Kernel launches.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::{ElemType, UIntKind};
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::attend::{Output, attend};
use super::call::{CallLaunch, Kind, Map, ScanArgsLaunch};
use super::states::{Order, SCAN_UNITS, Summed, scan_states, sum_states};
use super::support::tile;
use super::tile::CHUNK;
use crate::AttentionShape;
use crate::cube::delta::deltas;
use crate::cube::launch::{
    buffer, cube_count, empty_like, has_aligned_rows, into_contiguous_rows, word_buffer,
};
use crate::cube::rows::TensorStridesLaunch;
use crate::memo::Memo;
use crate::scan::call::{ScanMap, ScanSettings};

pub(super) struct KernelInputs {
    pub(super) query: CubeTensor,
    pub(super) key: CubeTensor,
    pub(super) value: CubeTensor,
    pub(super) masked: Option<CubeTensor>,
}

/// Saved results of the forward pass and output gradients.
pub(super) struct BackwardInputs {
    /// Not read for retention.
    pub(super) context: CubeTensor,
    /// Likewise.
    pub(super) denominators: CubeTensor,
    pub(super) d_context: CubeTensor,
}

/// The chunks of a call, and the blocks of 64 elements of its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    /// The positions of the first query and the first key.
    first_query: usize,
    first_key: usize,
    /// Chunks whose keys are summed, and whose queries are.
    pub(super) keys: usize,
    pub(super) queries: usize,
    /// Blocks of features and of values.
    pub(super) blocks: [usize; 2],
}

impl Chunks {
    pub(super) fn new(shape: &AttentionShape, is_causal: bool) -> Self {
        let AttentionShape { seq_q, seq_k, .. } = *shape;
        let blocks = [shape.d_head, shape.d_value].map(|width| width.div_ceil(CHUNK));
        if !is_causal {
            return Self {
                first_query: 0,
                first_key: 0,
                keys: seq_k.div_ceil(CHUNK),
                queries: seq_q.div_ceil(CHUNK),
                blocks,
            };
        }
        // Aligned at the end.
        let length = seq_q.max(seq_k);
        Self {
            first_query: length - seq_q,
            first_key: length - seq_k,
            keys: length.div_ceil(CHUNK),
            queries: length.div_ceil(CHUNK),
            blocks,
        }
    }

    /// The size of the states of all chunks.
    pub(super) fn state_bytes(&self, shape: &AttentionShape) -> u64 {
        let states = shape.batch * shape.kv_heads * self.keys.max(self.queries);
        (states * state_vec4s(shape, true) * 16) as u64
    }
}

/// Vec4s of a state `[features, d_value]`, whose sizes are padded to multiples of four, and of the
/// sums of its features.
fn state_vec4s(shape: &AttentionShape, has_totals: bool) -> usize {
    let (features, values) = (shape.d_head.div_ceil(4), shape.d_value.div_ceil(4));
    4 * features * values + if has_totals { features } else { 0 }
}

/// The context, and the sums of weights.
pub(super) fn launch_forward(inputs: KernelInputs, settings: &ScanSettings) -> [CubeTensor; 2] {
    let shape = &settings.shape;
    let args = LaunchArgs::new(inputs, None, settings);
    let states = args.states(Summed::Keys);
    let dims = |width| [shape.batch, shape.heads, shape.seq_q, width];
    let context = empty_like(&args.query, dims(shape.d_value), args.query.dtype);
    let denominators = empty_like(&args.query, dims(1), DType::F32);
    args.attend(&states, Output::Context, &context, &denominators);
    [context, denominators]
}

/// The gradients of query, key and value.
pub(super) fn launch_backward(
    inputs: KernelInputs,
    saved: BackwardInputs,
    settings: &ScanSettings,
) -> [CubeTensor; 3] {
    let args = LaunchArgs::new(inputs, Some(saved), settings);
    let grad = |tensor: &CubeTensor| empty_like(tensor, tensor.meta.shape().dims(), tensor.dtype);
    let grads = [&args.query, &args.key, &args.value].map(grad);
    let [d_query, d_key, d_value] = &grads;
    let attend = |states: &States, output, grad: &CubeTensor| {
        // Sums of weights are written with the context only.
        args.attend(states, output, grad, grad);
    };
    attend(&args.states(Summed::Keys), Output::QueryGrad, d_query);
    let states = args.states(Summed::Queries);
    attend(&states, Output::KeyGrad, d_key);
    attend(&states, Output::ValueGrad, d_value);
    grads
}

/// States that are sums over chunks.
struct States {
    tensor: CubeTensor,
    chunks: usize,
}

/// The tensors of a call, with contiguous rows.
struct LaunchArgs<'a> {
    client: Client,
    shape: &'a AttentionShape,
    scale: [f64; 2],
    chunks: Chunks,
    kind: Kind,
    query: CubeTensor,
    key: CubeTensor,
    value: CubeTensor,
    masked: Option<CubeTensor>,
    /// The value in the forward pass, where it is not read.
    d_context: CubeTensor,
    /// Sums of weights and `dO · O`; the query where they are not read.
    denominators: CubeTensor,
    deltas: CubeTensor,
    powers: Option<Handle>,
    /// Elements per load: 4 if all rows are aligned, else 1.
    vector_width: usize,
}

impl<'a> LaunchArgs<'a> {
    fn new(
        inputs: KernelInputs,
        saved: Option<BackwardInputs>,
        settings: &'a ScanSettings,
    ) -> Self {
        let shape = &settings.shape;
        let client = inputs.query.client.clone();
        let (map, decays) = match &settings.map {
            ScanMap::Elu1 => (Map::Elu1, None),
            ScanMap::Relu => (Map::Relu, None),
            ScanMap::Features => (Map::Identity, None),
            ScanMap::Exponential(_) => panic!("random features are computed before the scan"),
            ScanMap::Decay(decays) => (Map::Identity, Some(decays)),
        };
        let kind = Kind {
            map,
            is_causal: settings.is_causal,
            has_mask: inputs.masked.is_some(),
            is_normalised: settings.map.is_normalised(),
            has_decay: decays.is_some(),
            tile: tile(&client),
        };
        let [query, key, value] =
            [inputs.query, inputs.key, inputs.value].map(into_contiguous_rows);
        let is_aligned = |tensor: &CubeTensor| has_aligned_rows(tensor, 4);
        let is_even = shape.d_head.is_multiple_of(4) && shape.d_value.is_multiple_of(4);
        let mut vector_width = 1;
        let (d_context, denominators, deltas) = match saved {
            None => {
                if is_even && [&query, &key, &value].into_iter().all(is_aligned) {
                    vector_width = 4;
                }
                (value.clone(), query.clone(), query.clone())
            }
            Some(saved) => {
                let d_context = into_contiguous_rows(saved.d_context);
                let tensors = [&query, &key, &value, &d_context];
                if is_even && tensors.into_iter().all(is_aligned) {
                    vector_width = 4;
                }
                if kind.is_normalised {
                    let context = into_contiguous(saved.context);
                    let deltas = deltas(&context, 0, &d_context, None, vector_width);
                    (d_context, into_contiguous(saved.denominators), deltas)
                } else {
                    (d_context, query.clone(), query.clone())
                }
            }
        };
        Self {
            powers: decays.map(|decays| powers(&query, decays)),
            client,
            shape,
            scale: settings.scale,
            chunks: Chunks::new(shape, settings.is_causal),
            kind,
            query,
            key,
            value,
            masked: inputs.masked,
            d_context,
            denominators,
            deltas,
            vector_width,
        }
    }

    fn state_vec4s(&self) -> usize {
        state_vec4s(self.shape, self.kind.is_normalised)
    }

    /// The sums over chunks.
    fn states(&self, summed: Summed) -> States {
        let AttentionShape {
            batch, kv_heads, ..
        } = *self.shape;
        let (chunks, in_order) = match summed {
            Summed::Keys => (self.chunks.keys, Order::Ascending),
            Summed::Queries => (self.chunks.queries, Order::Descending),
        };
        let order = if self.kind.is_causal {
            in_order
        } else {
            Order::Total
        };
        let vec4s = self.state_vec4s();
        let tensor = empty_like(
            &self.query,
            [batch, kv_heads, chunks, 4 * vec4s],
            DType::F32,
        );
        let states = States { tensor, chunks };
        let [feature_blocks, value_blocks] = self.chunks.blocks;
        let blocks = feature_blocks * value_blocks;
        // SAFETY: the kernel accesses the tensors within the sizes passed in `call`.
        unsafe {
            sum_states::launch_unchecked(
                &self.client,
                cube_count([chunks * blocks, kv_heads, batch]),
                CubeDim::new_1d(self.kind.tile.units() as u32),
                self.vector_width,
                self.scan_args(&states),
                buffer(&states.tensor),
                blocks as u32,
                value_blocks as u32,
                summed,
                self.elem(),
                self.mask_elem(),
            );
        }
        // SAFETY: the states have this size.
        unsafe {
            scan_states::launch_unchecked(
                &self.client,
                cube_count([vec4s.div_ceil(SCAN_UNITS), kv_heads, batch]),
                CubeDim::new_1d(SCAN_UNITS as u32),
                buffer(&states.tensor),
                self.powers(),
                chunks as u32,
                vec4s as u32,
                order,
                self.kind.has_decay,
            );
        }
        states
    }

    fn attend(
        &self,
        states: &States,
        output: Output,
        results: &CubeTensor,
        denominators: &CubeTensor,
    ) {
        let [batch, heads, rows, width] = results.meta.shape().dims();
        let first = if output.like().has_queries() {
            self.chunks.first_query
        } else {
            self.chunks.first_key
        };
        let first_chunk = first / CHUNK;
        let chunks = (first + rows).div_ceil(CHUNK) - first_chunk;
        let blocks = width.div_ceil(CHUNK);
        // SAFETY: as in `states`.
        unsafe {
            attend::launch_unchecked(
                &self.client,
                cube_count([chunks * blocks, heads, batch]),
                CubeDim::new_1d(self.kind.tile.units() as u32),
                self.vector_width,
                self.scan_args(states),
                buffer(&states.tensor),
                buffer(results),
                buffer(denominators),
                first_chunk as u32,
                blocks as u32,
                output,
                self.elem(),
                self.mask_elem(),
            );
        }
    }

    fn elem(&self) -> ElemType {
        dtype_to_storage_type(self.query.dtype)
    }

    fn mask_elem(&self) -> ElemType {
        let masked = self.masked.as_ref();
        masked.map_or(ElemType::UInt(UIntKind::U32), |masked| {
            dtype_to_storage_type(masked.dtype)
        })
    }

    fn powers(&self) -> BufferArg {
        let powers = self.powers.as_ref();
        powers.map_or_else(|| buffer(&self.query), word_buffer)
    }

    fn scan_args<E: Float, N: Size, M: Numeric>(&self, states: &States) -> ScanArgsLaunch<E, N, M> {
        let shape = self.shape;
        let masked_stride = |dim: usize| match &self.masked {
            Some(masked) if masked.meta.shape()[dim] > 1 => masked.meta.strides()[dim] as u32,
            _ => 0,
        };
        let call = CallLaunch::new(
            shape.heads as u32,
            shape.group() as u32,
            shape.seq_q as u32,
            shape.seq_k as u32,
            shape.d_head as u32,
            shape.d_value as u32,
            TensorStridesLaunch::from_tensor(&self.query),
            TensorStridesLaunch::from_tensor(&self.key),
            TensorStridesLaunch::from_tensor(&self.value),
            TensorStridesLaunch::from_tensor(&self.d_context),
            masked_stride(0),
            masked_stride(2),
            self.scale[0] as f32,
            self.scale[1] as f32,
            self.chunks.first_query as u32,
            self.chunks.first_key as u32,
            states.chunks as u32,
            self.state_vec4s() as u32,
            f32::NAN.to_bits(),
        );
        ScanArgsLaunch::new(
            buffer(&self.query),
            buffer(&self.key),
            buffer(&self.value),
            buffer(&self.d_context),
            buffer(self.masked.as_ref().unwrap_or(&self.query)),
            buffer(&self.denominators),
            buffer(&self.deltas),
            self.powers(),
            call,
            self.kind,
        )
    }
}

/// Powers of decays in device memory. A model uses the same in every layer and step.
static POWERS: Memo<(Vec<u64>, String), Handle> = Memo::new();

/// `[kv_heads, CHUNK + 1]`
fn powers(query: &CubeTensor, decays: &[f64]) -> Handle {
    let bits = decays.iter().map(|decay| decay.to_bits()).collect();
    let handle = POWERS.get((bits, format!("{:?}", query.device)), |_| {
        let powers: Vec<f32> = decays
            .iter()
            .flat_map(|decay| (0..=CHUNK).map(|exponent| decay.powi(exponent as i32) as f32))
            .collect();
        query.client.create_from_slice(f32::as_bytes(&powers))
    });
    Handle::clone(&handle)
}
