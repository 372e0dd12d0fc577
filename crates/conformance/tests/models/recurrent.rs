//! Recurrent layers against plain loops, and what they promise.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use zoo_kernels::recurrent::{
    Cell, DirectedWeights, Direction, LayerState, Recurrent, RecurrentConfig, RecurrentState,
};
use zoo_kernels::without_kernels;
use zoo_oracle::{Precision, RecurrentInputs, RecurrentProblem, Tolerance, Unit};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    for problem in PROBLEMS {
        let name = format!("recurrent/{}", problem.name);
        suite.add_training(format!("{name}/by-its-body"), |device| {
            is_solved(problem, device)
        });
        // Recorded, the loop is the same for all: two problems, one of each unit, show it.
        if problem.backward.len() == 2 {
            suite.add_training(format!("{name}/recorded"), |device| {
                without_kernels(|| is_solved(problem, device));
            });
        }
    }
    suite.add_table("recurrent/", TESTS);
}

const PROBLEMS: &[RecurrentProblem] = &[
    RecurrentProblem {
        name: "gru-both-with-an-empty-row",
        unit: Unit::Gru,
        backward: &[false, true],
        seq: 5,
        lengths: &[5, 0, 3],
        d_input: 4,
        d_hidden: 5,
        has_state: true,
    },
    RecurrentProblem {
        name: "lstm-both-of-many-lengths",
        unit: Unit::Lstm,
        backward: &[false, true],
        seq: 6,
        lengths: &[2, 5, 4],
        d_input: 2,
        d_hidden: 3,
        has_state: true,
    },
    RecurrentProblem {
        name: "gru-of-ones",
        unit: Unit::Gru,
        backward: &[true],
        seq: 1,
        lengths: &[1],
        d_input: 1,
        d_hidden: 1,
        has_state: false,
    },
    RecurrentProblem {
        name: "lstm-backward",
        unit: Unit::Lstm,
        backward: &[true],
        seq: 3,
        lengths: &[1, 3],
        d_input: 3,
        d_hidden: 2,
        has_state: false,
    },
    // More numbers than a register has, and not a multiple of it.
    RecurrentProblem {
        name: "gru-wider-than-a-register",
        unit: Unit::Gru,
        backward: &[false],
        seq: 4,
        lengths: &[4, 4],
        d_input: 3,
        d_hidden: 19,
        has_state: true,
    },
    RecurrentProblem {
        name: "lstm-wider-than-a-register",
        unit: Unit::Lstm,
        backward: &[false],
        seq: 3,
        lengths: &[3, 2],
        d_input: 5,
        d_hidden: 33,
        has_state: false,
    },
];

fn cell(unit: Unit) -> Cell {
    match unit {
        Unit::Gru => Cell::Gru,
        Unit::Lstm => Cell::Lstm,
    }
}

fn direction(backward: &[bool]) -> Direction {
    match backward {
        [false] => Direction::Forward,
        [true] => Direction::Backward,
        _ => Direction::Both,
    }
}

fn tensor<const D: usize>(numbers: &[f64], dims: [usize; D], device: &Device) -> Tensor<D> {
    let numbers: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
    Tensor::from_data(TensorData::new(numbers, dims), device)
}

/// A layer with the numbers of a problem. Its matrices have a row for each number that goes
/// in, those of the problem one for each that comes out.
fn layer_of(problem: &RecurrentProblem, inputs: &RecurrentInputs, device: &Device) -> Recurrent {
    let mut module = RecurrentConfig::new(problem.d_input, problem.d_hidden)
        .with_cell(cell(problem.unit))
        .with_direction(direction(problem.backward))
        .init(device);
    let gates = problem.gates() * problem.d_hidden;
    let layer = &mut module.layers[0];
    let passes = layer.forward.iter_mut().chain(&mut layer.reverse);
    for (pass, weights) in passes.enumerate() {
        let set = |linear: &mut Linear, matrix: &[f64], bias: &[f64], width: usize| {
            let matrix = &matrix[pass * gates * width..][..gates * width];
            let matrix = tensor(matrix, [gates, width], device).transpose();
            linear.weight = Param::from_tensor(matrix);
            let bias = tensor(&bias[pass * gates..][..gates], [gates], device);
            linear.bias = Some(Param::from_tensor(bias));
        };
        let DirectedWeights { input, hidden } = weights;
        set(input, &inputs.weight_ih, &inputs.bias_ih, problem.d_input);
        set(hidden, &inputs.weight_hh, &inputs.bias_hh, problem.d_hidden);
    }
    module
}

