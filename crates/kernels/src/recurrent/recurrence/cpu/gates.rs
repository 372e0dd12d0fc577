//! One time step of one row, forward and backward, fused into one loop.
//!
//! All functions are unsafe: the instructions of `S` must be enabled, and pointers must be valid for
//! their sizes.

use crate::cpu::{Simd, sigmoid, tanh};

/// Pointers to the data of a step, `d_hidden` elements each; gates are concatenated.
pub(super) struct Step {
    /// `W x`.
    pub(super) input: *const f32,
    /// `U h`.
    pub(super) product: *const f32,
    /// The hidden state, updated in place.
    pub(super) hidden: *mut f32,
    /// The cell state of an LSTM, updated in place; not used by a GRU.
    pub(super) cell: *mut f32,
    /// Output: the new hidden state.
    pub(super) output: *mut f32,
    /// Activations saved for the backward pass: `r, z, n, U_n h + c_n` of a GRU, `i, f, g, o, cell`
    /// of an LSTM.
    pub(super) activations: Option<*mut f32>,
}

/// Pointers to the data of a step in the backward pass.
pub(super) struct StepGradients {
    pub(super) activations: *const f32,
    /// The hidden state of a GRU, or the cell state of an LSTM, before the step.
    pub(super) before: *const f32,
    pub(super) d_output: *const f32,
    /// The gradient of the hidden state from the next step; replaced by the part for the previous
    /// step that does not pass through the matrix.
    pub(super) d_hidden: *mut f32,
    /// The same for the cell state of an LSTM.
    pub(super) d_cell: *mut f32,
    /// The gradient of `W x`.
    pub(super) d_input: *mut f32,
    /// The gradient of `U h`.
    pub(super) d_product: *mut f32,
    /// Accumulated gradient of a GRU's `W_n x`: that of its bias.
    pub(super) d_new: *mut f32,
}

/// Loads `count` elements at an offset.
#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32, offset: usize, count: usize) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe { S::load_partial(from.add(offset), count) }
}

/// `W x + U h` and the bias, at the offset of a gate.
#[inline(always)]
unsafe fn gate_sum<S: Simd>(
    step: &Step,
    biases: *const f32,
    gate: usize,
    count: usize,
) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe {
        let input = load::<S>(step.input, gate, count);
        let sum = S::add(input, load::<S>(step.product, gate, count));
        S::add(sum, load::<S>(biases, gate, count))
    }
}

/// A step of a GRU. The biases are the sums for reset and update, then those of the new gate's
/// input and of its product.
#[inline(always)]
pub(super) unsafe fn gru_step<S: Simd>(d: usize, biases: *const f32, step: &Step) {
    for offset in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - offset);
        let [reset, update, new, inner] = [offset, d + offset, 2 * d + offset, 3 * d + offset];
        // SAFETY: within the sizes promised by the caller.
        unsafe {
            let r = sigmoid::<S>(gate_sum::<S>(step, biases, reset, count));
            let z = sigmoid::<S>(gate_sum::<S>(step, biases, update, count));
            let product = load::<S>(step.product, new, count);
            let product = S::add(product, load::<S>(biases, inner, count));
            let input = load::<S>(step.input, new, count);
            let sum = S::add(input, load::<S>(biases, new, count));
            let n = tanh::<S>(S::fma(r, product, sum));
            let before = load::<S>(step.hidden, offset, count);
            // (1 - z) · n + z · h
            let after = S::fma(z, S::sub(before, n), n);
            S::store_partial(step.hidden.add(offset), after, count);
            S::store_partial(step.output.add(offset), after, count);
            if let Some(activations) = step.activations {
                S::store_partial(activations.add(reset), r, count);
                S::store_partial(activations.add(update), z, count);
                S::store_partial(activations.add(new), n, count);
                S::store_partial(activations.add(inner), product, count);
            }
        }
    }
}

/// A step of an LSTM. The biases are sums of both.
#[inline(always)]
pub(super) unsafe fn lstm_step<S: Simd>(d: usize, biases: *const f32, step: &Step) {
    for offset in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - offset);
        let gates = [offset, d + offset, 2 * d + offset, 3 * d + offset];
        // SAFETY: within the sizes promised by the caller.
        unsafe {
            let i = sigmoid::<S>(gate_sum::<S>(step, biases, gates[0], count));
            let f = sigmoid::<S>(gate_sum::<S>(step, biases, gates[1], count));
            let g = tanh::<S>(gate_sum::<S>(step, biases, gates[2], count));
            let o = sigmoid::<S>(gate_sum::<S>(step, biases, gates[3], count));
            let before = load::<S>(step.cell, offset, count);
            let after = S::fma(f, before, S::mul(i, g));
            let hidden = S::mul(o, tanh::<S>(after));
            S::store_partial(step.cell.add(offset), after, count);
            S::store_partial(step.hidden.add(offset), hidden, count);
            S::store_partial(step.output.add(offset), hidden, count);
            if let Some(activations) = step.activations {
                for (gate, value) in gates.into_iter().zip([i, f, g, o]) {
                    S::store_partial(activations.add(gate), value, count);
                }
                S::store_partial(activations.add(4 * d + offset), after, count);
            }
        }
    }
}

