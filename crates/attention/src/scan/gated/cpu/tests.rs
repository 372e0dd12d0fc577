//! All instruction sets compute the values and gradients of the composition of matmuls, and access
//! memory only within their slices.

use burn::tensor::{Device, Tensor, TensorData};
use zoo_kernels::cpu::InstructionSet;

use super::*;
#[cfg(unix)]
use crate::cpu::guarded::{Edge, Guarded};
use crate::mechanisms::Gates;
use crate::scan::gated::chunks::{Sequence, scan};
use crate::scan::gated::normalize;

/// Pairs of query heads that share a key/value head; several chunks, the last of which is not full,
/// and a part of one; widths that are no multiple of the lanes, and widths that are.
const SHAPES: [AttentionShape; 4] = [
    shape(203, [20, 37]),
    shape(130, [32, 16]),
    shape(64, [3, 1]),
    shape(5, [16, 20]),
];

const fn shape(seq: usize, [d_head, d_value]: [usize; 2]) -> AttentionShape {
    AttentionShape {
        heads: 4,
        kv_heads: 2,
        d_head,
        d_value,
        ..AttentionShape::single_head(1, seq, seq)
    }
}

const SCALE: f32 = 0.4;

#[derive(Debug, Clone, Copy)]
struct Problem {
    shape: AttentionShape,
    update: Update,
    decays: usize,
    set: InstructionSet,
}

/// Query, key, value, logarithms of decays, strengths and the gradient of the context.
type Inputs = [Vec<f32>; 6];

/// Context and the gradients of the five inputs.
type Results = [Vec<f32>; 6];

impl Problem {
    fn dims(&self) -> [[usize; 4]; 6] {
        let AttentionShape {
            batch,
            heads,
            kv_heads,
            seq_k: seq,
            d_head,
            d_value,
            ..
        } = self.shape;
        [
            [batch, heads, seq, d_head],
            [batch, kv_heads, seq, d_head],
            [batch, kv_heads, seq, d_value],
            [batch, kv_heads, seq, self.decays],
            [batch, kv_heads, seq, 1],
            [batch, heads, seq, d_value],
        ]
    }

    fn inputs(&self) -> Inputs {
        let mut seed = 0u64;
        let mut tensor = 0;
        self.dims().map(|dims| {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 40) as f32 / (1u64 << 24) as f32
            };
            tensor += 1;
            let count = dims.iter().product();
            match tensor {
                // From hardly any decay to one of e^-6.
                4 => (0..count).map(|_| -6.0 * next().powi(8)).collect(),
                5 => (0..count).map(|_| next()).collect(),
                _ => (0..count).map(|_| 4.0 * next() - 2.0).collect(),
            }
        })
    }
}

fn problems() -> Vec<Problem> {
    let mut problems = Vec::new();
    for shape in SHAPES {
        for update in [Update::Add, Update::Delta] {
            for decays in [1, shape.d_head] {
                problems.push(Problem {
                    shape,
                    update,
                    decays,
                    set: InstructionSet::detect(),
                });
            }
        }
    }
    problems
}

/// The results of the kernels, with each tensor in memory from `alloc`.
fn compute<T: AsMut<[f32]>>(
    problem: &Problem,
    inputs: &Inputs,
    alloc: impl Fn(&[f32]) -> T,
) -> Results {
    let dims = problem.dims();
    let mut tensors = inputs.each_ref().map(|values| alloc(values));
    let [query, key, value, log_decay, strength, d_context] = {
        let mut dims = dims.iter();
        tensors.each_mut().map(|values| {
            let [_, heads, seq, width] = *dims.next().expect("one for each tensor");
            Heads::new(
                values.as_mut(),
                [heads * seq * width, seq * width, width],
                width,
            )
        })
    };
    let call = Call {
        shape: problem.shape,
        update: problem.update,
        scale: SCALE,
        decays: problem.decays,
        query,
        key,
        value,
        log_decay,
        strength,
        set: problem.set,
    };
    // Everything is written, so the initial contents do not matter.
    let garbage = |like: &Vec<f32>| alloc(&vec![f32::NAN; like.len()]);
    let mut context = garbage(&inputs[5]);
    let mut states = alloc(&vec![f32::NAN; call.states_len()]);
    forward(&call, initialised(context.as_mut()), states.as_mut());
    let mut untracked = garbage(&inputs[5]);
    forward(&call, initialised(untracked.as_mut()), &mut []);
    let bits = |values: &mut T| {
        values
            .as_mut()
            .iter()
            .map(|x| x.to_bits())
            .collect::<Vec<_>>()
    };
    assert!(
        bits(&mut context) == bits(&mut untracked),
        "tracking changes the context"
    );
    let mut grads = [0, 1, 2, 3, 4].map(|i: usize| garbage(&inputs[i]));
    let [query, key, value, log_decay, strength] =
        grads.each_mut().map(|grad| initialised(grad.as_mut()));
    let outputs = InputGrads {
        query,
        key,
        value,
        log_decay,
        strength,
    };
    backward(&call, states.as_mut(), d_context, outputs);
    let [d_query, d_key, d_value, d_log_decay, d_strength] =
        grads.map(|mut grad| grad.as_mut().to_vec());
    let context = context.as_mut().to_vec();
    [context, d_query, d_key, d_value, d_log_decay, d_strength]
}

