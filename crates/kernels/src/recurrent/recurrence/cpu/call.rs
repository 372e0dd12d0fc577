//! Sizes that follow from the settings of a call.

use crate::cpu::parallel;
use crate::recurrent::recurrence::call::Settings;
use crate::recurrent::recurrence::cell::Cell;

impl Settings {
    /// Numbers that are kept of each place and pass.
    pub(super) fn kept(&self) -> usize {
        match self.cell {
            Cell::Gru => 4 * self.d_hidden,
            Cell::Lstm => 5 * self.d_hidden,
        }
    }

    /// The place that a pass comes to with its visit number `visit`.
    pub(super) fn place(&self, length: usize, visit: usize, pass: usize) -> usize {
        match self.direction.is_backward(pass) {
            true => length - 1 - visit,
            false => visit,
        }
    }

    /// Numbers of all passes in a row: of a state, of all states, of all gates at all
    /// places, of all that is kept there.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            outputs: self.seq * self.width,
            states: self.cell.states() * self.width,
            projected: self.seq * self.gates(),
            kept: self.seq * self.direction.passes() * self.kept(),
        }
    }

    /// Numbers of the matrices of all passes.
    pub(super) fn matrix(&self) -> usize {
        self.gates() * self.d_hidden
    }

    /// Sees to it that there are as many numbers of each as the kernels expect, which read
    /// through raw pointers: a name, how many are expected, how many there are.
    pub(super) fn check<const N: usize>(&self, counts: [(&str, usize, usize); N]) {
        for (name, expected, got) in counts {
            assert!(
                got == expected,
                "{} recurrence: {expected} numbers of {name} expected, got {got}",
                self.cell
            );
        }
    }

    /// Rows, the longest first.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.batch).collect();
        order.sort_by_key(|row| std::cmp::Reverse(self.lengths[*row]));
        order
    }

    /// Rows of a task: so many that the matrix is worth reading, so few that a thread that
    /// is held up leaves others something to take over.
    pub(super) fn rows_of_a_task(&self) -> usize {
        let places: usize = self.lengths.iter().sum();
        if places * self.matrix() < ALONE {
            return self.batch;
        }
        let own = self.batch.div_ceil(parallel::threads());
        match size_of::<f32>() * self.matrix() <= NEAR {
            true => own.div_ceil(4).clamp(12, 48),
            false => own.min(96),
        }
    }
}

/// Products below which one thread is done before another has woken up: about 10 µs.
const ALONE: usize = 1 << 18;
/// Bytes of matrices that stay in a cache of one core, whoever reads them how often.
const NEAR: usize = 1 << 20;

/// Numbers in a row of the batch.
pub(super) struct Sizes {
    pub(super) outputs: usize,
    pub(super) states: usize,
    pub(super) projected: usize,
    pub(super) kept: usize,
}