/// Backward pass of [`gru_step`].
#[inline(always)]
pub(super) unsafe fn gru_step_backward<S: Simd>(d: usize, step: &StepGradients) {
    for offset in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - offset);
        let [reset, update, new, inner] = [offset, d + offset, 2 * d + offset, 3 * d + offset];
        // SAFETY: within the sizes promised by the caller.
        unsafe {
            let r = load::<S>(step.activations, reset, count);
            let z = load::<S>(step.activations, update, count);
            let n = load::<S>(step.activations, new, count);
            let product = load::<S>(step.activations, inner, count);
            let before = load::<S>(step.before, offset, count);
            let d_hidden = load::<S>(step.d_hidden, offset, count);
            let d_hidden = S::add(d_hidden, load::<S>(step.d_output, offset, count));
            let direct = S::mul(d_hidden, z);
            let d_n = S::mul(S::sub(d_hidden, direct), tanh_derivative::<S>(n));
            let d_z = S::mul(d_hidden, S::sub(before, n));
            let d_z = S::mul(d_z, sigmoid_derivative::<S>(z));
            let d_r = S::mul(S::mul(d_n, product), sigmoid_derivative::<S>(r));
            S::store_partial(step.d_hidden.add(offset), direct, count);
            S::store_partial(step.d_input.add(reset), d_r, count);
            S::store_partial(step.d_input.add(update), d_z, count);
            S::store_partial(step.d_input.add(new), d_n, count);
            S::store_partial(step.d_product.add(reset), d_r, count);
            S::store_partial(step.d_product.add(update), d_z, count);
            S::store_partial(step.d_product.add(new), S::mul(d_n, r), count);
            let d_new = load::<S>(step.d_new, offset, count);
            S::store_partial(step.d_new.add(offset), S::add(d_new, d_n), count);
        }
    }
}

/// Backward pass of [`lstm_step`].
#[inline(always)]
pub(super) unsafe fn lstm_step_backward<S: Simd>(d: usize, step: &StepGradients) {
    for offset in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - offset);
        let gates = [offset, d + offset, 2 * d + offset, 3 * d + offset];
        // SAFETY: within the sizes promised by the caller.
        unsafe {
            let i = load::<S>(step.activations, gates[0], count);
            let f = load::<S>(step.activations, gates[1], count);
            let g = load::<S>(step.activations, gates[2], count);
            let o = load::<S>(step.activations, gates[3], count);
            let after = tanh::<S>(load::<S>(step.activations, 4 * d + offset, count));
            let before = load::<S>(step.before, offset, count);
            let d_hidden = load::<S>(step.d_hidden, offset, count);
            let d_hidden = S::add(d_hidden, load::<S>(step.d_output, offset, count));
            let from_hidden = S::mul(S::mul(d_hidden, o), tanh_derivative::<S>(after));
            let d_cell = S::add(load::<S>(step.d_cell, offset, count), from_hidden);
            let d_gates = [
                S::mul(S::mul(d_cell, g), sigmoid_derivative::<S>(i)),
                S::mul(S::mul(d_cell, before), sigmoid_derivative::<S>(f)),
                S::mul(S::mul(d_cell, i), tanh_derivative::<S>(g)),
                S::mul(S::mul(d_hidden, after), sigmoid_derivative::<S>(o)),
            ];
            for (gate, d_gate) in gates.into_iter().zip(d_gates) {
                S::store_partial(step.d_input.add(gate), d_gate, count);
                S::store_partial(step.d_product.add(gate), d_gate, count);
            }
            // The hidden state gradient passes through the matrix only.
            S::store_partial(step.d_hidden.add(offset), S::splat(0.0), count);
            S::store_partial(step.d_cell.add(offset), S::mul(d_cell, f), count);
        }
    }
}

/// `1 - y²` for `y = tanh(x)`.
#[inline(always)]
unsafe fn tanh_derivative<S: Simd>(y: S::Vector) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe { S::sub(S::splat(1.0), S::mul(y, y)) }
}

/// `y (1 - y)` for `y = sigmoid(x)`.
#[inline(always)]
unsafe fn sigmoid_derivative<S: Simd>(y: S::Vector) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe { S::mul(y, S::sub(S::splat(1.0), y)) }
}
