//! What tests of models have in common.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::Tensor;
use libtest_mimic::Failed;
use zoo_oracle::Precision;

use crate::drawn::drawn;

/// A tensor's numbers, row by row.
pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, Failed> {
    tensor
        .try_into_vec_as()
        .map_err(|error| format!("{error:?}").into())
}

/// Whether two ways of computing agree.
///
/// Both are rounded, layer by layer: what gradients of a single attention may be off by.
pub(crate) fn same<const D: usize>(got: Tensor<D>, want: Tensor<D>) -> Result<(), Failed> {
    let want: Vec<f64> = numbers(want)?.into_iter().map(f64::from).collect();
    let tolerance = Precision::F32.backward(0.0);
    tolerance.check("result", &numbers(got)?, &want)?;
    Ok(())
}

/// Whether a model learns a few examples by heart: their loss falls below a fiftieth of a nat.
pub(crate) fn overfits<M: Module>(model: M, loss: impl Fn(&M) -> Tensor<1>) -> Result<(), Failed> {
    overfits_at(0.01, model, loss)
}

/// [`overfits`] by larger steps, where these take too many.
pub(crate) fn overfits_at<M: Module>(
    rate: f64,
    model: M,
    loss: impl Fn(&M) -> Tensor<1>,
) -> Result<(), Failed> {
    const BY_HEART: f32 = 0.02;
    let mut model = drawn(model, 5);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..200 {
        let missed = loss(&model);
        let gradients = GradientsParams::from_grads(missed.backward(), &model);
        model = optimizer.step(rate, model, gradients);
        losses.push(missed.into_scalar::<f32>());
        if losses.last().is_some_and(|loss| *loss < BY_HEART) {
            return Ok(());
        }
    }
    Err(format!("the loss went this way: {losses:?}").into())
}

/// Whether a call panics with a message that contains `message`.
pub(crate) fn is_refused(call: impl FnOnce(), message: &str) -> Result<(), Failed> {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        return Err("it was not refused".into());
    };
    let said = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(said), _) => said.clone(),
        (_, Some(said)) => (*said).to_owned(),
        _ => "no words".to_owned(),
    };
    match said.contains(message) {
        true => Ok(()),
        false => Err(format!("it said: {said}").into()),
    }
}

/// Whether two things are equal, with both in the message if not.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Result<(), Failed> {
    match got == want {
        true => Ok(()),
        false => Err(format!("{got:?} instead of {want:?}").into()),
    }
}

/// Whether a text has all of these parts.
pub(crate) fn has_parts<const N: usize>(text: String, parts: [&str; N]) -> Result<(), Failed> {
    match parts.into_iter().all(|part| text.contains(part)) {
        true => Ok(()),
        false => Err(text.into()),
    }
}
