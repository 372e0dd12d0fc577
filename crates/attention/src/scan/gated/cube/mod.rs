//! The parts of a gated recurrence that are sequential, as CubeCL kernels: the recurrence over chunks and
//! the inverse within one. Everything else is parallel and composed of matmuls.
//!
//! ```text
//! forward, from the first chunk        backward, from the last chunk
//! U_n     = V_n - W_n S_n              dU_n = dU_n + K_n dS_(n+1)
//! S_(n+1) = a_n S_n + K_nᵀ U_n         dS_n = a_n dS_(n+1) + dS_n - W_nᵀ dU_n
//! ```
//!
//! with the names of [`chunks`](super::chunks): `V` is the value, `W` what is erased, `K` the keys with the
//! decay to the end. Both directions are one kernel with other operands. The gradients of `K` and `W` are
//! matmuls of what it returns, and another kernel sums that of `a`.

// See `scan/cube`.
#![allow(clippy::collapsible_if)]

mod kernels;
mod launch;

use std::ops::Range;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Cube, DType, Dispatch, DispatchTensorKind, ExtensionType, Slice,
    TensorMetadata, backend_extension,
};
use burn::tensor::Tensor;
use zoo_kernels::autodiff::{SecondGradient, Step, record};

use self::kernels::{DecayKind, Direction};
use self::launch::{ScanTensors, is_supported, launch_decay_gradient, launch_inverse, launch_scan};
use super::chunks::{CHUNK, CHUNK_OF_ROWS};
use crate::AttentionShape;
use crate::cube::op::{self, OperationOutput};
use crate::matmul::TileOps;

/// The operands of a recurrence over chunks, `[batch, kv_heads, count, rows, columns]`.
pub(super) struct ChunkTensors<'a> {
    /// `[.., size, d_head]`
    pub(super) key: &'a Tensor<5>,
    /// `[.., size, d_value]`
    pub(super) value: &'a Tensor<5>,
    /// `[.., size, d_head]`, with the delta rule.
    pub(super) erased: Option<&'a Tensor<5>>,
    /// `[.., 1, 1 or d_head]`; `None` is 1.
    pub(super) decay: Option<&'a Tensor<5>>,
    /// `[batch, kv_heads, d_head, d_value]`; `None` is zero.
    pub(super) initial: Option<&'a Tensor<4>>,
}

/// The states before each chunk, `[batch, kv_heads, count, d_head, d_value]`; the rows that change them,
/// `[batch, kv_heads, count, size, d_value]`; and the state after the last chunk. `None` if the device has
/// no kernel for the call.
pub(super) fn scan(tensors: &ChunkTensors<'_>) -> Option<(Tensor<5>, Tensor<5>, Tensor<4>)> {
    let [batch, kv_heads, count, size, d_head] = tensors.key.dims();
    let [.., width] = tensors.value.dims();
    let settings = ChunkSettings {
        heads: batch * kv_heads,
        count,
        size,
        d_head,
        width,
        decay: match tensors.decay.map(|decay| decay.dims()[4]) {
            None => DecayKind::None,
            Some(1) => DecayKind::Scalar,
            Some(_) => DecayKind::Rows,
        },
        is_delta: tensors.erased.is_some(),
        has_initial: tensors.initial.is_some(),
    };
    let key = flat(tensors.key);
    if !has_kernel(&key.clone().into_dispatch().kind, &settings) {
        return None;
    }
    // Not read, and without a gradient.
    let unused = || Tensor::<4>::zeros([1; 4], &key.device());
    let optional = |tensor: Option<Tensor<4>>| tensor.unwrap_or_else(unused).into_dispatch();
    let initial = tensors.initial.map(|initial| {
        let state = initial.clone();
        state.reshape([settings.heads, 1, d_head, width])
    });
    let inputs = ChunkInputs::<Dispatch> {
        key: key.clone().into_dispatch(),
        value: flat(tensors.value).into_dispatch(),
        erased: optional(tensors.erased.map(flat)),
        decay: optional(tensors.decay.map(flat)),
        initial: optional(initial),
    };
    let outputs = <Dispatch as ChunkScan>::chunk_scan(inputs, settings);
    let states = Tensor::<4>::from_dispatch(outputs.states);
    let last = states.clone().slice_dim(1, count..count + 1);
    let before = states.slice_dim(1, 0..count);
    let rows = Tensor::<4>::from_dispatch(outputs.rows);
    Some((
        before.reshape([batch, kv_heads, count, d_head, width]),
        rows.reshape([batch, kv_heads, count, size, width]),
        last.reshape([batch, kv_heads, d_head, width]),
    ))
}