fn state_of(problem: &RecurrentProblem, inputs: &RecurrentInputs, device: &Device) -> LayerState {
    let dims = [
        problem.lengths.len(),
        problem.backward.len() * problem.d_hidden,
    ];
    LayerState {
        hidden: tensor(&inputs.hidden, dims, device).require_grad(),
        cell: (problem.unit == Unit::Lstm)
            .then(|| tensor(&inputs.cell, dims, device).require_grad()),
    }
}

/// Rounding goes through as many places as a row has, each with two dot products: as much
/// as attention's gradients with their scores up to 8.
fn tolerance() -> Tolerance {
    Precision::F32.backward(8.0)
}

fn is_solved(problem: &RecurrentProblem, device: &Device) {
    let inputs = problem.draw();
    let (answer, upstream) = (problem.solve(&inputs), problem.draw_upstream());
    let wanted = problem.differences(&inputs, &upstream);
    let module = layer_of(problem, &inputs, device);
    let dims = [problem.lengths.len(), problem.seq, problem.d_input];
    let input = tensor(&inputs.input, dims, device).require_grad();
    let state = state_of(problem, &inputs, device);
    let given = problem.has_state.then(|| RecurrentState {
        layers: vec![state.clone()],
    });
    let (outputs, mut last) = module.forward(input.clone(), Some(problem.lengths), given);
    let last = last.layers.remove(0);
    let tolerance = tolerance();
    must(tolerance.check("outputs", &numbers(outputs.clone()), &answer.outputs));
    must(tolerance.check("hidden", &numbers(last.hidden.clone()), &answer.hidden));
    if let Some(cell) = &last.cell {
        must(tolerance.check("cell", &numbers(cell.clone()), &answer.cell));
    }

    let mut loss = weighted(outputs, &upstream.outputs) + weighted(last.hidden, &upstream.hidden);
    if let Some(cell) = last.cell {
        loss = loss + weighted(cell, &upstream.cell);
    }
    let gradients = loss.backward();
    let got = of_parameters(&module, &gradients);
    must(tolerance.check("d_weight_ih", &got[0], &wanted.weight_ih));
    must(tolerance.check("d_weight_hh", &got[1], &wanted.weight_hh));
    must(tolerance.check("d_bias_ih", &got[2], &wanted.bias_ih));
    must(tolerance.check("d_bias_hh", &got[3], &wanted.bias_hh));
    let d_input = input.grad(&gradients).expect("no gradient by the input");
    must(tolerance.check("d_input", &numbers(d_input), &wanted.input));
    if problem.has_state {
        let d_hidden = state.hidden.grad(&gradients).expect("none by the state");
        must(tolerance.check("d_hidden", &numbers(d_hidden), &wanted.hidden));
        if let Some(cell) = state.cell {
            let d_cell = cell.grad(&gradients).expect("none by the cell");
            must(tolerance.check("d_cell", &numbers(d_cell), &wanted.cell));
        }
    }
}

fn weighted<const D: usize>(results: Tensor<D>, upstream: &[f64]) -> Tensor<1> {
    let upstream = tensor(upstream, results.dims(), &results.device());
    (results * upstream).sum()
}

