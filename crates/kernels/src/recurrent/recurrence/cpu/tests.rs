//! Every instruction set that this processor has computes the same; what is right is for the
//! conformance suite to say.

use super::*;
use crate::recurrent::recurrence::cell::{Cell, Direction};

/// Numbers that are random enough, up to `most`.
fn drawn(count: usize, most: f32, seed: u32) -> Vec<f32> {
    let number = |at: usize| {
        let mixed = (at as u32 ^ seed.rotate_left(16)).wrapping_mul(2_654_435_769);
        let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519);
        (f64::from(mixed ^ (mixed >> 13)) / f64::from(u32::MAX) * 2.0 - 1.0) as f32 * most
    };
    (0..count).map(number).collect()
}

/// All that comes out of both passes: outputs, last states, and the four gradients.
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
    let recurrent = &drawn(gates * d_hidden, 0.5, 1);
    let initial = &drawn(batch * states, 1.0, 4);
    let given = Given {
        projected: &drawn(batch * seq * gates, 2.0, 2),
        recurrent,
        biases: &drawn(2 * gates, 0.5, 3),
        initial,
    };
    let [outputs, last, kept] = forward_as(set, &settings, &given, true);
    let known = Known {
        recurrent,
        initial,
        outputs: &outputs,
        kept: &kept,
        d_outputs: &drawn(batch * seq * width, 1.0, 5),
        d_last: Some(&drawn(batch * states, 1.0, 6)),
    };
    let [d_projected, d_recurrent, d_biases, d_initial] = backward_as(set, &settings, &known);
    [outputs, last, d_projected, d_recurrent, d_biases, d_initial]
}

#[test]
fn all_kinds_compute_the_same() {
    for cell in [Cell::Gru, Cell::Lstm] {
        for d_hidden in [1, 7, 16, 37, 70] {
            for lengths in [&[3][..], &[5, 0, 1, 5, 2, 4, 3]] {
                let want = run(InstructionSet::Portable, cell, d_hidden, lengths);
                for set in InstructionSet::available() {
                    let got = run(set, cell, d_hidden, lengths);
                    for (part, (got, want)) in got.iter().zip(&want).enumerate() {
                        let most = want.iter().fold(0_f32, |most, x| most.max(x.abs()));
                        for (got, want) in got.iter().zip(want) {
                            // 60 units: 5 places, each with dot products of up to 280 terms.
                            assert!(
                                (got - want).abs() <= 4e-6 * most,
                                "{set:?} {cell} d_hidden = {d_hidden}, part {part}: {got} for {want}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn tasks_change_no_result() {
    // Enough rows for several tasks, and each again in a batch of its own.
    let lengths: Vec<usize> = (0..90).map(|row| row % 6).collect();
    for cell in [Cell::Gru, Cell::Lstm] {
        let d_hidden = 24;
        let [outputs, last, ..] = run(InstructionSet::detect(), cell, d_hidden, &lengths);
        // The first rows are drawn alike in a smaller batch.
        let [few, few_last, ..] = run(InstructionSet::detect(), cell, d_hidden, &lengths[..5]);
        assert_eq!(outputs[..few.len()], few);
        assert_eq!(last[..few_last.len()], few_last);
    }
}
