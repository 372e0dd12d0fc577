//! Agreement of the instruction sets of this processor. The conformance suite tests correctness.

use super::*;
use crate::recurrent::recurrence::Direction;

/// Pseudo-random values in `±bound`.
fn random(count: usize, bound: f32, seed: u32) -> Vec<f32> {
    let value = |i: usize| {
        let mixed = (i as u32 ^ seed.rotate_left(16)).wrapping_mul(2_654_435_769);
        let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519);
        (f64::from(mixed ^ (mixed >> 13)) / f64::from(u32::MAX) * 2.0 - 1.0) as f32 * bound
    };
    (0..count).map(value).collect()
}

/// Runs forward and backward: outputs, last states, and the four gradients.
fn run(set: InstructionSet, cell: Cell, d_hidden: usize, lengths: &[usize]) -> [Vec<f32>; 6] {
    let (batch, seq, width) = (lengths.len(), 5, 2 * d_hidden);
    let settings = Settings {
        cell,
        direction: Direction::Both,
        batch,
        seq,
        d_hidden,
        width,
        lengths: lengths.into(),
    };
    let [gates, states] = [cell.gates() * width, cell.states() * width];
    let recurrent = &random(gates * d_hidden, 0.5, 1);
    let initial = &random(batch * states, 1.0, 4);
    let inputs = Inputs {
        projected: &random(batch * seq * gates, 2.0, 2),
        recurrent,
        biases: &random(2 * gates, 0.5, 3),
        initial,
    };
    let [outputs, last, activations] = forward(set, &settings, &inputs, true);
    let inputs = BackwardInputs {
        recurrent,
        initial,
        outputs: &outputs,
        activations: &activations,
        d_outputs: &random(batch * seq * width, 1.0, 5),
        d_last: Some(&random(batch * states, 1.0, 6)),
    };
    let [d_projected, d_recurrent, d_biases, d_initial] = backward(set, &settings, &inputs);
    [outputs, last, d_projected, d_recurrent, d_biases, d_initial]
}

#[test]
fn instruction_sets_agree() {
    for cell in [Cell::Gru, Cell::Lstm] {
        for d_hidden in [1, 7, 16, 37, 70] {
            for lengths in [&[3][..], &[5, 0, 1, 5, 2, 4, 3]] {
                let expected = run(InstructionSet::Portable, cell, d_hidden, lengths);
                for set in InstructionSet::available() {
                    let got = run(set, cell, d_hidden, lengths);
                    for (part, (got, expected)) in got.iter().zip(&expected).enumerate() {
                        let max = expected.iter().fold(0_f32, |max, x| max.max(x.abs()));
                        for (got, expected) in got.iter().zip(expected) {
                            // 60 ulps: 5 positions, each with dot products of up to 280 terms.
                            assert!(
                                (got - expected).abs() <= 4e-6 * max,
                                "{set:?} {cell} d_hidden = {d_hidden}, part {part}: {got} instead \
                                 of {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_tasks() {
    // Enough rows for several tasks.
    let lengths: Vec<usize> = (0..90).map(|row| row % 6).collect();
    for cell in [Cell::Gru, Cell::Lstm] {
        let d_hidden = 24;
        let [outputs, last, ..] = run(InstructionSet::detect(), cell, d_hidden, &lengths);
        // A smaller batch has the same first rows, in one task.
        let [few, few_last, ..] = run(InstructionSet::detect(), cell, d_hidden, &lengths[..5]);
        assert_eq!(outputs[..few.len()], few);
        assert_eq!(last[..few_last.len()], few_last);
    }
}