/// Gradients as the problem lays them out: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.
fn of_parameters(module: &Recurrent, gradients: &Gradients) -> [Vec<f32>; 4] {
    let mut all: [Vec<f32>; 4] = Default::default();
    let layer = &module.layers[0];
    for weights in layer.forward.iter().chain(&layer.reverse) {
        for (at, linear) in [&weights.input, &weights.hidden].into_iter().enumerate() {
            let weight = linear.weight.val().grad(gradients).expect("no gradient");
            all[at].extend(numbers(weight.transpose()));
            let bias = linear.bias.as_ref().expect("no bias").val();
            all[2 + at].extend(numbers(bias.grad(gradients).expect("no gradient")));
        }
    }
    all
}

fn same<const D: usize>(what: &str, got: Tensor<D>, want: Tensor<D>) {
    must(tolerance().compare(what, &numbers(got), &numbers(want)));
}

fn same_states(got: RecurrentState, want: RecurrentState) {
    for (got, want) in got.layers.into_iter().zip(want.layers) {
        same("hidden", got.hidden, want.hidden);
        if let (Some(got), Some(want)) = (got.cell, want.cell) {
            same("cell", got, want);
        }
    }
}

const CELLS: [Cell; 2] = [Cell::Gru, Cell::Lstm];

const TESTS: &[(&str, Test)] = &[
    ("what-is-in-padding-changes-nothing", |device| {
        let device = &device.clone().autodiff();
        for cell in CELLS {
            let module = RecurrentConfig::new(3, 4)
                .with_cell(cell)
                .with_layers(2)
                .with_direction(Direction::Both)
                .init(device);
            let input = normal([2, 3, 3], device);
            let nonsense = Tensor::full([2, 2, 3], f32::NAN, device);
            let padded = Tensor::cat(vec![input.clone(), nonsense], 1).require_grad();
            let lengths = [3, 2];
            let (want, want_state) = module.forward(input, Some(&lengths), None);
            let (got, state) = module.forward(padded.clone(), Some(&lengths), None);
            same("outputs", got.clone().slice_dim(1, 0..3), want);
            same_states(state, want_state);
            let beyond = numbers(got.clone().slice_dim(1, 3..5));
            assert!(beyond.iter().all(|x| *x == 0.0), "{cell}: {beyond:?}");
            let upstream = normal([2, 5, 8], device);
            let gradients = (got * upstream).sum().backward();
            let d_input = numbers(padded.grad(&gradients).expect("a gradient"));
            // Rows of 5 places of 3 numbers; the first has 3 places, the second 2.
            let (first, second) = d_input.split_at(15);
            let padding = [&first[9..], &second[6..]].concat();
            assert!(padding.iter().all(|x| *x == 0.0), "{cell}: {d_input:?}");
            assert!(!d_input.iter().any(|x| x.is_nan()), "{cell}: {d_input:?}");
        }
    }),
    ("step-by-step-is-all-at-once", |device| {
        for cell in CELLS {
            let module = RecurrentConfig::new(3, 5)
                .with_cell(cell)
                .with_layers(2)
                .init(device);
            let input = normal([2, 4, 3], device);
            let (want, want_state) = module.forward(input.clone(), None, None);
            let mut state = None;
            for place in 0..4 {
                let here = input.clone().slice_dim(1, place..place + 1).reshape([2, 3]);
                let (got, next) = module.step(here, state.take());
                let want = want.clone().slice_dim(1, place..place + 1).reshape([2, 5]);
                same("a step", got, want);
                state = Some(next);
            }
            same_states(state.expect("no state"), want_state);
        }
    }),
    ("a-layer-goes-over-the-one-before", |device| {
        let module = RecurrentConfig::new(3, 4)
            .with_layers(2)
            .with_direction(Direction::Both)
            .init(device);
        let one = |at: usize| {
            let d_input = if at == 0 { 3 } else { 8 };
            let mut single = RecurrentConfig::new(d_input, 4)
                .with_direction(Direction::Both)
                .init(device);
            single.layers = vec![module.layers[at].clone()];
            single
        };
        let input = normal([2, 3, 3], device);
        let lengths = Some(&[3, 1][..]);
        let (between, _) = one(0).forward(input.clone(), lengths, None);
        let (want, _) = one(1).forward(between, lengths, None);
        let (got, _) = module.forward(input, lengths, None);
        same("outputs", got, want)
    }),
    ("chosen-rows-of-a-state-go-on-alone", |device| {
        let module = RecurrentConfig::new(2, 3)
            .with_cell(Cell::Lstm)
            .init(device);
        let (_, state) = module.forward(normal([3, 2, 2], device), None, None);
        let rows = Tensor::from_data([2, 0, 2], device);
        let input = normal([1, 2], device);
        let (all, _) = module.step(input.clone().expand([3, 2]), Some(state.clone()));
        let (got, _) = module.step(input.expand([3, 2]), Some(state.select(rows.clone())));
        same("chosen rows", got, all.select(0, rows))
    }),
    // 70 rows are several tasks wherever rows are computed side by side.
    ("many-rows-are-each-on-their-own", |device| {
        let device = &device.clone().autodiff();
        for cell in CELLS {
            let module = RecurrentConfig::new(2, 20)
                .with_cell(cell)
                .with_direction(Direction::Both)
                .init(device);
            let lengths: Vec<usize> = (0..70).map(|row| row * 7 % 5).collect();
            let (input, upstream) = (normal([70, 4, 2], device), normal([70, 4, 40], device));
            let run = |rows: std::ops::Range<usize>| {
                let input = input.clone().slice_dim(0, rows.clone());
                let (got, _) = module.forward(input, Some(&lengths[rows.clone()]), None);
                let gradients = (got.clone() * upstream.clone().slice_dim(0, rows)).sum();
                (got, of_parameters(&module, &gradients.backward()))
            };
            let (got, gradients) = run(0..70);
            let [first, second] = [0..35, 35..70].map(run);
            same("outputs", got, Tensor::cat(vec![first.0, second.0], 0));
            for ((got, a), b) in gradients.iter().zip(first.1).zip(second.1) {
                let want: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(a + b)).collect();
                must(tolerance().check("a parameter's gradient", got, &want));
            }
        }
    }),
    ("no-bias-is-a-bias-of-zero", |device| {
        let without = RecurrentConfig::new(2, 3).with_bias(false).init(device);
        let mut with = RecurrentConfig::new(2, 3).init(device);
        let mut layer = without.layers[0].clone();
        if let Some(weights) = &mut layer.forward {
            let zeros = || Some(Param::from_tensor(Tensor::zeros([9], device)));
            weights.input.bias = zeros();
            weights.hidden.bias = zeros();
        }
        with.layers = vec![layer];
        let input = normal([2, 3, 2], device);
        let (want, _) = with.forward(input.clone(), None, None);
        let (got, _) = without.forward(input, None, None);
        same("outputs", got, want)
    }),
    ("misuse-is-named", |device| {
        let module = RecurrentConfig::new(3, 4).init(device);
        is_refused(
            || module.forward(Tensor::zeros([2, 5, 4], device), None, None),
            "recurrent layers: input must be [batch, seq, d_input = 3], got [2, 5, 4]",
        );
        is_refused(
            || module.forward(Tensor::zeros([2, 5, 3], device), Some(&[5, 6]), None),
            "gru recurrence: 2 lengths up to 5 expected, got [5, 6]",
        );
        let state = |batch: usize, cell: Option<Tensor<2>>| RecurrentState {
            layers: vec![LayerState {
                hidden: Tensor::zeros([batch, 4], device),
                cell,
            }],
        };
        is_refused(
            || module.step(Tensor::zeros([2, 3], device), Some(state(3, None))),
            "gru recurrence: the state must be [2, 4], got [3, 4]",
        );
        let with_cell = state(2, Some(Tensor::zeros([2, 4], device)));
        is_refused(
            || module.step(Tensor::zeros([2, 3], device), Some(with_cell)),
            "gru recurrence: an LSTM's state has a cell and a GRU's has none, got the other's",
        );
    }),
];
