//! Helpers of model tests.

pub(crate) use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
pub(crate) use burn::tensor::{Device, Int, Tensor, TensorData};
pub(crate) use zoo_attention::{Mechanism, MechanismConfig};
pub(crate) use zoo_conformance::*;
pub(crate) use zoo_models::weights::Weights;
pub(crate) use zoo_models::{
    Activation, Generative, GptConfig, Limits, Norm, PositionEncoding, Tokens, Tying, token_loss,
};
use zoo_oracle::normals;
pub(crate) use zoo_oracle::{Mask, Precision};

use crate::uncached::assert_same_texts;

/// The model with random weights that depend only on the seed. Constant parameters are unchanged.
///
/// Concurrent tests share the device's random generator, so that seeding it is not reproducible.
pub(crate) fn with_random_weights<M: Module>(model: M, seed: u64) -> M {
    let tensor = |(key, data): (String, TensorData)| {
        let mut values: Vec<f32> = data.try_to_vec().expect("f32");
        let shape = data.shape().to_vec();
        let is_embedding = key.contains("embedding") || key.ends_with(".table");
        let std = if is_embedding {
            0.3
        } else {
            1.0 / (shape[0] as f64).sqrt()
        };
        if values.iter().any(|value| *value != values[0]) {
            values = normals(&format!("{seed} {key}"), values.len(), std);
        }
        (key, TensorData::new(values, shape))
    };
    let own = tensors(&Weights::from_model(&model)).into_iter();
    must(Weights::from_tensors(own.map(tensor).collect::<Vec<_>>()).apply(model))
}

/// Checks that a model overfits a few examples: the loss decreases below 0.02.
pub(crate) fn assert_overfits<M: Module>(lr: f64, model: M, loss: impl Fn(&M) -> Tensor<1>) {
    const MAX_LOSS: f32 = 0.02;
    let mut model = with_random_weights(model, 5);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..200 {
        let value = loss(&model);
        let gradients = GradientsParams::from_grads(value.backward(), &model);
        model = optimizer.step(lr, model, gradients);
        losses.push(value.into_scalar::<f32>());
        if losses.last().is_some_and(|loss| *loss < MAX_LOSS) {
            return;
        }
    }
    panic!("the model does not overfit: {losses:?}");
}

pub(crate) fn assert_contains_all(text: String, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

pub(crate) fn tensors(weights: &Weights) -> Vec<(String, TensorData)> {
    let tensor = |key: &str| {
        let data = weights.get(key).expect("listed key").clone();
        (key.to_owned(), data)
    };
    weights.keys().map(tensor).collect()
}

pub(crate) fn tokens<R: AsRef<[u32]>>(rows: &[R], limits: Limits, device: &Device) -> Tokens {
    must(Tokens::new(rows, limits, device))
}

/// Inputs, which are the rows without their last token, and targets, without their first.
pub(crate) fn shift(rows: &[Vec<u32>]) -> [Vec<&[u32]>; 2] {
    let inputs = rows.iter().map(|row| &row[..row.len() - 1]);
    [inputs.collect(), rows.iter().map(|row| &row[1..]).collect()]
}

/// A batch of a longer row and `row`, which is padded with the tokens `padding`.
pub(crate) fn batch_with_longer(
    row: &[u32],
    longer: &[u32],
    padding: &[u32],
    device: &Device,
) -> Tokens {
    let rows = [longer.to_vec(), [row, padding].concat()];
    Tokens::from_tensor(ids(&rows, device), vec![longer.len(), row.len()])
}

/// Three rows of equal length, with tokens below 11.
pub(crate) fn three_rows() -> [Vec<u32>; 3] {
    [
        vec![0, 5, 3, 3, 9, 1, 7],
        vec![1, 5, 4, 10, 2, 2, 0],
        vec![2, 8, 8, 6, 3, 10, 4],
    ]
}

pub(crate) fn select_rows(rows: &[Vec<u32>], indices: &[usize]) -> Vec<Vec<u32>> {
    indices.iter().map(|row| rows[*row].clone()).collect()
}

/// A tensor of standard normal values, for which the name is the seed.
pub(crate) fn named_normal<const D: usize>(
    name: &str,
    dims: [usize; D],
    device: &Device,
) -> Tensor<D> {
    tensor_of(normals(name, dims.iter().product(), 1.0), dims, device)
}

/// Rows of equal length as a tensor.
pub(crate) fn ids(rows: &[Vec<u32>], device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i64> = rows.concat().into_iter().map(i64::from).collect();
    tensor_of(ids, [rows.len(), rows[0].len()], device)
}

/// Checks that incremental decoding, one or several tokens at a time, matches the forward pass
/// `[rows, seq, vocabulary]`, that selected rows of a state are independent of the others, and that
/// texts generated with a state match those without one. `forward` and `start` take the indices of
/// source rows.
pub(crate) fn assert_incremental_matches<M: Generative>(
    model: &M,
    limits: Limits,
    rows: &[Vec<u32>],
    forward: impl Fn(&[usize], &Tokens) -> Tensor<3>,
    start: impl Fn(&[usize]) -> M::State,
) {
    let device = &model.device();
    let slice = |indices: &[usize], range: std::ops::Range<usize>| {
        let rows = indices.iter().map(|row| rows[*row][range.clone()].to_vec());
        ids(&rows.collect::<Vec<_>>(), device)
    };
    let all: Vec<usize> = (0..rows.len()).collect();
    let full = forward(&all, &tokens(rows, limits, device));
    for steps in [vec![1; 7], vec![3, 1, 2, 1]] {
        let mut state = start(&all);
        let mut first = 0;
        for new in steps {
            let got = model.advance(slice(&all, first..first + new), &mut state);
            first += new;
            let want = full.clone().slice_dim(1, first - 1..first);
            assert_close_as(&format!("position {}", first - 1), got, want.squeeze_dim(1));
        }
    }
    let indices = [2, 1, 2];
    let mut state = start(&all);
    model.advance(slice(&all, 0..3), &mut state);
    let mut selected = model.select(&state, &indices);
    assert_eq!(model.rows(&selected), 3);
    let mut separate = start(&indices);
    model.advance(slice(&indices, 0..3), &mut separate);
    for position in 3..5 {
        let next = || slice(&indices, position..position + 1);
        let [got, want] = [&mut selected, &mut separate].map(|state| model.advance(next(), state));
        assert_close(got, want);
    }
    assert_same_texts(model, limits, forward, start);
}
