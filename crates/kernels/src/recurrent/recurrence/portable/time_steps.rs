//! Rearrangement of sequences to time steps, and their padding.

use std::ops::Range;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{
    Backend, Shape, Slice, TensorData, TensorMetadata, get_or_init_device_settings,
};

use crate::recurrent::recurrence::call::Settings;

/// Layout of time steps: `[seq, directions, batch, ..]`.
pub(super) struct TimeSteps<'a, B: Backend> {
    settings: &'a Settings,
    /// `true` for padding, `[seq, directions, batch, 1]`, if there is any.
    padding: Option<BoolTensor<B>>,
}

impl<'a, B: Backend> TimeSteps<'a, B> {
    /// The layout for tensors on the device of `like`.
    pub(super) fn new(settings: &'a Settings, like: &FloatTensor<B>) -> Self {
        let has_padding = settings.lengths.iter().any(|l| *l < settings.seq);
        let padding = has_padding.then(|| {
            let directions = settings.direction.num_directions();
            let step = |time| (0..directions).flat_map(move |dir| is_padding(settings, time, dir));
            let mask: Vec<bool> = (0..settings.seq).flat_map(step).collect();
            let data = TensorData::new(mask, [settings.seq, directions, settings.batch, 1]);
            // Bool dtypes differ between backends, and `bool_from_data` does not convert.
            let device = like.device();
            let dtype = get_or_init_device_settings::<B>(&device).bool_dtype;
            B::bool_from_data(data.convert_dtype(dtype.into()), &device)
        });
        Self { settings, padding }
    }

    /// Rearranges `[batch, seq, directions * width]` to `[seq, directions, batch, width]`.
    pub(super) fn split_steps(&self, tensor: FloatTensor<B>, width: usize) -> FloatTensor<B> {
        let &Settings { batch, seq, .. } = self.settings;
        let directions = self.settings.direction.num_directions();
        let tensor = B::float_reshape(tensor, Shape::from([batch, seq, directions, width]));
        self.reverse(B::float_permute(tensor, &[1, 2, 0, 3]))
    }

    /// The inverse of [`split_steps`](Self::split_steps).
    pub(super) fn merge_steps(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let [seq, directions, batch, width] = tensor.shape().dims();
        let tensor = B::float_permute(self.reverse(tensor), &[2, 0, 1, 3]);
        B::float_reshape(tensor, Shape::from([batch, seq, directions * width]))
    }

    /// Reverses the time steps of the backward direction.
    fn reverse(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let direction = self.settings.direction;
        let part = |dir: usize| {
            let part = slice_dim::<B>(&tensor, 1, dir..dir + 1);
            if direction.is_reverse(dir) {
                B::float_flip(part, &[0])
            } else {
                part
            }
        };
        match (direction.num_directions(), direction.is_reverse(0)) {
            (1, false) => tensor,
            (directions, _) => cat::<B>((0..directions).map(part).collect(), 1),
        }
    }

    /// The padding mask of a time step, `[directions, batch, 1]`, if it has padding.
    pub(super) fn padding(&self, time: usize) -> Option<BoolTensor<B>> {
        let padding = self.padding.as_ref()?;
        let directions = self.settings.direction.num_directions();
        let any = (0..directions).any(|dir| is_padding(self.settings, time, dir).any(|is| is));
        any.then(|| {
            let step = B::bool_slice(padding.clone(), &[Slice::from(time..time + 1)]);
            B::bool_reshape(step, Shape::from([directions, self.settings.batch, 1]))
        })
    }

    /// Sets the padding of `[seq, directions, batch, ..]` to zero.
    pub(super) fn zero_padding(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match &self.padding {
            None => tensor,
            Some(padding) => {
                let padding = B::bool_expand(padding.clone(), tensor.shape());
                B::float_mask_fill(tensor, padding, 0.0.into())
            }
        }
    }
}

/// Whether a time step of a direction is padding, for each row.
fn is_padding(settings: &Settings, time: usize, dir: usize) -> impl Iterator<Item = bool> + '_ {
    let position = if settings.direction.is_reverse(dir) {
        settings.seq - 1 - time
    } else {
        time
    };
    let lengths = settings.lengths.iter();
    lengths.map(move |length| position >= *length)
}

pub(super) fn slice_dim<B: Backend>(
    tensor: &FloatTensor<B>,
    dim: usize,
    range: Range<usize>,
) -> FloatTensor<B> {
    let mut slices = vec![Slice::full(); dim];
    slices.push(Slice::from(range));
    B::float_slice(tensor.clone(), &slices)
}

pub(super) fn cat<B: Backend>(mut tensors: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tensors.len() {
        1 => tensors.remove(0),
        _ => B::float_cat(tensors, dim),
    }
}

/// Element `index` of the first of four dimensions.
pub(super) fn select<B: Backend>(tensor: &FloatTensor<B>, index: usize) -> FloatTensor<B> {
    let [_, rest @ ..]: [usize; 4] = tensor.shape().dims();
    let element = slice_dim::<B>(tensor, 0, index..index + 1);
    B::float_reshape(element, Shape::from(rest))
}

/// Stacks tensors of three dimensions along a new first one.
pub(super) fn stack<B: Backend>(tensors: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    let unsqueeze = |tensor: FloatTensor<B>| {
        let [directions, batch, width] = tensor.shape().dims();
        B::float_reshape(tensor, Shape::from([1, directions, batch, width]))
    };
    cat::<B>(tensors.into_iter().map(unsqueeze).collect(), 0)
}
