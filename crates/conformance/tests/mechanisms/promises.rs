//! What holds whatever the numbers are.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use zoo_attention::{AttentionOptions, Mechanism, Pattern};
use zoo_conformance::*;
use zoo_oracle::{Precision, Problem};

use crate::named;

type Promise = fn(Mechanism, &Device);

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite) {
    for (name, test) in PROMISES {
        let name = format!("{mechanism}/promise/{name}");
        suite.add(name, move |device| test(mechanism, device));
    }
}

const PROMISES: &[(&str, Promise)] = &[
    ("padding-mask-equals-key-lengths", |mechanism, device| {
        let tensors = Tensors::of(&named("key-lengths"), device);
        let padding = [[false; 5], [true; 5], [false, false, true, true, true]];
        let padding = Tensor::<2, Bool>::from_data(padding, device);
        let by_mask = AttentionOptions::new().with_pattern(Pattern::KeyPadding(padding));
        same(mechanism, &tensors, tensors.options.clone(), by_mask);
    }),
    ("one-of-a-mask-stands-for-all", |mechanism, device| {
        let problem = named("dense-mask");
        let tensors = Tensors::of(&problem, device);
        let [batch, heads, seq_q, seq_k] = problem.scores_shape();
        for dims in [
            [1, 1, 1, seq_k],
            [batch, 1, seq_q, 1],
            [1, heads, seq_q, seq_k],
            [1, 1, 1, 1],
        ] {
            let hidden: Vec<bool> = (0..dims.iter().product()).map(|at| at % 3 == 1).collect();
            let short = Tensor::<4, Bool>::from_data(TensorData::new(hidden, dims), device);
            let long = short.clone().expand(problem.scores_shape());
            let [short, long] = [short, long]
                .map(|mask| AttentionOptions::new().with_pattern(Pattern::Dense(mask)));
            same(mechanism, &tensors, short, long);
        }
    }),
    ("minus-infinity-in-a-bias-hides", |mechanism, device| {
        // Longer than the tiles of any body: whole tiles of it come first.
        let problem = Problem::new("minus-infinity", [1, 1, 3, 300, 4]);
        let tensors = Tensors::of(&problem, device);
        // The first query sees the last ten keys, the second all, the third none.
        let is_hidden = |at: usize| match at / 300 {
            0 => at % 300 < 290,
            row => row == 2,
        };
        let dims = problem.scores_shape();
        let hidden: Vec<bool> = (0..900).map(is_hidden).collect();
        let hidden = Tensor::<4, Bool>::from_data(TensorData::new(hidden, dims), device);
        let bias = Tensor::zeros(dims, device).mask_fill(hidden.clone(), f32::NEG_INFINITY);
        let by_bias = AttentionOptions::new().with_bias(bias);
        let by_mask = AttentionOptions::new().with_pattern(Pattern::Dense(hidden));
        same(mechanism, &tensors, by_bias, by_mask);
    }),
    ("layout-does-not-matter", |mechanism, device| {
        let problem = named("several-tiles");
        let device = device.clone().autodiff();
        let plain = Tensors::of(&problem, &device);
        // As projections give them: by place first. A key by its numbers first, a value
        // out of the middle of something wider.
        let [query, key, value] =
            [&plain.query, &plain.key, &plain.value].map(|tensor| tensor.clone().inner());
        let copied = |tensor: Tensor<4>| tensor.clone().mul_scalar(1.0) + tensor.zeros_like();
        let query = copied(query.swap_dims(1, 2)).swap_dims(1, 2);
        let key = copied(key.swap_dims(2, 3)).swap_dims(2, 3);
        let [.., d_value] = value.dims();
        let value = Tensor::cat(vec![value.clone(), value.clone(), value], 3);
        let value = value.slice_dim(3, d_value..2 * d_value);
        let laid_out = Tensors {
            query: Tensor::from_inner(query),
            key: Tensor::from_inner(key),
            value: Tensor::from_inner(value),
            ..plain.clone()
        };
        let [plain, laid_out] = [plain, laid_out].map(|tensors| {
            let tensors = tensors.require_grad();
            tensors.results(tensors.attend(&mechanism.into()))
        });
        let forward = Precision::F32.forward(0.0);
        must(forward.compare("context", &laid_out[0], &plain[0]));
        same_results(Precision::F32.backward(0.0), laid_out, plain);
    }),
];

/// Checks that options say the same.
fn same(mechanism: Mechanism, tensors: &Tensors, a: AttentionOptions, b: AttentionOptions) {
    let [a, b] = [a, b].map(|options| {
        let tensors = Tensors {
            options,
            ..tensors.clone()
        };
        numbers(tensors.attend(&mechanism.into()))
    });
    must(Precision::F32.forward(0.0).compare("context", &b, &a));
}
