//! What a place does to the state of one row, forward and back, in one loop over its numbers.

use crate::cpu::{Simd, sigmoid, tanh};

/// Where the numbers of a place lie, `d_hidden` of each: gates lie side by side.
pub(super) struct Place {
    /// `W x`.
    pub(super) input: *const f32,
    /// `U h`.
    pub(super) product: *const f32,
    /// The hidden state, before and then after.
    pub(super) hidden: *mut f32,
    /// An LSTM's cell, likewise; a GRU's is not looked at.
    pub(super) cell: *mut f32,
    /// The hidden state after, once more.
    pub(super) output: *mut f32,
    /// What the way back needs, if it is wanted: `r, z, n, U_n h + c_n` of a GRU,
    /// `i, f, g, o, cell` of an LSTM.
    pub(super) kept: Option<*mut f32>,
}

/// Where the numbers of a place lie on the way back.
pub(super) struct PlaceBack {
    pub(super) kept: *const f32,
    /// The hidden state of a GRU, or the cell of an LSTM, before the place.
    pub(super) before: *const f32,
    /// What arrives at the hidden state from outside.
    pub(super) d_output: *const f32,
    /// What arrives at the hidden state from the place after, and then what goes on to the
    /// one before without passing through the matrix.
    pub(super) d_hidden: *mut f32,
    /// Likewise of an LSTM's cell.
    pub(super) d_cell: *mut f32,
    /// The gradient by `W x`.
    pub(super) d_input: *mut f32,
    /// The gradient by `U h`.
    pub(super) d_product: *mut f32,
    /// The sum of a GRU's gradients by `W_n x`, which is the one by its bias.
    pub(super) d_new: *mut f32,
}

/// `count` numbers from a place on.
///
/// # Safety
///
/// The instructions of `S` are enabled, and they can be read.
#[inline(always)]
unsafe fn of<S: Simd>(gates: *const f32, place: usize, count: usize) -> S::Vector {
    // SAFETY: as the caller promised.
    unsafe { S::load_some(gates.add(place), count) }
}

/// A place of a GRU. The biases are those of reset and update, each a sum of both, of the
/// new state, and of its product.
///
/// # Safety
///
/// The instructions of `S` are enabled, and all can be read or written in these sizes.
#[inline(always)]
pub(super) unsafe fn gru<S: Simd>(d: usize, biases: *const f32, place: &Place) {
    for at in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - at);
        let [reset, update, new, inner] = [at, d + at, 2 * d + at, 3 * d + at];
        // SAFETY: within what the caller promised.
        unsafe {
            let sum = S::add(
                of::<S>(place.input, reset, count),
                of::<S>(place.product, reset, count),
            );
            let r = sigmoid::<S>(S::add(sum, of::<S>(biases, reset, count)));
            let sum = S::add(
                of::<S>(place.input, update, count),
                of::<S>(place.product, update, count),
            );
            let z = sigmoid::<S>(S::add(sum, of::<S>(biases, update, count)));
            let product = S::add(
                of::<S>(place.product, new, count),
                of::<S>(biases, inner, count),
            );
            let sum = S::add(
                of::<S>(place.input, new, count),
                of::<S>(biases, new, count),
            );
            let n = tanh::<S>(S::fma(r, product, sum));
            let before = of::<S>(place.hidden, at, count);
            // (1 - z) · n + z · h
            let after = S::fma(z, S::sub(before, n), n);
            S::store_some(place.hidden.add(at), after, count);
            S::store_some(place.output.add(at), after, count);
            if let Some(kept) = place.kept {
                S::store_some(kept.add(reset), r, count);
                S::store_some(kept.add(update), z, count);
                S::store_some(kept.add(new), n, count);
                S::store_some(kept.add(inner), product, count);
            }
        }
    }
}

/// A place of an LSTM. The biases are sums of both.
///
/// # Safety
///
/// As for [`gru`].
#[inline(always)]
pub(super) unsafe fn lstm<S: Simd>(d: usize, biases: *const f32, place: &Place) {
    for at in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - at);
        let gates = [at, d + at, 2 * d + at, 3 * d + at];
        // SAFETY: within what the caller promised.
        unsafe {
            let mut sums = [S::splat(0.0); 4];
            for (sum, gate) in sums.iter_mut().zip(gates) {
                *sum = S::add(
                    of::<S>(place.input, gate, count),
                    of::<S>(place.product, gate, count),
                );
                *sum = S::add(*sum, of::<S>(biases, gate, count));
            }
            let (i, f) = (sigmoid::<S>(sums[0]), sigmoid::<S>(sums[1]));
            let (g, o) = (tanh::<S>(sums[2]), sigmoid::<S>(sums[3]));
            let before = of::<S>(place.cell, at, count);
            let after = S::fma(f, before, S::mul(i, g));
            let hidden = S::mul(o, tanh::<S>(after));
            S::store_some(place.cell.add(at), after, count);
            S::store_some(place.hidden.add(at), hidden, count);
            S::store_some(place.output.add(at), hidden, count);
            if let Some(kept) = place.kept {
                for (gate, value) in gates.into_iter().zip([i, f, g, o]) {
                    S::store_some(kept.add(gate), value, count);
                }
                S::store_some(kept.add(4 * d + at), after, count);
            }
        }
    }
}