fn flat(tensor: &Tensor<5>) -> Tensor<4> {
    let [batch, heads, count, rows, columns] = tensor.dims();
    tensor
        .clone()
        .reshape([batch * heads, count, rows, columns])
}

fn has_kernel(kind: &DispatchTensorKind, settings: &ChunkSettings) -> bool {
    match kind {
        _ if zoo_kernels::reference::is_enabled() => false,
        DispatchTensorKind::Autodiff(inner) => has_kernel(inner, settings),
        DispatchTensorKind::Cube(tensor) => is_supported(&tensor.device(), settings),
        #[allow(unreachable_patterns)] // depends on the features
        _ => false,
    }
}

/// Whether the device of a tensor has a kernel for calls of this shape.
pub(super) fn supports(tensor: &Tensor<4>, shape: &AttentionShape) -> bool {
    let settings = ChunkSettings {
        heads: shape.batch * shape.kv_heads,
        // Of all gates, the most chunks and the largest ones.
        count: shape.seq_k.div_ceil(CHUNK_OF_ROWS),
        size: shape.seq_k.min(CHUNK),
        d_head: shape.d_head,
        width: shape.d_value,
        decay: DecayKind::Rows,
        is_delta: true,
        has_initial: true,
    };
    has_kernel(&tensor.clone().into_dispatch().kind, &settings)
}

/// The inverses of `I + B` for strictly lower triangular matrices `B`, `[count, size, size]`; `None` if the
/// device has no kernel for this size.
pub(super) fn inverse(lower: &Tensor<3>) -> Option<Tensor<3>> {
    let dims @ [count, size, _] = lower.dims();
    let lower = lower.clone().reshape([1, count, size, size]);
    // The limits of a recurrence are stricter.
    let settings = ChunkSettings {
        heads: 1,
        count,
        size,
        d_head: 1,
        width: 1,
        decay: DecayKind::None,
        is_delta: false,
        has_initial: false,
    };
    let lower = lower.into_dispatch();
    if !has_kernel(&lower.kind, &settings) {
        return None;
    }
    let inverse = Tensor::<4>::from_dispatch(<Dispatch as ChunkScan>::unit_lower_inverse(lower));
    Some(inverse.reshape(dims))
}

/// The sizes of a recurrence, and which of its terms are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunkSettings {
    /// Examples times key/value heads.
    heads: usize,
    count: usize,
    size: usize,
    d_head: usize,
    width: usize,
    decay: DecayKind,
    is_delta: bool,
    has_initial: bool,
}

/// [`ChunkTensors`] with `batch · kv_heads` in one dimension. Terms that are not present are not read.
#[derive(Debug, Clone, ExtensionType)]
struct ChunkInputs<B: Backend> {
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    erased: FloatTensor<B>,
    decay: FloatTensor<B>,
    /// `[heads, 1, d_head, width]`
    initial: FloatTensor<B>,
}

#[derive(Debug, Clone, ExtensionType)]
struct ChunkOutputs<B: Backend> {
    /// `[heads, count + 1, d_head, width]`
    states: FloatTensor<B>,
    /// `[heads, count, size, width]`
    rows: FloatTensor<B>,
}

