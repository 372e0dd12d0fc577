//! Equivalences that hold for any inputs.

use crate::prelude::*;

type Invariant = fn(Mechanism, &Device);

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite) {
    let prefix = format!("{mechanism}/invariant/");
    suite.add_cases(&prefix, INVARIANTS, move |test, device| {
        test(mechanism, device);
    });
}

const INVARIANTS: [(&str, Invariant); 4] = [
    ("padding-mask-equals-key-lengths", |mechanism, device| {
        let tensors = Tensors::from_problem(&find_problem("key-lengths"), device);
        let padding = [[false; 5], [true; 5], [false, false, true, true, true]];
        let padding = Tensor::<2, Bool>::from_data(padding, device);
        let by_mask = AttentionOptions::new().with_pattern(Pattern::KeyPadding(padding));
        assert_same_context(mechanism, &tensors, tensors.options.clone(), by_mask);
    }),
    ("masks-are-broadcast", |mechanism, device| {
        let problem = find_problem("dense-mask");
        let tensors = Tensors::from_problem(&problem, device);
        let [batch, heads, seq_q, seq_k] = problem.scores_shape();
        for dims in [
            [1, 1, 1, seq_k],
            [batch, 1, seq_q, 1],
            [1, heads, seq_q, seq_k],
            [1, 1, 1, 1],
        ] {
            let mask: Vec<bool> = (0..dims.iter().product()).map(|i| i % 3 == 1).collect();
            let mask: Tensor<4, Bool> = tensor_of(mask, dims, device);
            let expanded = mask.clone().expand(problem.scores_shape());
            let [broadcast, expanded] = [mask, expanded]
                .map(|mask| AttentionOptions::new().with_pattern(Pattern::Dense(mask)));
            assert_same_context(mechanism, &tensors, broadcast, expanded);
        }
    }),
    ("bias-of-minus-infinity-masks", |mechanism, device| {
        // Longer than the tiles of any kernel: complete tiles of minus infinity come first.
        let problem = Problem::new("minus-infinity", [1, 1, 3, 300, 4]);
        let tensors = Tensors::from_problem(&problem, device);
        // The last ten keys are visible to the first query, all to the second, none to the third.
        let is_masked = |i: usize| match i / 300 {
            0 => i % 300 < 290,
            row => row == 2,
        };
        let dims = problem.scores_shape();
        let mask: Tensor<4, Bool> = tensor_of((0..900).map(is_masked).collect(), dims, device);
        let bias = Tensor::zeros(dims, device).mask_fill(mask.clone(), f32::NEG_INFINITY);
        let by_bias = AttentionOptions::new().with_bias(bias);
        let by_mask = AttentionOptions::new().with_pattern(Pattern::Dense(mask));
        assert_same_context(mechanism, &tensors, by_bias, by_mask);
    }),
    ("memory-layout-has-no-effect", |mechanism, device| {
        let problem = find_problem("several-tiles");
        let device = device.clone().autodiff();
        let plain = Tensors::from_problem(&problem, &device);
        // Strided as by projections, transposed keys, and values that are a slice of a wider
        // tensor.
        let [query, key, value] =
            [&plain.query, &plain.key, &plain.value].map(|tensor| tensor.clone().inner());
        let copy = |tensor: Tensor<4>| tensor.clone().mul_scalar(1.0) + tensor.zeros_like();
        let query = copy(query.swap_dims(1, 2)).swap_dims(1, 2);
        let key = copy(key.swap_dims(2, 3)).swap_dims(2, 3);
        let [.., d_value] = value.dims();
        let value = Tensor::cat(vec![value.clone(), value.clone(), value], 3);
        let value = value.slice_dim(3, d_value..2 * d_value);
        let strided = Tensors {
            query: Tensor::from_inner(query),
            key: Tensor::from_inner(key),
            value: Tensor::from_inner(value),
            ..plain.clone()
        };
        let [plain, strided] = [plain, strided].map(|tensors| {
            let tensors = tensors.require_grad();
            tensors.results(tensors.attend(&mechanism.into()))
        });
        let forward = Precision::F32.forward(0.0);
        must(forward.compare("context", &strided[0], &plain[0]));
        assert_results_close(Precision::F32.backward(0.0), strided, plain);
    }),
];

/// Checks that two options are equivalent.
fn assert_same_context(
    mechanism: Mechanism,
    tensors: &Tensors,
    a: AttentionOptions,
    b: AttentionOptions,
) {
    let [a, b] = [a, b].map(|options| {
        let tensors = Tensors {
            options,
            ..tensors.clone()
        };
        to_vec(tensors.attend(&mechanism.into()))
    });
    let forward = precision(tensors).forward(0.0);
    must(forward.compare("context", &b, &a));
}