/// The results of the composition of matmuls, differentiated by autodiff.
fn composite(problem: &Problem, inputs: &Inputs) -> Results {
    let device = Device::flex().autodiff();
    let dims = problem.dims();
    let mut index = 0;
    let tensors = inputs.each_ref().map(|values| {
        let data = TensorData::new(values.clone(), dims[index]);
        index += 1;
        Tensor::<4>::from_data(data, &device).require_grad()
    });
    let [query, key, value, log_decay, strength, d_context] = tensors.clone();
    let (q, k) = match problem.update {
        Update::Add => (query, key),
        Update::Delta => (normalize(query), normalize(key)),
    };
    let sequence = Sequence {
        query: Some(q.mul_scalar(SCALE)),
        key: k,
        value,
        gates: Gates {
            log_decay: Some(log_decay),
            strength: Some(strength),
            branches: None,
        },
        update: problem.update,
    };
    let (context, _) = scan(sequence, None);
    let context = context.expect("queries were given");
    let grads = (context.clone() * d_context).sum().backward();
    let values = |tensor: Tensor<4>| tensor.into_data().try_to_vec::<f32>().expect("it is f32");
    let mut results = vec![values(context.inner())];
    for tensor in &tensors[..5] {
        results.push(values(tensor.grad(&grads).expect("it has a gradient")));
    }
    results.try_into().expect("six results")
}

const NAMES: [&str; 6] = [
    "context",
    "query gradient",
    "key gradient",
    "value gradient",
    "decay gradient",
    "strength gradient",
];

fn assert_close(got: &Results, expected: &Results, what: &str) {
    for ((got, expected), name) in got.iter().zip(expected).zip(NAMES) {
        let max = expected.iter().fold(0f32, |max, x| max.max(x.abs()));
        assert!(max > 0.0, "{what}: the {name} is zero");
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            // Sums of up to 37 products of 200 positions.
            let is_close = (got - expected).abs() <= 2e-5 * max;
            assert!(
                is_close,
                "{what}: {name}, {i}: {got} != {expected}, largest {max}"
            );
        }
    }
}

#[test]
fn kernels_equal_the_composition() {
    for problem in problems() {
        let inputs = problem.inputs();
        let expected = composite(&problem, &inputs);
        for set in InstructionSet::available() {
            let problem = Problem { set, ..problem };
            let got = compute(&problem, &inputs, <[f32]>::to_vec);
            assert_close(&got, &expected, &format!("{problem:?}"));
        }
    }
}

/// Every tensor ends or begins at a guard page, so an access out of bounds crashes the test.
#[cfg(unix)]
#[test]
fn kernels_stay_in_bounds() {
    for problem in problems() {
        let inputs = problem.inputs();
        for set in InstructionSet::available() {
            let problem = Problem { set, ..problem };
            let unguarded = compute(&problem, &inputs, <[f32]>::to_vec);
            for edge in [Edge::End, Edge::Start] {
                let guarded = compute(&problem, &inputs, |values| Guarded::new(values, edge));
                assert_eq!(guarded, unguarded, "{problem:?}");
            }
        }
    }
}

