//! Recurrent layers against the oracle, and their properties.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::Gradients;
use zoo_kernels::recurrent::{
    Cell, DirectedWeights, Direction, LayerState, Recurrent, RecurrentConfig, RecurrentState,
};
use zoo_kernels::without_kernels;
use zoo_oracle::{RecurrentCell, RecurrentInputs, RecurrentProblem, Tolerance};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    for problem in PROBLEMS {
        let name = format!("recurrent/{}", problem.name);
        suite.add_training(format!("{name}/kernel"), |device| {
            check_problem(problem, device)
        });
        // The recorded loop is the same for all: one problem of each cell is sufficient.
        if problem.reverse.len() == 2 {
            suite.add_training(format!("{name}/recorded"), |device| {
                without_kernels(|| check_problem(problem, device));
            });
        }
    }
    suite.add_table("recurrent/", TESTS);
}

const PROBLEMS: &[RecurrentProblem] = &[
    RecurrentProblem {
        name: "gru-both-with-an-empty-row",
        cell: RecurrentCell::Gru,
        reverse: &[false, true],
        seq: 5,
        lengths: &[5, 0, 3],
        d_input: 4,
        d_hidden: 5,
        has_state: true,
    },
    RecurrentProblem {
        name: "lstm-both-of-many-lengths",
        cell: RecurrentCell::Lstm,
        reverse: &[false, true],
        seq: 6,
        lengths: &[2, 5, 4],
        d_input: 2,
        d_hidden: 3,
        has_state: true,
    },
    RecurrentProblem {
        name: "gru-of-ones",
        cell: RecurrentCell::Gru,
        reverse: &[true],
        seq: 1,
        lengths: &[1],
        d_input: 1,
        d_hidden: 1,
        has_state: false,
    },
    RecurrentProblem {
        name: "lstm-backward",
        cell: RecurrentCell::Lstm,
        reverse: &[true],
        seq: 3,
        lengths: &[1, 3],
        d_input: 3,
        d_hidden: 2,
        has_state: false,
    },
    // Wider than a SIMD register, and not a multiple of it.
    RecurrentProblem {
        name: "gru-wider-than-a-register",
        cell: RecurrentCell::Gru,
        reverse: &[false],
        seq: 4,
        lengths: &[4, 4],
        d_input: 3,
        d_hidden: 19,
        has_state: true,
    },
    RecurrentProblem {
        name: "lstm-wider-than-a-register",
        cell: RecurrentCell::Lstm,
        reverse: &[false],
        seq: 3,
        lengths: &[3, 2],
        d_input: 5,
        d_hidden: 33,
        has_state: false,
    },
];

fn tensor<const D: usize>(values: &[f64], dims: [usize; D], device: &Device) -> Tensor<D> {
    let values = values.iter().map(|x| *x as f32);
    tensor_of(values.collect(), dims, device)
}

/// A layer with the parameters of a problem, whose matrices are transposed.
fn layer_of(problem: &RecurrentProblem, inputs: &RecurrentInputs, device: &Device) -> Recurrent {
    let cell = match problem.cell {
        RecurrentCell::Gru => Cell::Gru,
        RecurrentCell::Lstm => Cell::Lstm,
    };
    let direction = match problem.reverse {
        [false] => Direction::Forward,
        [true] => Direction::Backward,
        _ => Direction::Both,
    };
    let mut module = RecurrentConfig::new(problem.d_input, problem.d_hidden)
        .with_cell(cell)
        .with_direction(direction)
        .init(device);
    let gates = problem.gates() * problem.d_hidden;
    let layer = &mut module.layers[0];
    let directions = layer.forward.iter_mut().chain(&mut layer.reverse);
    for (direction, weights) in directions.enumerate() {
        let set = |linear: &mut Linear, matrix: &[f64], bias: &[f64], width: usize| {
            let matrix = &matrix[direction * gates * width..][..gates * width];
            let matrix = tensor(matrix, [gates, width], device).transpose();
            linear.weight = Param::from_tensor(matrix);
            let bias = tensor(&bias[direction * gates..][..gates], [gates], device);
            linear.bias = Some(Param::from_tensor(bias));
        };
        let DirectedWeights { input, hidden } = weights;
        set(input, &inputs.weight_ih, &inputs.bias_ih, problem.d_input);
        set(hidden, &inputs.weight_hh, &inputs.bias_hh, problem.d_hidden);
    }
    module
}

