//! What tests of models have in common.

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use libtest_mimic::Failed;
use zoo_models::weights::Weights;
use zoo_models::{Generative, Limits, Tokens};

pub(crate) use zoo_conformance::{is_refused_with as is_refused, numbers, same};

use crate::drawn::drawn;
use crate::uncached::same_texts;

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

/// Whether two things are equal, with both in the message if not.
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Result<(), Failed> {
    assert!(got == want, "{got:?} instead of {want:?}");
    Ok(())
}

/// Whether a text has all of these parts.
pub(crate) fn has_parts<const N: usize>(text: String, parts: [&str; N]) -> Result<(), Failed> {
    match parts.into_iter().all(|part| text.contains(part)) {
        true => Ok(()),
        false => Err(text.into()),
    }
}

/// The tensors of these weights with their names.
pub(crate) fn tensors(weights: &Weights) -> Vec<(String, TensorData)> {
    let tensor = |key: &str| {
        let data = weights.get(key).expect("its own key").clone();
        (key.to_owned(), data)
    };
    weights.keys().map(tensor).collect()
}

/// A row of tokens beside a longer one, with these behind its end.
pub(crate) fn beside(row: &[u32], longer: &[u32], behind: &[u32], device: &Device) -> Tokens {
    let rows = [longer.to_vec(), [row, behind].concat()];
    Tokens::of_tensor(ids(&rows, device), vec![longer.len(), row.len()])
}

/// Rows of tokens of one length as a tensor.
pub(crate) fn ids(rows: &[Vec<u32>], device: &Device) -> Tensor<2, Int> {
    let numbers: Vec<i64> = rows.concat().into_iter().map(i64::from).collect();
    Tensor::from_data(
        TensorData::new(numbers, [rows.len(), rows[0].len()]),
        device,
    )
}

/// Checks that a model gives token by token, and several at a time, what it gives for all at
/// once, `[rows, seq, vocabulary]`; and that rows of a state that were chosen go on as if the
/// others had never been there. Texts that are generated with a state are those without one.
/// `forward` and `start` are given the numbers of the rows whose sources they begin with.
pub(crate) fn steps_agree<M: Generative>(
    model: &M,
    limits: Limits,
    rows: &[Vec<u32>],
    forward: impl Fn(&[usize], &Tokens) -> Tensor<3>,
    start: impl Fn(&[usize]) -> Result<M::State, Failed>,
) -> Result<(), Failed> {
    let device = &model.device();
    let part = |of: &[usize], places: std::ops::Range<usize>| {
        let rows = of.iter().map(|row| rows[*row][places.clone()].to_vec());
        ids(&rows.collect::<Vec<_>>(), device)
    };
    let all: Vec<usize> = (0..rows.len()).collect();
    let at_once = forward(&all, &Tokens::new(rows, limits, device)?);
    for parts in [vec![1; 7], vec![3, 1, 2, 1]] {
        let mut state = start(&all)?;
        let mut first = 0;
        for new in parts {
            let got = model.advance(part(&all, first..first + new), &mut state);
            first += new;
            let want = at_once.clone().slice_dim(1, first - 1..first);
            same(got, want.squeeze_dim(1))
                .map_err(|error| format!("place {}: {error:?}", first - 1))?;
        }
    }
    let some = [2, 1, 2];
    let mut state = start(&all)?;
    model.advance(part(&all, 0..3), &mut state);
    let mut chosen = model.select(&state, &some);
    assert_eq!(model.rows(&chosen), 3);
    let mut alone = start(&some)?;
    model.advance(part(&some, 0..3), &mut alone);
    for place in 3..5 {
        let next = || part(&some, place..place + 1);
        let [got, want] = [&mut chosen, &mut alone].map(|state| model.advance(next(), state));
        same(got, want)?;
    }
    same_texts(model, limits, forward, start)
}
