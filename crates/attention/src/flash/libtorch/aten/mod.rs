//! LibTorch's own attention kernels, for CUDA devices.
//!
//! There are three: [flash](flash), in half precision, for everything, causal sequences and
//! windows; [cuDNN's](cudnn), for long ones of these; and the [memory-efficient](efficient) one,
//! in any precision, with a bias, lengths and dropout. Windows that the first cannot compute are
//! [cut into chunks](chunks) for the last. What none can be told goes through the [tile
//! loops](crate::flash::portable).

mod call;
mod chunks;
mod cudnn;
mod efficient;
mod flash;
#[cfg(test)]
mod stand_in;

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::{Device, Kind, Tensor};

pub(super) use self::call::has_more;
use self::call::{Added, Results, Seen, laid_out, numbers_at_once};
use crate::flash::call::{Arrived, InputGradients, Inputs, Saved, TiledSettings};

/// Which kernel computes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Flash(Seen),
    Cudnn(Seen),
    Efficient(Seen),
    /// Keys up to so many before a query's own place and after it.
    Chunks([usize; 2]),
}

/// Whether a call on a CUDA device is one they can compute in numbers of this kind: with what
/// the settings say, and whether more is hidden or added.
pub(super) fn can(device: Device, kind: Kind, has_more: bool, settings: &TiledSettings) -> bool {
    way(device, kind, has_more, settings).is_some()
}

