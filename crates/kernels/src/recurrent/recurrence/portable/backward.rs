//! The backward pass of the portable kernel. Sums over positions are one matmul at the end.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape, TensorMetadata};
use burn::tensor::FloatDType;

use super::step::{States, gate};
use super::time_steps::{TimeSteps, select, slice_dim, stack};
use crate::matmul::{MatmulOps, layer_matmul};
use crate::recurrent::Cell;
use crate::recurrent::recurrence::call::{Activations, Saved};

/// The gradients of the four inputs, from those of the hidden states `[batch, seq, width]` and of
/// the last state.
pub(crate) fn backward<B: MatmulOps>(
    saved: Saved<B>,
    d_outputs: FloatTensor<B>,
    d_last: Option<FloatTensor<B>>,
) -> [FloatTensor<B>; 4] {
    let settings = &saved.settings;
    let (batch, seq, d_hidden) = (settings.batch, settings.seq, settings.d_hidden);
    let (cell, directions) = (settings.cell, settings.direction.num_directions());
    let gates = cell.gates() * d_hidden;
    #[allow(clippy::infallible_destructuring_match)] // without the CPU kernel
    let activations = match saved.activations {
        Activations::Tensor(activations) => activations, // [seq, directions, batch, ..]
        #[cfg(feature = "host")]
        Activations::Host(_) => unreachable!("saved by the CPU kernel"),
    };
    let steps = TimeSteps::<B>::new(settings, &d_outputs);
    let d_outputs = steps.split_steps(d_outputs, d_hidden); // [seq, directions, batch, d_hidden]
    let recurrent = B::float_reshape(saved.recurrent, Shape::from([directions, d_hidden, gates]));
    let transposed = B::float_swap_dims(recurrent, 1, 2); // [directions, gates, d_hidden]
    let d_last = d_last.unwrap_or_else(|| {
        let device = saved.initial.device();
        B::float_zeros(saved.initial.shape(), &device, FloatDType::F32)
    });
    let mut d_states = States::<B>::from_rows(d_last, settings);
    let (mut d_inputs, mut d_products) = (Vec::with_capacity(seq), Vec::with_capacity(seq));
    for time in (0..seq).rev() {
        let d_after = States::<B> {
            hidden: B::float_add(d_states.hidden.clone(), select::<B>(&d_outputs, time)),
            cell: d_states.cell.clone(),
        };
        let saved = select::<B>(&activations, time);
        let (d_input, d_product, d_before) = step_backward(cell, &saved, d_after, &transposed);
        d_states = d_states.update(d_before, steps.padding(time));
        d_inputs.push(d_input);
        d_products.extend(d_product);
    }
    d_inputs.reverse();
    d_products.reverse();
    let d_inputs = steps.zero_padding(stack::<B>(d_inputs)); // [seq, directions, batch, gates]
    let d_products = if d_products.is_empty() {
        d_inputs.clone()
    } else {
        steps.zero_padding(stack::<B>(d_products))
    };
    // Positions and rows flattened to one dimension.
    let rows = |tensor: FloatTensor<B>, width: usize| {
        let tensor = B::float_permute(tensor, &[1, 0, 2, 3]);
        B::float_reshape(tensor, Shape::from([directions, seq * batch, width]))
    };
    let hidden = slice_dim::<B>(&activations, 3, 4 * d_hidden..5 * d_hidden); // before each step
    let hidden = steps.zero_padding(hidden);
    let hidden = B::float_swap_dims(rows(hidden, d_hidden), 1, 2);
    let products = rows(d_products, gates);
    let inputs = rows(d_inputs.clone(), gates);
    let bias = |rows| {
        let sum: FloatTensor<B> = B::float_sum_dim(rows, 1); // [directions, 1, gates]
        B::float_reshape(sum, Shape::from([1, directions * gates]))
    };
    let d_recurrent = layer_matmul::<B>(hidden, products.clone()); // [directions, d_hidden, gates]
    let d_recurrent = B::float_reshape(d_recurrent, Shape::from([directions * d_hidden, gates]));
    let d_biases = B::float_cat(vec![bias(inputs), bias(products)], 0);
    let d_projected = steps.merge_steps(d_inputs);
    let d_initial = d_states.into_rows(settings);
    [d_projected, d_recurrent, d_biases, d_initial]
}

