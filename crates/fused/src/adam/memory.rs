//! What Adam remembers of a parameter.

use burn::optim::{
    AdamState, AdaptiveMomentumState, RecordState, StateSink, StateSource, join_path,
};
use burn::tensor::{Device, Tensor, TensorData};

/// The moments of a parameter, and how many steps they are of.
///
/// Burn makes tensors of what was saved on its default device, which in a program with several
/// backends is not the run's own, and may be a GPU that nobody asked for. What was read stays
/// numbers here, until a step says which device its parameter is on.
#[derive(Debug, Clone)]
pub enum AdamMemory<const D: usize> {
    /// As it was read.
    Read {
        /// Steps so far.
        time: usize,
        /// The first moment.
        first: TensorData,
        /// The second moment.
        second: TensorData,
    },
    /// On a device.
    There {
        /// Steps so far.
        time: usize,
        /// The first moment.
        first: Tensor<D>,
        /// The second moment.
        second: Tensor<D>,
    },
}

impl<const D: usize> AdamMemory<D> {
    /// Steps so far and both moments, on this device.
    pub(super) fn on(self, device: &Device) -> (usize, Tensor<D>, Tensor<D>) {
        match self {
            Self::Read {
                time,
                first,
                second,
            } => {
                let put = |data: TensorData| {
                    let dtype = data.dtype();
                    Tensor::from_data(data, (device, dtype))
                };
                (time, put(first), put(second))
            }
            Self::There {
                time,
                first,
                second,
            } => (time, first.to_device(device), second.to_device(device)),
        }
    }
}

/// By the names that Burn's Adam has for them, so that either goes on with the other's.
impl<const D: usize> RecordState for AdamMemory<D> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        match self.clone() {
            Self::There {
                time,
                first,
                second,
            } => {
                let momentum = AdaptiveMomentumState::new(time, first, second);
                AdamState::new(momentum).state_flatten(prefix, out);
            }
            Self::Read {
                time,
                first,
                second,
            } => {
                let prefix = join_path(prefix, MOMENTUM);
                out.push_scalar(&prefix, TIME, time.into());
                out.push_tensor(&prefix, FIRST, first);
                out.push_tensor(&prefix, SECOND, second);
            }
        }
    }

    fn state_unflatten(prefix: &str, from: &mut StateSource, _: &Device) -> Option<Self> {
        let prefix = join_path(prefix, MOMENTUM);
        Some(Self::Read {
            time: usize::try_from(from.take_scalar(&prefix, TIME)?).ok()?,
            first: from.take_tensor(&prefix, FIRST)?,
            second: from.take_tensor(&prefix, SECOND)?,
        })
    }
}

const MOMENTUM: &str = "momentum";
const TIME: &str = "time";
const FIRST: &str = "moment_1";
const SECOND: &str = "moment_2";

#[cfg(test)]
#[cfg(feature = "flex")]
mod tests {
    use super::*;

    /// The names and numbers of a state.
    fn flat(state: &impl RecordState) -> (Vec<(String, TensorData)>, String) {
        let mut sink = StateSink::default();
        state.state_flatten("parameter", &mut sink);
        let scalars = format!("{:?}", sink.scalars);
        (sink.tensors, scalars)
    }

    #[test]
    fn what_is_read_is_on_no_device_until_a_step_says_which() {
        let device = Device::flex();
        let tensor = |numbers: [f32; 2]| Tensor::<1>::from_floats(numbers, &device);
        let momentum = AdaptiveMomentumState::new(7, tensor([0.5, -1.0]), tensor([2.0, 3.0]));
        let burns = AdamState::new(momentum);
        let (tensors, scalars) = flat(&burns);

        let mut sink = StateSink::default();
        burns.state_flatten("parameter", &mut sink);
        let mut source = StateSource::new(sink.scalars.into_iter().collect());
        for (name, data) in sink.tensors {
            source.insert_tensor(name, data);
        }
        let read = AdamMemory::<1>::state_unflatten("parameter", &mut source, &device);
        let read = read.expect("Burn's own is read");
        assert!(matches!(read, AdamMemory::Read { .. }), "{read:?}");
        // It is written as Burn would, before a step as well as after.
        assert_eq!(flat(&read), (tensors.clone(), scalars.clone()));
        let (time, first, second) = read.on(&device);
        let there = AdamMemory::There {
            time,
            first,
            second,
        };
        assert_eq!(flat(&there), (tensors, scalars));
    }
}
