//! Backends whose tensors lie in host memory compute with the [CPU kernels](super::cpu); LibTorch
//! elsewhere by the portable loop.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;

use super::call::{InputGradients, Kept, Remembered, Saved, Settings};
use super::cpu::{self, Call, Given, Gradients, Known, Results};
use super::ops::{RecurrenceForward, RecurrenceTraining};
use super::portable;
use crate::hosts::Host;

impl<B: Host> RecurrenceForward for B {
    fn recurrence(
        projected: FloatTensor<B>,
        recurrent: FloatTensor<B>,
        biases: FloatTensor<B>,
        initial: FloatTensor<B>,
        settings: Settings,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        if !B::is_on_host(&projected) {
            return portable::forward::<B>(projected, recurrent, biases, initial, &settings);
        }
        let tensors = [&projected, &recurrent, &biases, &initial];
        let ran = forward::<B>(tensors, &settings, false);
        (ran.outputs, ran.last)
    }
}

impl<B: Host> RecurrenceTraining for B {
    fn recurrence_forward(
        projected: FloatTensor<B>,
        recurrent: FloatTensor<B>,
        biases: FloatTensor<B>,
        initial: FloatTensor<B>,
        settings: &Settings,
    ) -> Remembered<B> {
        if !B::is_on_host(&projected) {
            return portable::remembering::<B>(projected, recurrent, biases, initial, settings);
        }
        let tensors = [&projected, &recurrent, &biases, &initial];
        forward::<B>(tensors, settings, true)
    }

    fn recurrence_backward(
        saved: Saved<B>,
        d_outputs: FloatTensor<B>,
        d_last: Option<FloatTensor<B>>,
        settings: &Settings,
    ) -> InputGradients<B> {
        match &saved.kept {
            Kept::Tensor(_) => portable::backward::<B>(saved, d_outputs, d_last, settings),
            Kept::Numbers(kept) => {
                backward::<B>(&saved, kept, &d_outputs, d_last.as_ref(), settings)
            }
        }
    }
}

fn call<'a>(settings: &'a Settings, recurrent: &'a [f32]) -> Call<'a> {
    Call {
        cell: settings.cell,
        direction: settings.direction,
        seq: settings.seq,
        d_hidden: settings.d_hidden,
        lengths: &settings.lengths,
        recurrent,
    }
}

/// Forward, and what the backward pass needs if it is wanted.
fn forward<B: Host>(
    [projected, recurrent, biases, initial]: [&FloatTensor<B>; 4],
    settings: &Settings,
    remembers: bool,
) -> Remembered<B> {
    let &Settings {
        cell,
        batch,
        seq,
        width,
        ..
    } = settings;
    let states = cell.states() * width;
    let (mut outputs, mut last) = (vec![0.0; batch * seq * width], vec![0.0; batch * states]);
    let kept = cpu::forward(
        &call(settings, &B::elements(recurrent)),
        &Given {
            projected: &B::elements(projected),
            biases: &B::elements(biases),
            initial: &B::elements(initial),
        },
        Results {
            outputs: &mut outputs,
            last: &mut last,
        },
        remembers,
    );
    Remembered {
        outputs: B::from_vec(outputs, &[batch, seq, width]),
        last: B::from_vec(last, &[batch, states]),
        kept: Kept::Numbers(Arc::new(kept)),
    }
}

/// The gradients, from what the forward pass here has saved.
fn backward<B: Host>(
    saved: &Saved<B>,
    kept: &[f32],
    d_outputs: &FloatTensor<B>,
    d_last: Option<&FloatTensor<B>>,
    settings: &Settings,
) -> InputGradients<B> {
    let &Settings {
        cell,
        batch,
        seq,
        width,
        ..
    } = settings;
    let (gates, states) = (settings.gates(), cell.states() * width);
    let (mut projected, mut initial) = (vec![0.0; batch * seq * gates], vec![0.0; batch * states]);
    let d_last = d_last.map(B::elements);
    let (recurrent, biases) = cpu::backward(
        &call(settings, &B::elements(&saved.recurrent)),
        &Known {
            initial: &B::elements(&saved.initial),
            outputs: &B::elements(&saved.outputs),
            kept,
            d_outputs: &B::elements(d_outputs),
            d_last: d_last.as_deref(),
        },
        Gradients {
            projected: &mut projected,
            initial: &mut initial,
        },
    );
    let passes = settings.direction.passes();
    InputGradients {
        projected: B::from_vec(projected, &[batch, seq, gates]),
        recurrent: B::from_vec(recurrent, &[width, gates / passes]),
        biases: B::from_vec(biases, &[2, gates]),
        initial: B::from_vec(initial, &[batch, states]),
    }
}
