//! Places in the order in which they are visited, and which of them are padding.

use std::ops::Range;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{
    Backend, Shape, Slice, TensorData, TensorMetadata, get_or_init_device_settings,
};

use crate::recurrent::recurrence::call::Settings;

/// The order in which places are visited: `[seq, passes, batch]`.
pub(super) struct Order<'a, B: Backend> {
    settings: &'a Settings,
    /// `true` for padding, `[seq, passes, batch, 1]`, if there is any.
    padding: Option<BoolTensor<B>>,
}

impl<'a, B: Backend> Order<'a, B> {
    /// The order for tensors on the device of this one.
    pub(super) fn new(settings: &'a Settings, like: &FloatTensor<B>) -> Self {
        let any = settings.lengths.iter().any(|l| *l < settings.seq);
        let padding = any.then(|| {
            let passes = settings.direction.passes();
            let at = |at: usize| (0..passes).flat_map(move |pass| is_padding(settings, at, pass));
            let all: Vec<bool> = (0..settings.seq).flat_map(at).collect();
            let data = TensorData::new(all, [settings.seq, passes, settings.batch, 1]);
            // Backends hold bools in different ways, and this call converts nothing.
            let device = like.device();
            let dtype = get_or_init_device_settings::<B>(&device).bool_dtype;
            B::bool_from_data(data.convert_dtype(dtype.into()), &device)
        });
        Self { settings, padding }
    }

    /// `[batch, seq, passes * width]` becomes `[seq, passes, batch, width]`.
    pub(super) fn visited(&self, tensor: FloatTensor<B>, width: usize) -> FloatTensor<B> {
        let &Settings { batch, seq, .. } = self.settings;
        let passes = self.settings.direction.passes();
        let tensor = B::float_reshape(tensor, Shape::from([batch, seq, passes, width]));
        self.turned(B::float_permute(tensor, &[1, 2, 0, 3]))
    }

    /// The other way.
    pub(super) fn unvisited(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let [seq, passes, batch, width] = dims(&tensor);
        let tensor = B::float_permute(self.turned(tensor), &[2, 0, 1, 3]);
        B::float_reshape(tensor, Shape::from([batch, seq, passes * width]))
    }

    /// What goes backward, turned round.
    fn turned(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let direction = self.settings.direction;
        let pass = |pass: usize| {
            let own = taken::<B>(&tensor, 1, pass..pass + 1);
            match direction.is_backward(pass) {
                true => B::float_flip(own, &[0]),
                false => own,
            }
        };
        match (direction.passes(), direction.is_backward(0)) {
            (1, false) => tensor,
            (passes, _) => join::<B>((0..passes).map(pass).collect(), 1),
        }
    }

    /// Padding among what is visited as number `at`, `[passes, batch, 1]`, if there is any.
    pub(super) fn padding(&self, at: usize) -> Option<BoolTensor<B>> {
        let padding = self.padding.as_ref()?;
        let passes = self.settings.direction.passes();
        let any = (0..passes).any(|pass| is_padding(self.settings, at, pass).any(|is| is));
        any.then(|| {
            let own = B::bool_slice(padding.clone(), &[Slice::from(at..at + 1)]);
            B::bool_reshape(own, Shape::from([passes, self.settings.batch, 1]))
        })
    }

    /// Zeros for padding; the tensor is in the order of visits.
    pub(super) fn cleared(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match &self.padding {
            None => tensor,
            Some(padding) => {
                let padding = B::bool_expand(padding.clone(), tensor.shape());
                B::float_mask_fill(tensor, padding, 0.0.into())
            }
        }
    }
}

/// Whether a pass finds padding at its visit `at`, row by row.
fn is_padding(settings: &Settings, at: usize, pass: usize) -> impl Iterator<Item = bool> + '_ {
    let place = match settings.direction.is_backward(pass) {
        true => settings.seq - 1 - at,
        false => at,
    };
    settings.lengths.iter().map(move |length| place >= *length)
}

pub(super) fn taken<B: Backend>(
    tensor: &FloatTensor<B>,
    dim: usize,
    part: Range<usize>,
) -> FloatTensor<B> {
    let mut slices = vec![Slice::full(); dim];
    slices.push(Slice::from(part));
    B::float_slice(tensor.clone(), &slices)
}

pub(super) fn join<B: Backend>(mut tensors: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tensors.len() {
        1 => tensors.remove(0),
        _ => B::float_cat(tensors, dim),
    }
}

pub(super) fn dims<T: TensorMetadata, const D: usize>(tensor: &T) -> [usize; D] {
    tensor.shape().dims()
}