fn state_of(problem: &RecurrentProblem, inputs: &RecurrentInputs, device: &Device) -> LayerState {
    let width = problem.reverse.len() * problem.d_hidden;
    let tracked = |values: &[f64]| {
        let tensor = tensor(values, [problem.lengths.len(), width], device);
        tensor.require_grad()
    };
    LayerState {
        hidden: tracked(&inputs.hidden),
        cell: (problem.cell == RecurrentCell::Lstm).then(|| tracked(&inputs.cell)),
    }
}

/// Rounding errors accumulate over the positions, each with two dot products: as large as those of
/// attention gradients with scores up to 8.
fn tolerance() -> Tolerance {
    Precision::F32.backward(8.0)
}

fn check_problem(problem: &RecurrentProblem, device: &Device) {
    let inputs = problem.sample_inputs();
    let (solution, output_grad) = (problem.solve(&inputs), problem.sample_output_grad());
    let expected = problem.finite_difference_grads(&inputs, &output_grad);
    let module = layer_of(problem, &inputs, device);
    let dims = [problem.lengths.len(), problem.seq, problem.d_input];
    let input = tensor(&inputs.input, dims, device).require_grad();
    let state = state_of(problem, &inputs, device);
    let initial = problem.has_state.then(|| RecurrentState {
        layers: vec![state.clone()],
    });
    let (outputs, mut last) = module.forward(input.clone(), Some(problem.lengths), initial);
    let last = last.layers.remove(0);
    let tolerance = tolerance();
    must(tolerance.check("outputs", &to_vec(outputs.clone()), &solution.outputs));
    must(tolerance.check("hidden", &to_vec(last.hidden.clone()), &solution.hidden));
    let mut loss =
        weighted(outputs, &output_grad.outputs) + weighted(last.hidden, &output_grad.hidden);
    if let Some(cell) = last.cell {
        must(tolerance.check("cell", &to_vec(cell.clone()), &solution.cell));
        loss = loss + weighted(cell, &output_grad.cell);
    }
    let gradients = loss.backward();
    let got = parameter_gradients(&module, &gradients);
    must(tolerance.check("d_weight_ih", &got[0], &expected.weight_ih));
    must(tolerance.check("d_weight_hh", &got[1], &expected.weight_hh));
    must(tolerance.check("d_bias_ih", &got[2], &expected.bias_ih));
    must(tolerance.check("d_bias_hh", &got[3], &expected.bias_hh));
    let d_input = input.grad(&gradients).expect("a gradient");
    must(tolerance.check("d_input", &to_vec(d_input), &expected.input));
    if problem.has_state {
        let d_hidden = state.hidden.grad(&gradients).expect("a gradient");
        must(tolerance.check("d_hidden", &to_vec(d_hidden), &expected.hidden));
        if let Some(cell) = state.cell {
            let d_cell = cell.grad(&gradients).expect("a gradient");
            must(tolerance.check("d_cell", &to_vec(d_cell), &expected.cell));
        }
    }
}

fn weighted<const D: usize>(results: Tensor<D>, output_grad: &[f64]) -> Tensor<1> {
    let output_grad = tensor(output_grad, results.dims(), &results.device());
    (results * output_grad).sum()
}

