//! Tile programs other than plain softmax: which kernel computes them, and cases that only kernels
//! over tiles distinguish.

use zoo_attention::flash::{
    FlashKernel, flash_with_log_sum_exp, selected_kernel, sigmoid_attention, sigmoid_kernel,
};
use zoo_attention::mechanisms::hard::{HardSelection, hard};
use zoo_attention::mechanisms::{LocalP, MechanismKernel, selected_kernel_of};
use zoo_attention::{Dropout, ScoreMod};
use zoo_kernels::without_kernels;

use crate::flash::default_kernel;
use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    for problem in bias_problems() {
        for mechanism in [Mechanism::Flash, Mechanism::Hard, Mechanism::Additive] {
            let trial = format!("programs/{}/{}", mechanism.name(), problem.name);
            let problem = problem.clone();
            suite.add(trial, move |device| {
                must(check_gradients(&mechanism.into(), &problem, device));
            });
        }
    }
    // All keys of all queries are masked, so that the plan of the kernels is empty.
    let empty = Problem::new("no-tiles", [1, 2, 5, 8, 8]).with_mask(Mask::KeyLengths(vec![0]));
    for mechanism in [Mechanism::Flash, Mechanism::Hard, Mechanism::Additive] {
        let (trial, problem) = (
            format!("programs/{}/no-tiles", mechanism.name()),
            empty.clone(),
        );
        suite.add(trial, move |device| {
            must(check_gradients(&mechanism.into(), &problem, device));
        });
    }
    suite.add_table("programs/", TESTS);
    suite.add_training_table("programs/", TRAINING_TESTS);
}

/// Biases of all shapes, over more tiles than a partial sum has.
fn bias_problems() -> Vec<Problem> {
    let problem = |name, bias| {
        Problem::new(name, [2, 4, 290, 300, 4])
            .with_kv_heads(2)
            .with_bias(bias)
    };
    let causal = Mask::All(vec![Mask::Causal, Mask::KeyLengths(vec![300, 250])]);
    vec![
        problem("bias-of-all", [2, 4, 290, 300]).with_mask(causal.clone()),
        problem("bias-of-queries", [2, 1, 290, 1]).with_dropout((0.2, 9)),
        problem("bias-of-keys-and-heads", [1, 4, 1, 300])
            .with_mask(causal)
            .with_softcap(4.0),
        problem("bias-of-examples", [2, 1, 1, 1]),
    ]
}

const TESTS: &[(&str, Test)] = &[("use-the-kernels-of-the-backend", |device| {
    let tensors = Tensors::from_problem(&Problem::new("any", [1, 2, 40, 70, 8]), device);
    let (query, key, value) = (&tensors.query, &tensors.key, &tensors.value);
    let options = AttentionOptions::new();
    let flash_kernel = default_kernel(device);
    // CPU kernels support all programs; LibTorch on CUDA only hard attention, without options.
    let is_cpu = flash_kernel.is_cpu();
    let has_programs = is_cpu || flash_kernel == FlashKernel::Cube;
    let or_tile_loops = |has_kernel: bool| match has_kernel {
        true => flash_kernel,
        false => FlashKernel::TileLoops,
    };
    let kernel = |mechanism: MechanismConfig, options: &AttentionOptions| match selected_kernel_of(
        &mechanism, query, key, value, options,
    ) {
        Some(MechanismKernel::Flash(kernel)) => Some(kernel),
        _ => None,
    };
    let hard = |options: &AttentionOptions| kernel(Mechanism::Hard.into(), options);
    let additive = |options: &AttentionOptions| kernel(Mechanism::Additive.into(), options);
    let masked = options
        .clone()
        .with_pattern(Pattern::Causal)
        .with_dropout(Dropout::new(0.1, 3))
        .with_bias(Tensor::zeros([1, 1, 1, 70], device));
    for options in [&options, &masked] {
        let expected = or_tile_loops(has_programs);
        assert_eq!(sigmoid_kernel(query, key, value, options), expected);
        assert_eq!(additive(options), Some(expected));
        // Hard attention materialises its weights where it has no kernel.
        let expected = match tensors.kernel() {
            FlashKernel::Aten => options.bias.is_none().then_some(FlashKernel::Aten),
            _ => has_programs.then_some(expected),
        };
        assert_eq!(hard(options), expected);
    }
    let relative = AttentionOptions::new().with_relative_bias(Tensor::zeros([2, 109], device));
    assert_eq!(
        selected_kernel(query, key, value, &relative),
        or_tile_loops(has_programs)
    );
    // Combinations that only the CPU kernels support.
    let expected = or_tile_loops(is_cpu);
    let local = LocalP { window: 3 };
    assert_eq!(kernel(local.into(), &options), Some(expected));
    let score_mod = ScoreMod::new(|x, _, _, _, _| 2.0 * x, |_, _, _, _, _| 2.0);
    let modified = options.with_score_mod(score_mod);
    assert_eq!(selected_kernel(query, key, value, &modified), expected);
    assert_eq!(additive(&modified), Some(expected));
    assert_eq!(hard(&modified), is_cpu.then_some(expected));
})];