/// A state that decays to nothing costs no precision where decays are weak, and strengths of zero have
/// finite gradients.
#[test]
fn strong_decays_cost_no_precision() {
    for problem in problems() {
        let mut inputs = problem.inputs();
        let mut set = |tensor: usize, step: usize, to: f32| {
            inputs[tensor]
                .iter_mut()
                .step_by(step)
                .for_each(|x| *x = to);
        };
        set(3, 7, -1000.0);
        set(4, 2, 0.0);
        let got = compute(&problem, &inputs, <[f32]>::to_vec);
        let expected = contexts_by_definition(&problem, &inputs);
        for (i, (got, expected)) in got[0].iter().zip(expected).enumerate() {
            let error = (f64::from(*got) - expected).abs();
            assert!(
                error < 1e-5 * (1.0 + expected.abs()),
                "{problem:?}, {i}: {got}, {expected}"
            );
        }
        for (grad, name) in got[1..].iter().zip(NAMES.iter().skip(1)) {
            assert!(grad.iter().all(|x| x.is_finite()), "{problem:?}: {name}");
        }
    }
}

/// The recurrence position by position, in `f64`.
fn contexts_by_definition(problem: &Problem, inputs: &Inputs) -> Vec<f64> {
    let AttentionShape {
        heads,
        seq_k: seq,
        d_head,
        d_value,
        ..
    } = problem.shape;
    let row = |tensor: usize, row: usize, width: usize| -> Vec<f64> {
        let row = &inputs[tensor][row * width..][..width];
        row.iter().map(|x| f64::from(*x)).collect()
    };
    let normalized = |mut row: Vec<f64>| {
        if problem.update == Update::Delta {
            let norm = (row.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            row.iter_mut().for_each(|x| *x /= norm);
        }
        row
    };
    let mut contexts = Vec::new();
    for head in 0..heads {
        let kv_head = head / problem.shape.group();
        let mut state = vec![vec![0.0; d_value]; d_head];
        for position in 0..seq {
            let at = kv_head * seq + position;
            let query = normalized(row(0, head * seq + position, d_head));
            let key = normalized(row(1, at, d_head));
            let mut value = row(2, at, d_value);
            let decay = row(3, at, problem.decays);
            let strength = row(4, at, 1)[0];
            for (i, state) in state.iter_mut().enumerate() {
                let decay = decay[i.min(problem.decays - 1)].exp();
                state.iter_mut().for_each(|x| *x *= decay);
            }
            let read = |key: &[f64], state: &[Vec<f64>], x: usize| -> f64 {
                key.iter().zip(state).map(|(key, row)| key * row[x]).sum()
            };
            if problem.update == Update::Delta {
                for (x, value) in value.iter_mut().enumerate() {
                    *value -= read(&key, &state, x);
                }
            }
            for (key, state) in key.iter().zip(&mut state) {
                for (x, value) in state.iter_mut().zip(&value) {
                    *x += strength * key * value;
                }
            }
            let scale = f64::from(SCALE);
            contexts.extend((0..d_value).map(|x| scale * read(&query, &state, x)));
        }
    }
    contexts
}

/// A key or value that is not finite affects the contexts from its position on. Its elements have no
/// gradient, and all other gradients are finite.
#[test]
fn non_finite_rows_affect_later_contexts_only() {
    const BAD: usize = 101;
    for problem in problems() {
        let AttentionShape {
            seq_k: seq,
            d_head,
            d_value,
            ..
        } = problem.shape;
        if seq <= BAD {
            continue;
        }
        for (tensor, width) in [(1, d_head), (2, d_value)] {
            let mut inputs = problem.inputs();
            let element = BAD * width + width / 2;
            inputs[tensor][element] = 0.0;
            let clean = compute(&problem, &inputs, <[f32]>::to_vec);
            for x in [f32::NAN, f32::INFINITY] {
                inputs[tensor][element] = x;
                let mut dirty = compute(&problem, &inputs, <[f32]>::to_vec);
                let rows = clean[0].chunks(d_value).zip(dirty[0].chunks(d_value));
                for (row, (clean, dirty)) in rows.enumerate() {
                    // Both query heads of the first key head.
                    if row / seq < 2 && row % seq >= BAD {
                        assert!(dirty.iter().all(|x| x.is_nan()), "{problem:?}, row {row}");
                    } else {
                        assert_eq!(clean, dirty, "{problem:?}, row {row}");
                    }
                }
                // All gradients are those of a zero, except its own.
                assert_eq!(dirty[1 + tensor][element], 0.0);
                dirty[1 + tensor][element] = clean[1 + tensor][element];
                assert_eq!(clean[1..], dirty[1..], "{problem:?}, tensor {tensor}");
            }
        }
    }
}
