//! The recurrence of host backends: [CPU kernels](super::cpu) for tensors in host memory, and the
//! portable kernel for LibTorch on CUDA.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;

use super::call::{Activations, ForwardOutput, Saved, Settings};
use super::cpu::{self, BackwardInputs, Inputs};
use super::ops::RecurrenceTraining;
use super::portable;
use crate::cpu::InstructionSet;
use crate::hosts::Host;

impl<B: Host> RecurrenceTraining for B {
    fn recurrence_forward(
        tensors: [FloatTensor<B>; 4],
        settings: &Settings,
        save_activations: bool,
    ) -> ForwardOutput<B> {
        if !B::is_on_host(&tensors[0]) {
            return portable::forward::<B>(tensors, settings, save_activations);
        }
        let [projected, recurrent, biases, initial] = tensors.each_ref().map(B::elements);
        let inputs = Inputs {
            projected: &projected,
            recurrent: &recurrent,
            biases: &biases,
            initial: &initial,
        };
        let set = InstructionSet::detect();
        let [outputs, last, activations] = cpu::forward(set, settings, &inputs, save_activations);
        let (batch, seq, width) = (settings.batch, settings.seq, settings.width);
        ForwardOutput {
            outputs: B::from_vec(outputs, &[batch, seq, width]),
            last: B::from_vec(last, &[batch, settings.cell.states() * width]),
            activations: save_activations.then(|| Activations::Host(Arc::new(activations))),
        }
    }

    fn recurrence_backward(
        saved: Saved<B>,
        d_outputs: FloatTensor<B>,
        d_last: Option<FloatTensor<B>>,
    ) -> [FloatTensor<B>; 4] {
        let Activations::Host(activations) = &saved.activations else {
            return portable::backward::<B>(saved, d_outputs, d_last);
        };
        let settings = &saved.settings;
        let d_last = d_last.as_ref().map(B::elements);
        let inputs = BackwardInputs {
            recurrent: &B::elements(&saved.recurrent),
            initial: &B::elements(&saved.initial),
            outputs: &B::elements(&saved.outputs),
            activations,
            d_outputs: &B::elements(&d_outputs),
            d_last: d_last.as_deref(),
        };
        let [projected, recurrent, biases, initial] =
            cpu::backward(InstructionSet::detect(), settings, &inputs);
        let (batch, seq, width) = (settings.batch, settings.seq, settings.width);
        let gates = settings.gates();
        let direction_gates = gates / settings.direction.num_directions();
        [
            B::from_vec(projected, &[batch, seq, gates]),
            B::from_vec(recurrent, &[width, direction_gates]),
            B::from_vec(biases, &[2, gates]),
            B::from_vec(initial, &[batch, settings.cell.states() * width]),
        ]
    }
}