#[backend_extension(
    Autodiff,
    Cube: cfg(feature = "cube"),
)]
trait ChunkScan: Backend {
    fn chunk_scan(
        #[extension_type] inputs: ChunkInputs<Self>,
        settings: ChunkSettings,
    ) -> ChunkOutputs<Self>;

    /// `[1, count, size, size]`
    fn unit_lower_inverse(lower: FloatTensor<Self>) -> FloatTensor<Self>;
}

trait ChunkScanBackward: ChunkScan + TileOps {
    /// The gradients of the states and the rows of a call.
    fn chunk_scan_backward(
        inputs: &ChunkInputs<Self>,
        states: FloatTensor<Self>,
        d_states: FloatTensor<Self>,
        d_rows: Option<FloatTensor<Self>>,
        settings: ChunkSettings,
    ) -> Gradients<Self>;
}

/// Gradients that include what reaches a state or a row through later chunks.
struct Gradients<B: Backend> {
    states: FloatTensor<B>,
    rows: FloatTensor<B>,
    decay: Option<FloatTensor<B>>,
}

impl ChunkScan for Cube {
    fn chunk_scan(inputs: ChunkInputs<Self>, settings: ChunkSettings) -> ChunkOutputs<Self> {
        let mut outputs = vec![(settings.states_dims(), DType::F32)];
        if settings.is_delta {
            outputs.push((settings.rows_dims(), DType::F32));
        }
        let value = inputs.value.clone();
        let tensors = vec![
            inputs.erased,
            inputs.key,
            inputs.value,
            inputs.decay,
            inputs.initial,
        ];
        let launch = move |mut inputs: op::OpInputs| {
            let tensors = ScanTensors {
                left: inputs.next(),
                right: inputs.next(),
                rows: Some(inputs.next()),
                decay: inputs.next(),
                added: inputs.next(),
            };
            let (states, rows) = launch_scan(tensors, &settings, Direction::Forward);
            [Some(states), rows].into_iter().flatten().collect()
        };
        let mut outputs =
            op::register("zoo::chunk_scan", None, tensors, outputs, launch).into_iter();
        ChunkOutputs {
            states: outputs.next().expect("the states"),
            // Without the delta rule the values are added unchanged.
            rows: outputs.next().unwrap_or(value),
        }
    }

    fn unit_lower_inverse(lower: FloatTensor<Self>) -> FloatTensor<Self> {
        let dims = lower.shape().dims::<4>();
        let outputs = vec![(dims, DType::F32)];
        let launch = |mut inputs: op::OpInputs| vec![launch_inverse(inputs.next())];
        let [inverse] = op::register(
            "zoo::unit_lower_inverse",
            None,
            vec![lower],
            outputs,
            launch,
        )
        .outputs();
        inverse
    }
}

impl ChunkScanBackward for Cube {
    fn chunk_scan_backward(
        inputs: &ChunkInputs<Self>,
        states: FloatTensor<Self>,
        d_states: FloatTensor<Self>,
        d_rows: Option<FloatTensor<Self>>,
        settings: ChunkSettings,
    ) -> Gradients<Self> {
        let mut outputs = vec![settings.states_dims(), settings.rows_dims()];
        outputs.extend(settings.decay_dims());
        let outputs = outputs.into_iter().map(|dims| (dims, DType::F32)).collect();
        let inputs = inputs.clone();
        let mut tensors = vec![states, inputs.key, inputs.erased, inputs.decay, d_states];
        tensors.extend(d_rows);
        let launch = move |mut inputs: op::OpInputs| {
            let [before, left, right, decay, added] = [(); 5].map(|()| inputs.next());
            let tensors = ScanTensors {
                left,
                right,
                rows: inputs.floats.next(),
                decay,
                added,
            };
            let (states, rows) = launch_scan(tensors, &settings, Direction::Backward);
            let decay = launch_decay_gradient(before, &states, &settings);
            [Some(states), rows, decay].into_iter().flatten().collect()
        };
        let name = "zoo::chunk_scan_backward";
        let mut outputs = op::register(name, None, tensors, outputs, launch).into_iter();
        let mut next = || outputs.next();
        Gradients {
            states: next().expect("gradients of the states"),
            rows: next().expect("gradients of the rows"),
            decay: next(),
        }
    }
}

