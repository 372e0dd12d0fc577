//! Sizes of a call.

use crate::cpu::parallel;
use crate::recurrent::recurrence::call::Settings;
use crate::recurrent::recurrence::cell::Cell;

impl Settings {
    /// Activations saved per position and direction.
    pub(super) fn num_activations(&self) -> usize {
        match self.cell {
            Cell::Gru => 4 * self.d_hidden,
            Cell::Lstm => 5 * self.d_hidden,
        }
    }

    /// The position of a time step in a direction.
    pub(super) fn position(&self, length: usize, step: usize, dir: usize) -> usize {
        if self.direction.is_reverse(dir) {
            length - 1 - step
        } else {
            step
        }
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            outputs: self.seq * self.width,
            states: self.cell.states() * self.width,
            projected: self.seq * self.gates(),
            activations: self.seq * self.direction.num_directions() * self.num_activations(),
        }
    }

    /// Elements of the matrices of all directions.
    pub(super) fn matrix_len(&self) -> usize {
        self.gates() * self.d_hidden
    }

    /// Checks the lengths of slices, given as name, expected and actual length: kernels read them
    /// through raw pointers.
    pub(super) fn check<const N: usize>(&self, lengths: [(&str, usize, usize); N]) {
        for (name, expected, got) in lengths {
            assert!(
                got == expected,
                "{} recurrence: {name} must have {expected} elements, got {got}",
                self.cell
            );
        }
    }

    /// Row indices, the longest row first.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.batch).collect();
        order.sort_by_key(|row| std::cmp::Reverse(self.lengths[*row]));
        order
    }

    /// Rows per task: enough to amortise reading the matrix, and few enough to balance the load.
    pub(super) fn rows_per_task(&self) -> usize {
        let positions: usize = self.lengths.iter().sum();
        if positions * self.matrix_len() < MIN_PARALLEL_PRODUCTS {
            return self.batch;
        }
        let per_thread = self.batch.div_ceil(parallel::threads());
        if size_of::<f32>() * self.matrix_len() <= CORE_CACHE {
            per_thread.div_ceil(4).clamp(12, 48)
        } else {
            per_thread.min(96)
        }
    }
}

/// Multiplications below which one thread is faster than waking others: about 10 µs.
const MIN_PARALLEL_PRODUCTS: usize = 1 << 18;
/// Bytes of matrices that fit into the cache of one core.
const CORE_CACHE: usize = 1 << 20;

/// Elements per row of the batch.
pub(super) struct Sizes {
    pub(super) outputs: usize,
    pub(super) states: usize,
    pub(super) projected: usize,
    pub(super) activations: usize,
}