/// Gradients as the problem lays them out: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.
fn parameter_gradients(module: &Recurrent, gradients: &Gradients) -> [Vec<f32>; 4] {
    let mut all: [Vec<f32>; 4] = Default::default();
    let layer = &module.layers[0];
    for weights in layer.forward.iter().chain(&layer.reverse) {
        for (i, linear) in [&weights.input, &weights.hidden].into_iter().enumerate() {
            let weight = linear.weight.val().grad(gradients).expect("no gradient");
            all[i].extend(to_vec(weight.transpose()));
            let bias = linear.bias.as_ref().expect("no bias").val();
            all[2 + i].extend(to_vec(bias.grad(gradients).expect("no gradient")));
        }
    }
    all
}

fn assert_near<const D: usize>(name: &str, got: Tensor<D>, want: Tensor<D>) {
    must(tolerance().compare(name, &to_vec(got), &to_vec(want)));
}

fn assert_states_near(got: RecurrentState, want: RecurrentState) {
    for (got, want) in got.layers.into_iter().zip(want.layers) {
        assert_near("hidden", got.hidden, want.hidden);
        if let (Some(got), Some(want)) = (got.cell, want.cell) {
            assert_near("cell", got, want);
        }
    }
}

const CELLS: [Cell; 2] = [Cell::Gru, Cell::Lstm];

fn bidirectional(d_input: usize, d_hidden: usize) -> RecurrentConfig {
    RecurrentConfig::new(d_input, d_hidden).with_direction(Direction::Both)
}