fn way_of(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> Option<Way> {
    let query = &inputs.query.tensor;
    way(query.device(), query.kind(), has_more(inputs), settings)
}

/// Query, key and value as the kernels can read them.
fn tensors_of(inputs: &Inputs<LibTorch>) -> [Tensor; 3] {
    [&inputs.query, &inputs.key, &inputs.value].map(|tensor| laid_out(&tensor.tensor))
}

fn way(device: Device, kind: Kind, has_more: bool, settings: &TiledSettings) -> Option<Way> {
    let [batch, heads, seq_q, seq_k] = settings.shape.scores();
    let [d_head, d_value] = settings.shape.widths();
    let seen = Seen::by(&settings.rule, &settings.shape)?;
    let is_plain = settings.softcap.is_none() && settings.alibi.is_none();
    // Rows are read 16 bytes at a time.
    let step = numbers_at_once(kind);
    let is_aligned = d_head.is_multiple_of(step) && d_value.is_multiple_of(step);
    // Their grids have no room for more.
    let fits = batch.saturating_mul(heads) <= u16::MAX as usize;
    // With one key alone nothing is to be learned of queries and keys, and their gradients
    // are the rounding of that nothing.
    let is_several = seq_k > 1;
    if !(is_plain && is_aligned && fits && is_several) {
        return None;
    }
    let is_bare = !has_more && seen.lengths.is_none() && settings.dropout.is_none();
    let is_half = kind != Kind::Float;
    if is_bare && is_half && d_head == d_value && d_head <= 256 && flash::works_on(device) {
        let is_cudnns = cudnn::takes(device, &seen, &settings.shape);
        return Some(if is_cudnns {
            Way::Cudnn(seen)
        } else {
            Way::Flash(seen)
        });
    }
    // Their backward pass alone knows which weights were dropped, and has no gradient for a bias
    // that stands for many.
    if settings.dropout.is_some() && has_more {
        return None;
    }
    // What is hidden is so by a number that is lower than any score: f16 has none. Under a
    // mask that leaves queries nothing to see, the kernel for bf16 passed back no numbers.
    if is_half && has_more || kind == Kind::Half && seen.lengths.is_some() {
        return None;
    }
    match seen.window {
        None => Some(Way::Efficient(seen)),
        // Chunks pay where there are several of them.
        Some(sides) if is_bare && chunks::pay(seq_q, sides) => Some(Way::Chunks(sides)),
        Some(_) => None,
    }
}

/// Context and log-sum-exp.
pub(super) fn forward(
    inputs: &Inputs<LibTorch>,
    settings: &TiledSettings,
) -> (TchTensor, TchTensor) {
    let tensors = tensors_of(inputs);
    let [context, log_sum_exp] = match way_of(inputs, settings) {
        Some(Way::Flash(seen)) => flash::forward(&tensors, &seen, settings),
        Some(Way::Cudnn(seen)) => cudnn::forward(&tensors, &seen, settings),
        Some(Way::Chunks(sides)) => chunks::forward(&tensors, sides, settings),
        Some(Way::Efficient(seen)) => {
            let added = Added::new(inputs, &seen, &tensors[0], settings);
            efficient::forward(&tensors, &added, settings)
        }
        None => unreachable!("asked before whether it can be computed"),
    };
    (TchTensor::new(context), TchTensor::new(log_sum_exp))
}

/// Whether the kernels computed what they should: they multiply the values of masked keys by
/// zero, which NaN survives, and their backward passes start from the log-sum-exp, which has no
/// digits left for the sum of the exponentials where scores are large. The host waits for the
/// answer.
pub(super) fn is_exact(
    [key, value]: [&TchTensor; 2],
    log_sum_exp: &TchTensor,
    may_hide: bool,
) -> bool {
    let (key, value, log_sum_exp) = (&key.tensor, &value.tensor, &log_sum_exp.tensor);
    if log_sum_exp.numel() == 0 {
        return true;
    }
    // At this size the rounding of a log-sum-exp changes weights by as much as that of half
    // precision does, or by 6e-5.
    let bound = match key.kind() {
        Kind::Float => 1024.0,
        _ => 65_536.0,
    };
    let blind = log_sum_exp.le(efficient::BLIND);
    let mut exact = largest(&log_sum_exp.masked_fill(&blind, 0.0)).le(bound);
    if may_hide {
        exact = exact.logical_and(&largest(key).isfinite());
        exact = exact.logical_and(&largest(value).isfinite());
    }
    exact.int64_value(&[]) != 0
}

/// Whether masked keys or values are NaN or infinite. The host waits for the answer.
pub(super) fn has_non_finite(tensors: [&TchTensor; 2]) -> bool {
    let mut finite = tensors
        .iter()
        .filter(|tensor| tensor.tensor.numel() > 0)
        .map(|tensor| largest(&tensor.tensor).isfinite());
    let Some(first) = finite.next() else {
        return false;
    };
    let all = finite.fold(first, |all, more| all.logical_and(&more));
    all.int64_value(&[]) == 0
}

/// The largest absolute value, in one pass; NaN if there is one.
fn largest(tensor: &Tensor) -> Tensor {
    let (least, most) = tensor.aminmax(None::<i64>, false);
    most.maximum(&least.neg())
}

/// The gradients by query, key and value, and by a bias if that is wanted; `None` where
/// their backward pass cannot compute what the forward pass did.
pub(super) fn backward(
    saved: &Saved<LibTorch>,
    arrived: &Arrived<LibTorch>,
    settings: &TiledSettings,
) -> Option<InputGradients<LibTorch>> {
    // There is no way in for a gradient by the log-sum-exp.
    if arrived.d_log_sum_exp.is_some() {
        return None;
    }
    // A bias that stands for many would have a gradient for each of them.
    let places: usize = settings.shape.scores().iter().product();
    let is_whole = |bias: &TchTensor| bias.tensor.numel() == places;
    if arrived.wants_bias && !saved.inputs.bias.as_ref().is_some_and(is_whole) {
        return None;
    }
    let (context, arriving) = (&saved.context.tensor, &arrived.d_context.tensor);
    assert!(
        arriving.size() == context.size()
            && arriving.kind() == context.kind()
            && arriving.device() == context.device(),
        "flash attention: the upstream gradient must be {:?} {:?} on {:?} like the context, got \
         {:?} {:?} on {:?}",
        context.kind(),
        context.size(),
        context.device(),
        arriving.kind(),
        arriving.size(),
        arriving.device()
    );
    let inputs = &saved.inputs;
    let tensors = tensors_of(inputs);
    let results = Results {
        context: &saved.context.tensor,
        log_sum_exp: &saved.stats.tensor,
        d_context: &arrived.d_context.tensor,
    };
    let (gradients, d_bias) = match way_of(inputs, settings)? {
        Way::Flash(seen) => (flash::backward(&tensors, &results, &seen, settings), None),
        Way::Cudnn(seen) => (cudnn::backward(&tensors, &results, &seen, settings), None),
        Way::Chunks(sides) => (chunks::backward(&tensors, &results, sides, settings), None),
        Way::Efficient(seen) => {
            let added = Added::new(inputs, &seen, &tensors[0], settings);
            efficient::backward(&tensors, &results, &added, settings, arrived.wants_bias)
        }
    };
    let [query, key, value] = gradients.map(TchTensor::new);
    Some(InputGradients {
        query,
        key,
        value,
        bias: d_bias.map(TchTensor::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(elements: &[f32]) -> TchTensor {
        let tensor = Tensor::from_slice(elements);
        TchTensor::new(tensor.reshape([1, 1, elements.len() as i64, 1]))
    }

    #[test]
    fn what_kernels_do_not_compute_exactly_is_found() {
        let ordinary = tensor(&[1.0, -3.0, f32::MAX]);
        let exact = |key: &[f32], log_sum_exp: &[f32], may_hide| {
            is_exact([&tensor(key), &ordinary], &tensor(log_sum_exp), may_hide)
        };
        assert!(exact(&[1.0, 2.0], &[-1000.0, 1000.0], true));
        // Large scores, by themselves or by a bias.
        assert!(!exact(&[1.0, 2.0], &[0.0, 2000.0], true));
        assert!(!exact(&[1.0, 2.0], &[0.0, -1e9], false));
        // A fully masked row has no scores.
        assert!(exact(&[1.0, 2.0], &[0.0, efficient::LOWEST as f32], true));
        for garbage in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!exact(&[1.0, garbage], &[0.0, 1.0], true));
            // Where nothing is masked, it reaches what it should.
            assert!(exact(&[1.0, garbage], &[0.0, 1.0], false));
            assert!(has_non_finite([&ordinary, &tensor(&[garbage])]));
        }
        assert!(!has_non_finite([&ordinary, &ordinary]));
        assert!(!has_non_finite([&ordinary, &tensor(&[])]));
        let half = TchTensor::new(ordinary.tensor.clamp(-10.0, 10.0).to_kind(Kind::Half));
        assert!(is_exact([&half, &half], &tensor(&[2000.0]), true));
    }
}
