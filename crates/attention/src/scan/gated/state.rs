//! The recurrent state of a gated recurrence, for decoding.

use burn::tensor::Tensor;

use super::chunks::{Sequence, scan};
use super::{Update, normalize};
use crate::AttentionShape;
use crate::decode::cache::select_batch;
use crate::mechanisms::Gates;
use crate::precision::{check, narrow, widen};
use crate::scan::grouped_matmul;
use crate::shape::check_device;

/// The state of each key/value head, a matrix of keys by values. Its size does not depend on the
/// sequence length.
#[derive(Debug, Clone)]
pub(crate) struct GatedState {
    update: Update,
    /// `[batch, kv_heads, d_head, d_value]`
    sums: Option<Tensor<4>>,
}

impl GatedState {
    pub(crate) fn new(update: Update) -> Self {
        Self { update, sums: None }
    }

    /// The state of the given batch indices, in this order.
    pub(crate) fn select(&self, examples: &[usize]) -> Self {
        let sums = self.sums.clone();
        Self {
            sums: sums.map(|sums| select_batch(sums, examples)),
            ..*self
        }
    }

    pub(crate) fn num_elements(&self) -> usize {
        self.sums
            .as_ref()
            .map_or(0, |sums| sums.shape().num_elements())
    }

    /// Adds positions to the state. It is unchanged if the shapes do not match, which panics.
    pub(crate) fn extend(&mut self, key: Tensor<4>, value: Tensor<4>, gates: &Gates) {
        let shape = AttentionShape::from_tensors(OP, &key, &key, &value);
        check(OP, [key.dtype(), key.dtype(), value.dtype()]);
        gates.check(OP, &shape);
        let expected = [shape.batch, shape.kv_heads, shape.d_head, shape.d_value];
        if let Some(sums) = &self.sums {
            let got = sums.dims();
            assert!(
                got == expected,
                "{OP}: keys and values must fit the state {got:?}, got {expected:?}"
            );
            check_device(OP, "a state", &key.device(), &sums.device());
        }
        let [key, value] = [key, value].map(widen);
        let sequence = Sequence {
            query: None,
            key: match self.update {
                Update::Add => key,
                Update::Delta => normalize(key),
            },
            value,
            gates: gates.map(widen),
            update: self.update,
        };
        let (_, sums) = scan(sequence, self.sums.take());
        self.sums = Some(sums);
    }

    /// Attends to all positions so far.
    pub(crate) fn attend(&self, query: Tensor<4>, scale: f64) -> Tensor<4> {
        let stored = query.dtype();
        check(OP, [stored; 3]);
        let Some(sums) = self.sums.clone() else {
            panic!("{OP}: the state is empty");
        };
        let query = match self.update {
            Update::Add => widen(query),
            Update::Delta => normalize(widen(query)),
        };
        narrow(grouped_matmul(query.mul_scalar(scale), sums), stored)
    }
}

const OP: &str = "gated linear attention state";
