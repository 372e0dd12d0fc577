//! The way back, place by place; all that is a sum over places is one matmul at the end.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape, TensorMetadata};
use burn::tensor::FloatDType;

use super::order::{Order, join, taken};
use super::step::{States, gate};
use crate::recurrent::Cell;
use crate::recurrent::recurrence::call::{Kept, Saved, Settings};

/// The gradients, from those that arrive at the hidden states, `[batch, seq, width]`, and at
/// the last state.
pub(crate) fn backward<B: Backend>(
    saved: Saved<B>,
    d_outputs: FloatTensor<B>,
    d_last: Option<FloatTensor<B>>,
    settings: &Settings,
) -> [FloatTensor<B>; 4] {
    let (batch, seq, d_hidden) = (settings.batch, settings.seq, settings.d_hidden);
    let (cell, passes) = (settings.cell, settings.direction.passes());
    let gates = cell.gates() * d_hidden;
    #[allow(clippy::infallible_destructuring_match)] // with no CPU body compiled in
    let kept = match saved.kept {
        Kept::Tensor(kept) => kept, // [seq, passes, batch, ..]
        #[cfg(feature = "host")]
        Kept::Numbers(_) => unreachable!("a body goes back by what it has kept itself"),
    };
    let order = Order::<B>::new(settings, &d_outputs);
    let d_outputs = order.visited(d_outputs, d_hidden); // [seq, passes, batch, d_hidden]
    let recurrent = B::float_reshape(saved.recurrent, Shape::from([passes, d_hidden, gates]));
    let turned = B::float_swap_dims(recurrent, 1, 2); // [passes, gates, d_hidden]
    let d_last = d_last.unwrap_or_else(|| {
        let device = saved.initial.device();
        B::float_zeros(saved.initial.shape(), &device, FloatDType::F32)
    });
    let mut d_states = States::<B>::from_rows(d_last, settings);
    let (mut d_inputs, mut d_products) = (Vec::with_capacity(seq), Vec::with_capacity(seq));
    for at in (0..seq).rev() {
        let one = |tensor: &FloatTensor<B>, width: usize| {
            let own = taken::<B>(tensor, 0, at..at + 1);
            B::float_reshape(own, Shape::from([passes, batch, width]))
        };
        let here = States {
            hidden: B::float_add(d_states.hidden.clone(), one(&d_outputs, d_hidden)),
            cell: d_states.cell.clone(),
        };
        let seen = one(&kept, parts(cell) * d_hidden);
        let (d_input, d_product, straight) = step_back::<B>(cell, &seen, here);
        let d_product_or_input = d_product.as_ref().unwrap_or(&d_input).clone();
        let through = B::float_matmul(d_product_or_input, turned.clone());
        let before = States {
            hidden: match straight.hidden {
                Some(hidden) => B::float_add(hidden, through),
                None => through,
            },
            cell: straight.cell,
        };
        d_states = d_states.unless_padding(before, order.padding(at));
        let put_aside = |tensor| B::float_reshape(tensor, Shape::from([1, passes, batch, gates]));
        d_inputs.push(put_aside(d_input));
        d_products.extend(d_product.map(put_aside));
    }
    d_inputs.reverse();
    d_products.reverse();
    let d_inputs = order.cleared(join::<B>(d_inputs, 0)); // [seq, passes, batch, gates]
    let d_products = match d_products.is_empty() {
        true => d_inputs.clone(),
        false => order.cleared(join::<B>(d_products, 0)),
    };
    // All places of all rows of a pass, one after the other.
    let rows = |tensor: FloatTensor<B>, width: usize| {
        let tensor = B::float_permute(tensor, &[1, 0, 2, 3]);
        B::float_reshape(tensor, Shape::from([passes, seq * batch, width]))
    };
    let hidden = taken::<B>(&kept, 3, 4 * d_hidden..5 * d_hidden); // before each place
    let hidden = order.cleared(hidden);
    let hidden = B::float_swap_dims(rows(hidden, d_hidden), 1, 2);
    let products = rows(d_products, gates);
    let inputs = rows(d_inputs.clone(), gates);
    let bias = |rows| {
        let sum: FloatTensor<B> = B::float_sum_dim(rows, 1); // [passes, 1, gates]
        B::float_reshape(sum, Shape::from([1, passes * gates]))
    };
    let d_recurrent = B::float_matmul(hidden, products.clone()); // [passes, d_hidden, gates]
    let d_recurrent = B::float_reshape(d_recurrent, Shape::from([passes * d_hidden, gates]));
    let d_biases = B::float_cat(vec![bias(inputs), bias(products)], 0);
    let d_initial = d_states.into_rows(settings);
    [order.unvisited(d_inputs), d_recurrent, d_biases, d_initial]
}