const TRAINING_TESTS: &[(&str, Test)] = &[
    ("sigmoid-options-match-burn-operations", |device| {
        let problem = Problem::new("sigmoid", [2, 4, 80, 150, 8])
            .with_kv_heads(2)
            .with_bias([1, 4, 80, 150])
            .with_dropout((0.2, 9))
            .with_softcap(2.0)
            .with_mask(Mask::Random {
                masked: 0.3,
                fully_masked_every: 7,
            });
        let run = || {
            let tensors = Tensors::from_problem(&problem, device).require_grad();
            let context = tensors.apply(sigmoid_attention);
            let gradients = tensors.backward(context.clone());
            let bias = tensors.options.bias.clone().expect("a bias");
            let d_bias = to_vec(bias.grad(&gradients).expect("a gradient"));
            let [d_query, d_key, d_value] = tensors.input_gradients(&gradients);
            ([to_vec(context), d_query, d_key, d_value], d_bias)
        };
        let ((got, d_got), (want, d_want)) = (run(), without_kernels(run));
        let tolerance = Precision::F32.backward(8.0);
        must(tolerance.compare("d_bias", &d_got, &d_want));
        assert_results_close(tolerance, got, want);
    }),
    ("samples-of-all-temperatures", |device| {
        let problem = Problem::new("cold", [1, 2, 70, 130, 8]).with_mask(Mask::Causal);
        for temperature in [1e-6, 1.0, 1e6] {
            let seed = 5;
            let choice = HardSelection::Sampled { temperature, seed };
            let run = || {
                let tensors = Tensors::from_problem(&problem, device).require_grad();
                tensors.results(tensors.apply(|q, k, v, options| hard(q, k, v, choice, options)))
            };
            let (got, want) = (run(), without_kernels(run));
            assert_results_close(Precision::F32.backward(8.0), got, want);
        }
    }),
    ("samples-of-heads-that-are-computed-one-by-one", |device| {
        let problem = Problem::new("by-head", [2, 4, 40, 70, 8]).with_kv_heads(2);
        let choice = HardSelection::Sampled {
            temperature: 0.7,
            seed: 8,
        };
        let pattern =
            Pattern::mask_fn(|_, head, query, key| (0..6_i64 << head).contains(&(query - key)));
        let run = || {
            let mut tensors = Tensors::from_problem(&problem, device).require_grad();
            tensors.options.pattern = pattern.clone();
            tensors.results(tensors.apply(|q, k, v, options| hard(q, k, v, choice, options)))
        };
        let (got, want) = (run(), without_kernels(run));
        assert_results_close(Precision::F32.backward(8.0), got, want);
    }),
    // The gradient of the bias is that of the scores.
    (
        "bias-gradient-with-a-gradient-of-the-log-sum-exp",
        |device| {
            let problem = Problem::new("both", [1, 2, 70, 90, 8]).with_bias([1, 2, 70, 90]);
            let run = || {
                let tensors = Tensors::from_problem(&problem, device).require_grad();
                let output = tensors.apply(flash_with_log_sum_exp);
                let loss = (output.context * tensors.output_grad.clone()).sum()
                    + output.log_sum_exp.powi_scalar(2).sum();
                let bias = tensors.options.bias.clone().expect("a bias");
                to_vec(bias.grad(&loss.backward()).expect("a gradient"))
            };
            let (got, want) = (run(), without_kernels(run));
            let tolerance = Precision::F32.backward(8.0);
            must(tolerance.compare("d_bias", &got, &want));
        },
    ),
];
