//! Backends whose tensors are numbers in the host's memory: they compute with the same
//! [CPU body](super::cpu).

use std::borrow::Cow;
use std::sync::Arc;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use super::cpu::{self, Call, Given, Gradients, Known, Results};
use super::ops::{InputGradients, Kept, Remembered, Saved, Settings};

/// A backend whose tensors can be read and made as slices.
pub(super) trait Host: Backend {
    /// A tensor in the making.
    type Room;
    /// The numbers of a tensor, row by row; copied only if they do not lie so.
    fn numbers(tensor: &FloatTensor<Self>) -> Cow<'_, [f32]>;
    /// Room for a tensor, with whatever numbers are there.
    fn room<const D: usize>(dims: [usize; D]) -> Self::Room;
    /// The numbers of what is in the making.
    fn slice(room: &mut Self::Room) -> &mut [f32];
    /// It is made.
    fn made<const D: usize>(room: Self::Room, dims: [usize; D]) -> FloatTensor<Self>;
    /// A tensor of these numbers.
    fn tensor<const D: usize>(numbers: Vec<f32>, dims: [usize; D]) -> FloatTensor<Self>;
}

/// The sizes of what comes out: hidden states and last states.
fn dims(settings: &Settings) -> ([usize; 3], [usize; 2]) {
    let &Settings {
        cell,
        batch,
        seq,
        width,
        ..
    } = settings;
    ([batch, seq, width], [batch, cell.states() * width])
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

/// Forward, and what the way back needs if it is wanted.
pub(super) fn forward<B: Host>(
    [projected, recurrent, biases, initial]: [&FloatTensor<B>; 4],
    settings: &Settings,
    remembers: bool,
) -> Remembered<B> {
    let (of_outputs, of_last) = dims(settings);
    let (mut outputs, mut last) = (B::room(of_outputs), B::room(of_last));
    let kept = cpu::forward(
        &call(settings, &B::numbers(recurrent)),
        &Given {
            projected: &B::numbers(projected),
            biases: &B::numbers(biases),
            initial: &B::numbers(initial),
        },
        Results {
            outputs: B::slice(&mut outputs),
            last: B::slice(&mut last),
        },
        remembers,
    );
    Remembered {
        outputs: B::made(outputs, of_outputs),
        last: B::made(last, of_last),
        kept: Kept::Numbers(Arc::new(kept)),
    }
}

/// Back; `None` if something else went forward.
pub(super) fn backward<B: Host>(
    saved: &Saved<B>,
    d_outputs: &FloatTensor<B>,
    d_last: Option<&FloatTensor<B>>,
    settings: &Settings,
) -> Option<InputGradients<B>> {
    let Kept::Numbers(kept) = &saved.kept else {
        return None;
    };
    let ([batch, seq, width], of_initial) = dims(settings);
    let gates = settings.gates();
    let of_projected = [batch, seq, gates];
    let (mut projected, mut initial) = (B::room(of_projected), B::room(of_initial));
    let d_last = d_last.map(B::numbers);
    let (recurrent, biases) = cpu::backward(
        &call(settings, &B::numbers(&saved.recurrent)),
        &Known {
            initial: &B::numbers(&saved.initial),
            outputs: &B::numbers(&saved.outputs),
            kept,
            d_outputs: &B::numbers(d_outputs),
            d_last: d_last.as_deref(),
        },
        Gradients {
            projected: B::slice(&mut projected),
            initial: B::slice(&mut initial),
        },
    );
    let passes = settings.direction.passes();
    Some(InputGradients {
        projected: B::made(projected, of_projected),
        recurrent: B::tensor(recurrent, [width, gates / passes]),
        biases: B::tensor(biases, [2, gates]),
        initial: B::made(initial, of_initial),
    })
}

/// Both halves of the op for a backend that is always on the host.
#[cfg(any(feature = "flex", feature = "ndarray"))]
macro_rules! compute_on_the_host {
    ($backend:ty) => {
        impl crate::recurrence::ops::RecurrenceForward for $backend {
            fn recurrence(
                projected: FloatTensor<Self>,
                recurrent: FloatTensor<Self>,
                biases: FloatTensor<Self>,
                initial: FloatTensor<Self>,
                settings: Settings,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                let tensors = [&projected, &recurrent, &biases, &initial];
                let ran = forward::<Self>(tensors, &settings, false);
                (ran.outputs, ran.last)
            }
        }

        impl crate::recurrence::ops::RecurrenceTraining for $backend {
            fn recurrence_forward(
                projected: FloatTensor<Self>,
                recurrent: FloatTensor<Self>,
                biases: FloatTensor<Self>,
                initial: FloatTensor<Self>,
                settings: &Settings,
            ) -> Remembered<Self> {
                let tensors = [&projected, &recurrent, &biases, &initial];
                forward::<Self>(tensors, settings, true)
            }

            fn recurrence_backward(
                saved: Saved<Self>,
                d_outputs: FloatTensor<Self>,
                d_last: Option<FloatTensor<Self>>,
                settings: &Settings,
            ) -> InputGradients<Self> {
                backward::<Self>(&saved, &d_outputs, d_last.as_ref(), settings)
                    .expect("a recurrence that went forward here goes back here")
            }
        }

        impl Host for $backend {
            type Room = Vec<f32>;

            fn numbers(tensor: &FloatTensor<Self>) -> Cow<'_, [f32]> {
                numbers(tensor)
            }

            fn room<const D: usize>(dims: [usize; D]) -> Vec<f32> {
                vec![0.0; dims.iter().product()]
            }

            fn slice(room: &mut Vec<f32>) -> &mut [f32] {
                room
            }

            fn made<const D: usize>(room: Vec<f32>, dims: [usize; D]) -> FloatTensor<Self> {
                Self::tensor(room, dims)
            }

            fn tensor<const D: usize>(numbers: Vec<f32>, dims: [usize; D]) -> FloatTensor<Self> {
                FloatTensor::<Self>::from_data(TensorData::new(numbers, dims))
            }
        }
    };
}

#[cfg(feature = "flex")]
mod flex {
    use burn::backend::flex::FlexTensor;
    use burn::backend::{Flex, TensorData};

    use super::*;

    fn numbers(tensor: &FlexTensor) -> Cow<'_, [f32]> {
        match tensor.as_slice() {
            Some(numbers) => Cow::Borrowed(numbers),
            None => Cow::Owned(tensor.to_contiguous().storage().to_vec()),
        }
    }

    compute_on_the_host!(Flex);
}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray; we carry it.
mod ndarray {
    use burn::backend::ndarray::NdArrayTensor;
    use burn::backend::{NdArray, TensorData, TensorMetadata};

    use super::*;

    fn numbers(tensor: &NdArrayTensor) -> Cow<'_, [f32]> {
        match tensor {
            NdArrayTensor::F32(numbers) => {
                let view = numbers.view();
                match view.to_slice() {
                    Some(numbers) => Cow::Borrowed(numbers),
                    None => Cow::Owned(view.iter().copied().collect()),
                }
            }
            other => panic!("recurrence: {:?} tensors cannot be here", other.dtype()),
        }
    }

    compute_on_the_host!(NdArray);
}
