//! The recurrence of a layer: its sequential part, as one op with a hand-written backward pass
//! (backpropagation through time).
//!
//! The gates and states of each position are saved for the backward pass; the gradient of the
//! recurrent matrix is one matmul over all positions.
//!
//! Flex, NdArray and LibTorch on the CPU have their own kernel: each thread processes some rows of
//! the batch over the whole sequence, without synchronisation between positions. Other backends use
//! the portable kernel, a loop over the backend's operations. If the feature of a backend is not
//! enabled, autodiff records these one by one.

mod call;
#[cfg(feature = "host")]
mod cpu;
#[cfg(feature = "host")]
mod host;
#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;
mod portable;

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use self::call::Settings;
pub use self::call::{Cell, Direction};
use self::ops::RecurrenceForward;
use crate::hosts::location::has_kernels;
use crate::precision::{cast, is_f32_or_half, widen};
use crate::recurrent::LayerState;

/// Inputs of [`recurrence`].
#[derive(Debug, Clone)]
pub struct RecurrenceInputs {
    /// `W x` of all positions and directions: `[batch, seq, directions * gates * d_hidden]`.
    pub projected: Tensor<3>,
    /// The matrices `U` of all directions: `[directions * d_hidden, gates * d_hidden]`.
    pub recurrent: Tensor<2>,
    /// Bias of `W x`: `[1, directions * gates * d_hidden]`.
    pub input_bias: Option<Tensor<2>>,
    /// Bias of `U h`, of the same shape.
    pub hidden_bias: Option<Tensor<2>>,
    /// Initial state; `None` is zeros.
    pub state: Option<LayerState>,
}

/// Runs the recurrence: the hidden states `[batch, seq, directions * d_hidden]` and the final
/// state. Half-precision tensors are computed in `f32` and rounded at the end.
///
/// # Panics
///
/// If shapes, devices, dtypes or lengths do not match, or the dtype is not f32, f16 or bf16.
pub fn recurrence(
    inputs: RecurrenceInputs,
    cell: Cell,
    direction: Direction,
    lengths: Option<&[usize]>,
) -> (Tensor<3>, LayerState) {
    let settings = validate(&inputs, cell, direction, lengths);
    let dtype = inputs.projected.dtype();
    let device = inputs.projected.device();
    let Settings { batch, width, .. } = settings;
    let zeros = |dims: [usize; 2]| Tensor::<2>::zeros(dims, (&device, DType::F32));
    let bias = |bias: Option<Tensor<2>>| match bias {
        Some(bias) => widen(bias),
        None => zeros([1, settings.gates()]),
    };
    let biases = match (inputs.input_bias, inputs.hidden_bias) {
        (None, None) => zeros([2, settings.gates()]),
        (input, hidden) => Tensor::cat(vec![bias(input), bias(hidden)], 0),
    };
    let initial = match inputs.state {
        None => zeros([batch, cell.states() * width]),
        Some(LayerState { hidden, cell: None }) => widen(hidden),
        Some(LayerState {
            hidden,
            cell: Some(cell),
        }) => Tensor::cat(vec![widen(hidden), widen(cell)], 1),
    };
    let projected = widen(inputs.projected).into_dispatch();
    let recurrent = widen(inputs.recurrent).into_dispatch();
    let (biases, initial) = (biases.into_dispatch(), initial.into_dispatch());
    let (outputs, last) = if has_kernels(&projected.kind) {
        <Dispatch as RecurrenceForward>::recurrence(projected, recurrent, biases, initial, settings)
    } else {
        let tensors = [projected, recurrent, biases, initial];
        let output = portable::forward::<Dispatch>(tensors, &settings, false);
        (output.outputs, output.last)
    };
    let last = cast(Tensor::<2>::from_dispatch(last), dtype); // [batch, states * width]
    let state = match cell {
        Cell::Gru => LayerState {
            hidden: last,
            cell: None,
        },
        Cell::Lstm => LayerState {
            hidden: last.clone().slice_dim(1, 0..width),
            cell: Some(last.slice_dim(1, width..2 * width)),
        },
    };
    (cast(Tensor::from_dispatch(outputs), dtype), state)
}

/// Checks the inputs of [`recurrence`].
fn validate(
    inputs: &RecurrenceInputs,
    cell: Cell,
    direction: Direction,
    lengths: Option<&[usize]>,
) -> Settings {
    let [batch, seq, all_gates] = inputs.projected.dims();
    let [width, gates] = inputs.recurrent.dims();
    let directions = direction.num_directions();
    let d_hidden = gates / cell.gates();
    assert!(
        d_hidden > 0 && [width, gates] == [directions * d_hidden, cell.gates() * d_hidden],
        "{cell} recurrence: the matrix must be [directions = {directions} * d_hidden, gates = {} * \
         d_hidden], got [{width}, {gates}]",
        cell.gates()
    );
    assert!(
        all_gates == directions * gates,
        "{cell} recurrence: projected must be [batch, seq, {}] for a matrix [{width}, {gates}], \
         got [{batch}, {seq}, {all_gates}]",
        directions * gates
    );
    assert!(
        batch > 0 && seq > 0,
        "{cell} recurrence: batch and seq must be at least 1, got [batch = {batch}, seq = {seq}]"
    );
    let state = inputs.state.as_ref();
    let cell_state = state.and_then(|state| state.cell.as_ref());
    let optional = [
        ("input bias", inputs.input_bias.as_ref(), [1, all_gates]),
        ("hidden bias", inputs.hidden_bias.as_ref(), [1, all_gates]),
        ("state", state.map(|state| &state.hidden), [batch, width]),
        ("state's cell", cell_state, [batch, width]),
    ];
    let device = inputs.projected.device();
    let check_device = |name: &str, got: Device| {
        assert!(
            got == device,
            "{cell} recurrence: the {name} must be on the device of projected, {device:?}, got \
             {got:?}"
        );
    };
    check_device("matrix", inputs.recurrent.device());
    for (name, tensor, dims) in optional {
        if let Some(tensor) = tensor {
            check_device(name, tensor.device());
        }
        let got = tensor.map_or(dims, Tensor::dims);
        assert!(
            got == dims,
            "{cell} recurrence: the {name} must be {dims:?}, got {got:?}"
        );
        let (expected, got) = (inputs.projected.dtype(), tensor.map(Tensor::dtype));
        assert!(
            got.is_none_or(|got| got == expected),
            "{cell} recurrence: all tensors must have the same dtype, {expected:?}, but the {name} is \
             {got:?}"
        );
    }
    assert!(
        state.is_none() || cell_state.is_some() == (cell == Cell::Lstm),
        "{cell} recurrence: an LSTM state needs a cell state, and a GRU state must not have one"
    );
    let (projected, recurrent) = (inputs.projected.dtype(), inputs.recurrent.dtype());
    assert!(
        projected == recurrent && is_f32_or_half(projected),
        "{cell} recurrence: all tensors must be f32, f16 or bf16 alike, got {projected:?} and \
         {recurrent:?}"
    );
    let lengths: Arc<[usize]> = match lengths {
        None => vec![seq; batch].into(),
        Some(lengths) => {
            assert!(
                lengths.len() == batch && lengths.iter().all(|length| *length <= seq),
                "{cell} recurrence: {batch} lengths up to {seq} expected, got {lengths:?}"
            );
            lengths.into()
        }
    };
    Settings {
        cell,
        direction,
        batch,
        seq,
        d_hidden,
        width,
        lengths,
    }
}

#[cfg(all(test, feature = "tch"))]
#[allow(deprecated)] // as above
mod libtorch_tests;