/// The state saved for the backward pass.
#[derive(Debug, Clone)]
struct Saved<B: Backend> {
    inputs: ChunkInputs<B>,
    outputs: ChunkOutputs<B>,
    d_rows: SecondGradient<B>,
    settings: ChunkSettings,
}

impl<B: ChunkScanBackward, C: CheckpointStrategy> ChunkScan for Autodiff<B, C> {
    fn chunk_scan(inputs: ChunkInputs<Self>, settings: ChunkSettings) -> ChunkOutputs<Self> {
        let ChunkInputs {
            key,
            value,
            erased,
            decay,
            initial,
        } = inputs;
        let value_tensor = value.clone();
        let tensors = [key, value, erased, decay, initial];
        let parents = tensors.each_ref().map(|tensor| tensor.node());
        let [key, value, erased, decay, initial] = tensors.map(|tensor| tensor.into_primitive());
        let inputs = ChunkInputs::<B> {
            key,
            value,
            erased,
            decay,
            initial,
        };
        let outputs = B::chunk_scan(inputs.clone(), settings);
        let d_rows = SecondGradient::<B>::default();
        let saved = Saved {
            inputs,
            outputs: outputs.clone(),
            d_rows: d_rows.clone(),
            settings,
        };
        let states = record::<B, C, _, 5>(Step(backward::<B>), parents, saved, outputs.states);
        let rows = if settings.is_delta {
            d_rows.record::<C>(&states, outputs.rows)
        } else {
            value_tensor
        };
        ChunkOutputs { states, rows }
    }

    fn unit_lower_inverse(lower: FloatTensor<Self>) -> FloatTensor<Self> {
        let parents = [lower.node()];
        let inverse = B::unit_lower_inverse(lower.into_primitive());
        // The derivative of an inverse T is -T dB T.
        let step = Step::<B, FloatTensor<B>, 1>(|inverse, output_grad| {
            let transposed = B::float_transpose(inverse);
            let product = B::f32_matmul(transposed.clone(), output_grad);
            [B::float_neg(B::f32_matmul(product, transposed))]
        });
        record::<B, C, _, 1>(step, parents, inverse.clone(), inverse)
    }
}

/// The gradients of the inputs; those of absent ones are not used.
fn backward<B: ChunkScanBackward>(
    saved: Saved<B>,
    d_states: FloatTensor<B>,
) -> [FloatTensor<B>; 5] {
    let Saved {
        inputs,
        outputs,
        d_rows,
        settings,
    } = saved;
    let count = settings.count;
    let states = outputs.states;
    let grads = B::chunk_scan_backward(&inputs, states.clone(), d_states, d_rows.take(), settings);
    let d_initial = chunks::<B>(grads.states.clone(), 0..1);
    let d_after = chunks::<B>(grads.states, 1..count + 1);
    let product = |rows, state| B::f32_matmul(rows, B::float_transpose(state));
    let d_key = product(outputs.rows, d_after);
    let d_erased = if settings.is_delta {
        let before = chunks::<B>(states, 0..count);
        B::float_neg(product(grads.rows.clone(), before))
    } else {
        inputs.erased
    };
    let d_decay = grads.decay.unwrap_or(inputs.decay);
    [d_key, grads.rows, d_erased, d_decay, d_initial]
}

/// Some matrices of each head.
fn chunks<B: Backend>(states: FloatTensor<B>, range: Range<usize>) -> FloatTensor<B> {
    let [heads, _, rows, columns] = states.shape().dims();
    let ranges = [0..heads, range, 0..rows, 0..columns];
    let slices = ranges.map(Slice::from);
    B::float_slice(states, &slices)
}