/// The way back through a place of a GRU.
///
/// # Safety
///
/// As for [`gru`].
#[inline(always)]
pub(super) unsafe fn gru_back<S: Simd>(d: usize, place: &PlaceBack) {
    for at in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - at);
        let [reset, update, new, inner] = [at, d + at, 2 * d + at, 3 * d + at];
        // SAFETY: within what the caller promised.
        unsafe {
            let r = of::<S>(place.kept, reset, count);
            let z = of::<S>(place.kept, update, count);
            let n = of::<S>(place.kept, new, count);
            let product = of::<S>(place.kept, inner, count);
            let before = of::<S>(place.before, at, count);
            let d_hidden = S::add(
                of::<S>(place.d_hidden, at, count),
                of::<S>(place.d_output, at, count),
            );
            let straight = S::mul(d_hidden, z);
            let d_n = S::mul(S::sub(d_hidden, straight), slope_of_tanh::<S>(n));
            let d_z = S::mul(d_hidden, S::sub(before, n));
            let d_z = S::mul(d_z, slope_of_sigmoid::<S>(z));
            let d_r = S::mul(S::mul(d_n, product), slope_of_sigmoid::<S>(r));
            S::store_some(place.d_hidden.add(at), straight, count);
            S::store_some(place.d_input.add(reset), d_r, count);
            S::store_some(place.d_input.add(update), d_z, count);
            S::store_some(place.d_input.add(new), d_n, count);
            S::store_some(place.d_product.add(reset), d_r, count);
            S::store_some(place.d_product.add(update), d_z, count);
            S::store_some(place.d_product.add(new), S::mul(d_n, r), count);
            let so_far = of::<S>(place.d_new, at, count);
            S::store_some(place.d_new.add(at), S::add(so_far, d_n), count);
        }
    }
}

/// The way back through a place of an LSTM.
///
/// # Safety
///
/// As for [`gru`].
#[inline(always)]
pub(super) unsafe fn lstm_back<S: Simd>(d: usize, place: &PlaceBack) {
    for at in (0..d).step_by(S::LANES) {
        let count = S::LANES.min(d - at);
        let gates = [at, d + at, 2 * d + at, 3 * d + at];
        // SAFETY: within what the caller promised.
        unsafe {
            let i = of::<S>(place.kept, gates[0], count);
            let f = of::<S>(place.kept, gates[1], count);
            let g = of::<S>(place.kept, gates[2], count);
            let o = of::<S>(place.kept, gates[3], count);
            let after = tanh::<S>(of::<S>(place.kept, 4 * d + at, count));
            let before = of::<S>(place.before, at, count);
            let d_hidden = S::add(
                of::<S>(place.d_hidden, at, count),
                of::<S>(place.d_output, at, count),
            );
            let through = S::mul(S::mul(d_hidden, o), slope_of_tanh::<S>(after));
            let d_cell = S::add(of::<S>(place.d_cell, at, count), through);
            let d_gates = [
                S::mul(S::mul(d_cell, g), slope_of_sigmoid::<S>(i)),
                S::mul(S::mul(d_cell, before), slope_of_sigmoid::<S>(f)),
                S::mul(S::mul(d_cell, i), slope_of_tanh::<S>(g)),
                S::mul(S::mul(d_hidden, after), slope_of_sigmoid::<S>(o)),
            ];
            for (gate, d_gate) in gates.into_iter().zip(d_gates) {
                S::store_some(place.d_input.add(gate), d_gate, count);
                S::store_some(place.d_product.add(gate), d_gate, count);
            }
            // The hidden state goes on through the matrix alone.
            S::store_some(place.d_hidden.add(at), S::splat(0.0), count);
            S::store_some(place.d_cell.add(at), S::mul(d_cell, f), count);
        }
    }
}

/// `1 - y²` of a result.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn slope_of_tanh<S: Simd>(y: S::Vector) -> S::Vector {
    // SAFETY: as the caller promised.
    unsafe { S::sub(S::splat(1.0), S::mul(y, y)) }
}

/// `y (1 - y)` of a result.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn slope_of_sigmoid<S: Simd>(y: S::Vector) -> S::Vector {
    // SAFETY: as the caller promised.
    unsafe { S::mul(y, S::sub(S::splat(1.0), y)) }
}
