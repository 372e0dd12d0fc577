//! What tests of models have in common.

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use zoo_models::weights::Weights;
use zoo_models::{Generative, Limits, Tokens};
use zoo_oracle::normals;

pub(crate) use zoo_conformance::is_refused_with as is_refused;
pub(crate) use zoo_conformance::*;

use crate::uncached::same_texts;

/// The model with numbers drawn by the seed where its own were drawn: matrices so that what
/// goes through stays as large, vectors of tokens and places smaller. What starts as zeros or
/// ones stays so.
///
/// A device's own random numbers are drawn by all tests that run at the same time, in any
/// order, so a seed says nothing of what a test gets.
pub(crate) fn drawn<M: Module>(model: M, seed: u64) -> M {
    let tensor = |(key, data): (String, TensorData)| {
        let mut numbers: Vec<f32> = data.try_to_vec().expect("f32");
        let shape = data.shape().to_vec();
        let is_vectors = key.contains("embedding") || key.ends_with(".table");
        let size = match is_vectors {
            true => 0.3,
            false => 1.0 / (shape[0] as f64).sqrt(),
        };
        if numbers.iter().any(|number| *number != numbers[0]) {
            numbers = normals(&format!("{seed} {key}"), numbers.len(), size);
        }
        (key, TensorData::new(numbers, shape))
    };
    let own = tensors(&Weights::of(&model)).into_iter();
    must(Weights::of_tensors(own.map(tensor).collect::<Vec<_>>()).apply(model))
}

/// Checks that a model learns a few examples by heart: their loss falls below a fiftieth of a
/// nat, by steps of this learning rate.
pub(crate) fn overfits<M: Module>(rate: f64, model: M, loss: impl Fn(&M) -> Tensor<1>) {
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
            return;
        }
    }
    panic!("the loss went this way: {losses:?}");
}

pub(crate) fn has_parts(text: String, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

pub(crate) fn tensors(weights: &Weights) -> Vec<(String, TensorData)> {
    let tensor = |key: &str| {
        let data = weights.get(key).expect("its own key").clone();
        (key.to_owned(), data)
    };
    weights.keys().map(tensor).collect()
}

pub(crate) fn tokens<R: AsRef<[u32]>>(rows: &[R], limits: Limits, device: &Device) -> Tokens {
    must(Tokens::new(rows, limits, device))
}

pub(crate) fn refuses_tokens<R: AsRef<[u32]>>(
    rows: &[R],
    limits: Limits,
    message: &str,
    device: &Device,
) {
    let refused = Tokens::new(rows, limits, device).err();
    let said = refused.map(|error| error.to_string());
    assert_eq!(said.as_deref(), Some(message));
}

/// Rows without their last token, and without their first: what is given, and what is wanted.
pub(crate) fn shifted(rows: &[Vec<u32>]) -> [Vec<&[u32]>; 2] {
    let given = rows.iter().map(|row| &row[..row.len() - 1]);
    [given.collect(), rows.iter().map(|row| &row[1..]).collect()]
}

/// A row of tokens beside a longer one, with these behind its end.
pub(crate) fn beside(row: &[u32], longer: &[u32], behind: &[u32], device: &Device) -> Tokens {
    let rows = [longer.to_vec(), [row, behind].concat()];
    Tokens::of_tensor(ids(&rows, device), vec![longer.len(), row.len()])
}

/// Rows of tokens of one length as a tensor.
pub(crate) fn ids(rows: &[Vec<u32>], device: &Device) -> Tensor<2, Int> {
    let numbers: Vec<i64> = rows.concat().into_iter().map(i64::from).collect();
    let data = TensorData::new(numbers, [rows.len(), rows[0].len()]);
    Tensor::from_data(data, device)
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
    start: impl Fn(&[usize]) -> M::State,
) {
    let device = &model.device();
    let part = |of: &[usize], places: std::ops::Range<usize>| {
        let rows = of.iter().map(|row| rows[*row][places.clone()].to_vec());
        ids(&rows.collect::<Vec<_>>(), device)
    };
    let all: Vec<usize> = (0..rows.len()).collect();
    let at_once = forward(&all, &tokens(rows, limits, device));
    for parts in [vec![1; 7], vec![3, 1, 2, 1]] {
        let mut state = start(&all);
        let mut first = 0;
        for new in parts {
            let got = model.advance(part(&all, first..first + new), &mut state);
            first += new;
            let want = at_once.clone().slice_dim(1, first - 1..first);
            same_as(&format!("place {}", first - 1), got, want.squeeze_dim(1));
        }
    }
    let some = [2, 1, 2];
    let mut state = start(&all);
    model.advance(part(&all, 0..3), &mut state);
    let mut chosen = model.select(&state, &some);
    assert_eq!(model.rows(&chosen), 3);
    let mut alone = start(&some);
    model.advance(part(&some, 0..3), &mut alone);
    for place in 3..5 {
        let next = || part(&some, place..place + 1);
        let [got, want] = [&mut chosen, &mut alone].map(|state| model.advance(next(), state));
        same(got, want);
    }
    same_texts(model, limits, forward, start);
}
