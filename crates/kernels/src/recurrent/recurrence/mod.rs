//! The recurrence of a layer: all that has to go place by place, as one op with a gradient
//! written by hand (backpropagation through time).
//!
//! What is kept from the forward pass are the gates of each place and the states between
//! them; the gradient by the matrix of the recurrence is one matmul over all places.
//!
//! Flex, NdArray and LibTorch on the CPU have a body made for it: each thread takes some rows
//! of the batch through the whole sequence, so that nobody waits for anybody between places.
//! Everywhere else it is the portable one, a loop over the backend's own operations. On a
//! backend that is there without its feature these are recorded by autodiff one by one.

mod autodiff;
mod call;
mod cell;
#[cfg(feature = "host")]
mod cpu;
#[cfg(feature = "host")]
mod host;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod ops;
mod portable;

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use self::call::Settings;
pub use self::cell::{Cell, Direction};
use self::ops::RecurrenceForward;
use crate::hosts::location::has_kernels;
use crate::precision::{cast, is_up_to_f32, widen};
use crate::recurrent::LayerState;

/// What a layer gives to its recurrence.
#[derive(Debug, Clone)]
pub struct Given {
    /// `W x` of all places, of each pass: `[batch, seq, passes * gates * d_hidden]`.
    pub projected: Tensor<3>,
    /// The `U` of each pass, one above the other: `[passes * d_hidden, gates * d_hidden]`.
    pub recurrent: Tensor<2>,
    /// What is added to `W x`, if anything: `[1, passes * gates * d_hidden]`.
    pub input_bias: Option<Tensor<2>>,
    /// What is added to `U h`, likewise.
    pub hidden_bias: Option<Tensor<2>>,
    /// The state before the first place; `None` is zeros.
    pub state: Option<LayerState>,
}

/// Takes a state through all places of each row: the hidden state at each place,
/// `[batch, seq, passes * d_hidden]`, and the state after the last one. Half-precision
/// tensors are computed in `f32` and rounded at the end.
///
/// # Panics
///
/// If tensors or lengths do not fit together, or the tensors are not of one number type of
/// up to 32 bits.
pub fn recurrence(
    given: Given,
    cell: Cell,
    direction: Direction,
    lengths: Option<&[usize]>,
) -> (Tensor<3>, LayerState) {
    let settings = settle(&given, cell, direction, lengths);
    let stored = given.projected.dtype();
    let device = given.projected.device();
    let Settings { batch, width, .. } = settings;
    let zeros = |dims: [usize; 2]| Tensor::<2>::zeros(dims, (&device, DType::F32));
    let bias = |bias: Option<Tensor<2>>| match bias {
        Some(bias) => widen(bias),
        None => zeros([1, settings.gates()]),
    };
    let biases = match (given.input_bias, given.hidden_bias) {
        (None, None) => zeros([2, settings.gates()]),
        (input, hidden) => Tensor::cat(vec![bias(input), bias(hidden)], 0),
    };
    let initial = match given.state {
        None => zeros([batch, cell.states() * width]),
        Some(LayerState { hidden, cell: None }) => widen(hidden),
        Some(LayerState {
            hidden,
            cell: Some(cell),
        }) => Tensor::cat(vec![widen(hidden), widen(cell)], 1),
    };
    let projected = widen(given.projected).into_dispatch();
    let recurrent = widen(given.recurrent).into_dispatch();
    let (biases, initial) = (biases.into_dispatch(), initial.into_dispatch());
    let (outputs, last) = if has_kernels(&projected.kind) {
        <Dispatch as RecurrenceForward>::recurrence(projected, recurrent, biases, initial, settings)
    } else {
        let tensors = [projected, recurrent, biases, initial];
        let ran = portable::forward::<Dispatch>(tensors, &settings, false);
        (ran.outputs, ran.last)
    };
    let last = cast(Tensor::<2>::from_dispatch(last), stored); // [batch, states * width]
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
    (cast(Tensor::from_dispatch(outputs), stored), state)
}

fn settle(given: &Given, cell: Cell, direction: Direction, lengths: Option<&[usize]>) -> Settings {
    let [batch, seq, all_gates] = given.projected.dims();
    let [width, gates] = given.recurrent.dims();
    let passes = direction.passes();
    let d_hidden = gates / cell.gates();
    assert!(
        d_hidden > 0 && [width, gates] == [passes * d_hidden, cell.gates() * d_hidden],
        "{cell} recurrence: the matrix must be [passes = {passes} * d_hidden, gates = {} * \
         d_hidden], got [{width}, {gates}]",
        cell.gates()
    );
    assert!(
        all_gates == passes * gates,
        "{cell} recurrence: projected must be [batch, seq, {}] for a matrix [{width}, {gates}], \
         got [{batch}, {seq}, {all_gates}]",
        passes * gates
    );
    assert!(
        batch > 0 && seq > 0,
        "{cell} recurrence: at least one row of one place expected, got [batch = {batch}, seq = \
         {seq}]"
    );
    let named = [
        ("input bias", given.input_bias.as_ref(), [1, all_gates]),
        ("hidden bias", given.hidden_bias.as_ref(), [1, all_gates]),
        (
            "state",
            given.state.as_ref().map(|state| &state.hidden),
            [batch, width],
        ),
        (
            "state's cell",
            given.state.as_ref().and_then(|state| state.cell.as_ref()),
            [batch, width],
        ),
    ];
    let device = given.projected.device();
    let on = |name: &str, got: Device| {
        assert!(
            got == device,
            "{cell} recurrence: the {name} must be on the device of projected, {device:?}, got \
             {got:?}"
        );
    };
    on("matrix", given.recurrent.device());
    for (name, tensor, dims) in named {
        if let Some(tensor) = tensor {
            on(name, tensor.device());
        }
        let got = tensor.map_or(dims, Tensor::dims);
        assert!(
            got == dims,
            "{cell} recurrence: the {name} must be {dims:?}, got {got:?}"
        );
        let (expected, got) = (given.projected.dtype(), tensor.map(Tensor::dtype));
        assert!(
            got.is_none_or(|got| got == expected),
            "{cell} recurrence: all must be of one number type, {expected:?}, the {name} is {got:?}"
        );
    }
    if let Some(state) = &given.state {
        assert!(
            state.cell.is_some() == (cell == Cell::Lstm),
            "{cell} recurrence: an LSTM's state has a cell and a GRU's has none, got the other's"
        );
    }
    let (projected, recurrent) = (given.projected.dtype(), given.recurrent.dtype());
    assert!(
        projected == recurrent && is_up_to_f32(projected),
        "{cell} recurrence: numbers must be f32, f16 or bf16 throughout, got {projected:?} and \
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