/// What is kept of each place, each part `d_hidden` wide.
fn parts(cell: Cell) -> usize {
    match cell {
        Cell::Gru => 5,
        Cell::Lstm => 6,
    }
}

/// What goes back to the states without passing through the matrix.
struct Straight<B: Backend> {
    hidden: Option<FloatTensor<B>>,
    cell: Option<FloatTensor<B>>,
}

/// The gradients by `W x + b` and, where it is another, by `U h + c`; and what goes straight
/// back, from what arrives at the states after a place.
fn step_back<B: Backend>(
    cell: Cell,
    seen: &FloatTensor<B>,
    d_states: States<B>,
) -> (FloatTensor<B>, Option<FloatTensor<B>>, Straight<B>) {
    let mul = B::float_mul;
    let part = |at| gate::<B>(seen, at, parts(cell));
    match (cell, d_states.cell) {
        (Cell::Lstm, Some(d_memory)) => {
            let [i, f, g, o, _, before] = [0, 1, 2, 3, 4, 5].map(part);
            let new = mul(i.clone(), g.clone());
            let after = B::float_add(mul(f.clone(), before.clone()), new);
            let tanh = B::float_tanh(after);
            let d_o = mul(d_states.hidden.clone(), tanh.clone());
            let d_tanh = mul(d_states.hidden, o.clone());
            let d_memory = B::float_add(d_memory, mul(d_tanh, slope_of_tanh::<B>(tanh)));
            let d_gates = vec![
                mul(
                    mul(d_memory.clone(), g.clone()),
                    slope_of_sigmoid::<B>(i.clone()),
                ),
                mul(
                    mul(d_memory.clone(), before),
                    slope_of_sigmoid::<B>(f.clone()),
                ),
                mul(mul(d_memory.clone(), i), slope_of_tanh::<B>(g)),
                mul(d_o, slope_of_sigmoid::<B>(o)),
            ];
            let straight = Straight {
                hidden: None,
                cell: Some(mul(d_memory, f)),
            };
            (B::float_cat(d_gates, 2), None, straight)
        }
        _ => {
            let [r, z, n, inner, before] = [0, 1, 2, 3, 4].map(part);
            let d_hidden = d_states.hidden;
            let straight = mul(d_hidden.clone(), z.clone());
            let d_n = B::float_sub(d_hidden.clone(), straight.clone()); // (1 - z) · d_h
            let d_n = mul(d_n, slope_of_tanh::<B>(n.clone()));
            let d_z = mul(d_hidden, B::float_sub(before, n));
            let d_z = mul(d_z, slope_of_sigmoid::<B>(z));
            let d_r = mul(mul(d_n.clone(), inner), slope_of_sigmoid::<B>(r.clone()));
            let d_inner = mul(d_n.clone(), r);
            let d_input = B::float_cat(vec![d_r.clone(), d_z.clone(), d_n], 2);
            let d_product = B::float_cat(vec![d_r, d_z, d_inner], 2);
            let straight = Straight {
                hidden: Some(straight),
                cell: None,
            };
            (d_input, Some(d_product), straight)
        }
    }
}

/// `1 - y²` of a result.
fn slope_of_tanh<B: Backend>(y: FloatTensor<B>) -> FloatTensor<B> {
    B::float_add_scalar(B::float_neg(B::float_mul(y.clone(), y)), 1.0.into())
}

/// `y (1 - y)` of a result.
fn slope_of_sigmoid<B: Backend>(y: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul(y.clone(), B::float_add_scalar(B::float_neg(y), 1.0.into()))
}