/// From the gradients of the states after a step: the gradients of `W x + b`, if different of
/// `U h + c`, and of the states before the step. `transposed` is `Uᵀ`.
fn step_backward<B: MatmulOps>(
    cell: Cell,
    saved: &FloatTensor<B>,
    d_states: States<B>,
    transposed: &FloatTensor<B>,
) -> (FloatTensor<B>, Option<FloatTensor<B>>, States<B>) {
    let mul = B::float_mul;
    let through_matrix = |d: &FloatTensor<B>| layer_matmul::<B>(d.clone(), transposed.clone());
    match (cell, d_states.cell) {
        (Cell::Lstm, Some(d_cell)) => {
            let [i, f, g, o, _, before] =
                [0, 1, 2, 3, 4, 5].map(|index| gate::<B>(saved, index, 6));
            let new = mul(i.clone(), g.clone());
            let after = B::float_add(mul(f.clone(), before.clone()), new);
            let tanh = B::float_tanh(after);
            let d_o = mul(d_states.hidden.clone(), tanh.clone());
            let d_tanh = mul(d_states.hidden, o.clone());
            let d_cell = B::float_add(d_cell, mul(d_tanh, tanh_derivative::<B>(tanh)));
            let d_i = mul(d_cell.clone(), g.clone());
            let d_f = mul(d_cell.clone(), before);
            let d_g = mul(d_cell.clone(), i.clone());
            let d_gates = vec![
                mul(d_i, sigmoid_derivative::<B>(i)),
                mul(d_f, sigmoid_derivative::<B>(f.clone())),
                mul(d_g, tanh_derivative::<B>(g)),
                mul(d_o, sigmoid_derivative::<B>(o)),
            ];
            let d_gates = B::float_cat(d_gates, 2);
            let d_before = States {
                hidden: through_matrix(&d_gates),
                cell: Some(mul(d_cell, f)),
            };
            (d_gates, None, d_before)
        }
        _ => {
            let [r, z, n, inner, before] = [0, 1, 2, 3, 4].map(|index| gate::<B>(saved, index, 5));
            let d_hidden = d_states.hidden;
            let direct = mul(d_hidden.clone(), z.clone());
            let d_n = B::float_sub(d_hidden.clone(), direct.clone()); // (1 - z) · d_h
            let d_n = mul(d_n, tanh_derivative::<B>(n.clone()));
            let d_z = mul(d_hidden, B::float_sub(before, n));
            let d_z = mul(d_z, sigmoid_derivative::<B>(z));
            let d_r = mul(mul(d_n.clone(), inner), sigmoid_derivative::<B>(r.clone()));
            let d_inner = mul(d_n.clone(), r);
            let d_input = B::float_cat(vec![d_r.clone(), d_z.clone(), d_n], 2);
            let d_product = B::float_cat(vec![d_r, d_z, d_inner], 2);
            let d_before = States {
                hidden: B::float_add(direct, through_matrix(&d_product)),
                cell: None,
            };
            (d_input, Some(d_product), d_before)
        }
    }
}

/// `1 - y²` for `y = tanh(x)`.
fn tanh_derivative<B: Backend>(y: FloatTensor<B>) -> FloatTensor<B> {
    B::float_add_scalar(B::float_neg(B::float_mul(y.clone(), y)), 1.0.into())
}

/// `y (1 - y)` for `y = sigmoid(x)`.
fn sigmoid_derivative<B: Backend>(y: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul(y.clone(), B::float_add_scalar(B::float_neg(y), 1.0.into()))
}