const TESTS: &[(&str, Test)] = &[
    ("padding-has-no-effect", |device| {
        let device = &device.clone().autodiff();
        for cell in CELLS {
            let config = bidirectional(3, 4).with_cell(cell).with_layers(2);
            let module = config.init(device);
            let input = random_normal([2, 3, 3], device);
            let padding = Tensor::full([2, 2, 3], f32::NAN, device);
            let padded = Tensor::cat(vec![input.clone(), padding], 1).require_grad();
            let lengths = [3, 2];
            let (want, want_state) = module.forward(input, Some(&lengths), None);
            let (got, state) = module.forward(padded.clone(), Some(&lengths), None);
            assert_near("outputs", got.clone().slice_dim(1, 0..3), want);
            assert_states_near(state, want_state);
            let padding = to_vec(got.clone().slice_dim(1, 3..5));
            assert!(padding.iter().all(|x| *x == 0.0), "{cell}: {padding:?}");
            let output_grad = random_normal([2, 5, 8], device);
            let gradients = (got * output_grad).sum().backward();
            let d_input = to_vec(padded.grad(&gradients).expect("a gradient"));
            // `[2, 5, 3]`; the first row has 3 positions, the second 2.
            let (first, second) = d_input.split_at(15);
            let padding = [&first[9..], &second[6..]].concat();
            assert!(padding.iter().all(|x| *x == 0.0), "{cell}: {d_input:?}");
            assert!(!d_input.iter().any(|x| x.is_nan()), "{cell}: {d_input:?}");
        }
    }),
    ("steps-match-the-forward-pass", |device| {
        for cell in CELLS {
            let module = RecurrentConfig::new(3, 5)
                .with_cell(cell)
                .with_layers(2)
                .init(device);
            let input = random_normal([2, 4, 3], device);
            let (want, want_state) = module.forward(input.clone(), None, None);
            let mut state = None;
            for position in 0..4 {
                let at_position = |x: &Tensor<3>| {
                    let x = x.clone().slice_dim(1, position..position + 1);
                    x.squeeze_dim::<2>(1)
                };
                let (got, next) = module.step(at_position(&input), state.take());
                assert_near("step", got, at_position(&want));
                state = Some(next);
            }
            assert_states_near(state.expect("no state"), want_state);
        }
    }),
    ("layers-are-stacked", |device| {
        let module = bidirectional(3, 4).with_layers(2).init(device);
        let single = |index: usize| {
            let d_input = if index == 0 { 3 } else { 8 };
            let mut layer = bidirectional(d_input, 4).init(device);
            layer.layers = vec![module.layers[index].clone()];
            layer
        };
        let input = random_normal([2, 3, 3], device);
        let lengths = Some(&[3, 1][..]);
        let (between, _) = single(0).forward(input.clone(), lengths, None);
        let (want, _) = single(1).forward(between, lengths, None);
        let (got, _) = module.forward(input, lengths, None);
        assert_near("outputs", got, want)
    }),
    ("selected-rows-of-a-state-are-independent", |device| {
        let module = RecurrentConfig::new(2, 3)
            .with_cell(Cell::Lstm)
            .init(device);
        let (_, state) = module.forward(random_normal([3, 2, 2], device), None, None);
        let rows = Tensor::from_data([2, 0, 2], device);
        let input = random_normal([1, 2], device);
        let (all, _) = module.step(input.clone().expand([3, 2]), Some(state.clone()));
        let (got, _) = module.step(input.expand([3, 2]), Some(state.select(rows.clone())));
        assert_near("selected rows", got, all.select(0, rows))
    }),
    // 70 rows are several tasks on backends that process rows in parallel.
    ("rows-are-independent", |device| {
        let device = &device.clone().autodiff();
        for cell in CELLS {
            let module = bidirectional(2, 20).with_cell(cell).init(device);
            let lengths: Vec<usize> = (0..70).map(|row| row * 7 % 5).collect();
            let [input, output_grad] = [2, 40].map(|width| random_normal([70, 4, width], device));
            let run = |rows: std::ops::Range<usize>| {
                let input = input.clone().slice_dim(0, rows.clone());
                let (got, _) = module.forward(input, Some(&lengths[rows.clone()]), None);
                let gradients = (got.clone() * output_grad.clone().slice_dim(0, rows)).sum();
                (got, parameter_gradients(&module, &gradients.backward()))
            };
            let (got, gradients) = run(0..70);
            let [first, second] = [0..35, 35..70].map(run);
            assert_near("outputs", got, Tensor::cat(vec![first.0, second.0], 0));
            for ((got, a), b) in gradients.iter().zip(first.1).zip(second.1) {
                let want: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(a + b)).collect();
                must(tolerance().check("parameter gradient", got, &want));
            }
        }
    }),
    ("no-bias-equals-zero-bias", |device| {
        let without = RecurrentConfig::new(2, 3).with_bias(false).init(device);
        let mut with = RecurrentConfig::new(2, 3).init(device);
        let mut layer = without.layers[0].clone();
        if let Some(weights) = &mut layer.forward {
            let zeros = || Some(Param::from_tensor(Tensor::zeros([9], device)));
            weights.input.bias = zeros();
            weights.hidden.bias = zeros();
        }
        with.layers = vec![layer];
        let input = random_normal([2, 3, 2], device);
        let (want, _) = with.forward(input.clone(), None, None);
        let (got, _) = without.forward(input, None, None);
        assert_near("outputs", got, want)
    }),
    ("invalid-inputs-are-rejected", |device| {
        let module = RecurrentConfig::new(3, 4).init(device);
        assert_panics_containing(
            || module.forward(Tensor::zeros([2, 5, 4], device), None, None),
            "recurrent layers: input must be [batch, seq, d_input = 3], got [2, 5, 4]",
        );
        assert_panics_containing(
            || module.forward(Tensor::zeros([2, 5, 3], device), Some(&[5, 6]), None),
            "gru recurrence: 2 lengths up to 5 expected, got [5, 6]",
        );
        let state = |batch: usize, cell: Option<Tensor<2>>| RecurrentState {
            layers: vec![LayerState {
                hidden: Tensor::zeros([batch, 4], device),
                cell,
            }],
        };
        assert_panics_containing(
            || module.step(Tensor::zeros([2, 3], device), Some(state(3, None))),
            "gru recurrence: the state must be [2, 4], got [3, 4]",
        );
        let with_cell = state(2, Some(Tensor::zeros([2, 4], device)));
        assert_panics_containing(
            || module.step(Tensor::zeros([2, 3], device), Some(with_cell)),
            "gru recurrence: an LSTM state needs a cell state, and a GRU state must not have one",
        );
    }),
];
