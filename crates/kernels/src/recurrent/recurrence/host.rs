//! Backends whose tensors lie in host memory compute with the [CPU kernels](super::cpu); LibTorch
//! elsewhere by the portable loop.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;

use super::call::{Kept, Remembered, Saved, Settings};
use super::cpu::{self, Given, Known};
use super::ops::RecurrenceTraining;
use super::portable;
use crate::hosts::Host;

impl<B: Host> RecurrenceTraining for B {
    fn recurrence_forward(
        tensors: [FloatTensor<B>; 4],
        settings: &Settings,
        remembers: bool,
    ) -> Remembered<B> {
        if !B::is_on_host(&tensors[0]) {
            return portable::forward::<B>(tensors, settings, remembers);
        }
        let [projected, recurrent, biases, initial] = tensors.each_ref().map(B::elements);
        let given = Given {
            projected: &projected,
            recurrent: &recurrent,
            biases: &biases,
            initial: &initial,
        };
        let [outputs, last, kept] = cpu::forward(settings, &given, remembers);
        let (batch, seq, width) = (settings.batch, settings.seq, settings.width);
        Remembered {
            outputs: B::from_vec(outputs, &[batch, seq, width]),
            last: B::from_vec(last, &[batch, settings.cell.states() * width]),
            kept: remembers.then(|| Kept::Numbers(Arc::new(kept))),
        }
    }

    fn recurrence_backward(
        saved: Saved<B>,
        d_outputs: FloatTensor<B>,
        d_last: Option<FloatTensor<B>>,
        settings: &Settings,
    ) -> [FloatTensor<B>; 4] {
        let Kept::Numbers(kept) = &saved.kept else {
            return portable::backward::<B>(saved, d_outputs, d_last, settings);
        };
        let d_last = d_last.as_ref().map(B::elements);
        let known = Known {
            recurrent: &B::elements(&saved.recurrent),
            initial: &B::elements(&saved.initial),
            outputs: &B::elements(&saved.outputs),
            kept,
            d_outputs: &B::elements(&d_outputs),
            d_last: d_last.as_deref(),
        };
        let [projected, recurrent, biases, initial] = cpu::backward(settings, &known);
        let (batch, seq, width) = (settings.batch, settings.seq, settings.width);
        let gates = settings.gates();
        [
            B::from_vec(projected, &[batch, seq, gates]),
            B::from_vec(recurrent, &[width, gates / settings.direction.passes()]),
            B::from_vec(biases, &[2, gates]),
            B::from_vec(initial, &[batch, settings.cell.states() * width]),
        ]
    }
}
