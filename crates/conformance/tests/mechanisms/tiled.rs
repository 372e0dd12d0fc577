//! What `flash` alone promises: a body of its own on every backend, and a gradient
//! through the log-sum-exp.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use zoo_attention::flash::{by_tiles, recorded};
use zoo_attention::{
    AttentionOptions, Body, Dropout, Flashed, Mechanism, Pattern, flash_with_log_sum_exp, merge,
    which_body,
};
use zoo_conformance::*;
use zoo_oracle::{Precision, Problem, solve};

use crate::named;

type Attend = fn(Tensor<4>, Tensor<4>, Tensor<4>, &AttentionOptions) -> Flashed;

fn agree(tensors: &Tensors, got: Attend, want: Attend) {
    let [got, want] = [got, want].map(|by| tensors.results(tensors.apply(by).context));
    same_results(Precision::F32.backward(8.0), got, want);
}

/// Numbers between -1 and 1 that look random.
fn waves(dims: [usize; 4], factor: f32, device: &Device) -> Tensor<4> {
    let count = dims.iter().product();
    let numbers: Vec<f32> = (0..count).map(|at| (at as f32 * factor).sin()).collect();
    Tensor::from_data(TensorData::new(numbers, dims), device)
}

fn waves_of(shapes: [[usize; 4]; 3], options: AttentionOptions, device: &Device) -> Tensors {
    let [query, key, value] = shapes;
    let upstream = [query[0], query[1], query[2], value[3]];
    Tensors {
        query: waves(query, 1.7, device).require_grad(),
        key: waves(key, 2.3, device).require_grad(),
        value: waves(value, 0.9, device).require_grad(),
        upstream: waves(upstream, 1.1, device),
        options,
    }
}

/// The gradients by query, key and value of a loss of the context and of the log-sum-exp, each
/// query with a weight of its own.
fn gradients_of_both(tensors: &Tensors, of: &Flashed) -> [Vec<f32>; 3] {
    let weights = tensors.upstream.clone().slice_dim(3, 0..1);
    let sizes = (of.log_sum_exp.clone() * weights).sum();
    let context = (of.context.clone() * tensors.upstream.clone()).sum();
    tensors.gradients_by_inputs(&(sizes + context).backward())
}

fn body_of_one(device: &Device) -> Body {
    let one = Tensor::zeros([1, 1, 1, 1], device);
    which_body(&one, &one, &one, &AttentionOptions::new())
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("has-a-body-for-inference-and-training", |device| {
        for device in [device.clone(), device.clone().autodiff()] {
            assert_ne!(body_of_one(&device), Body::Recorded);
        }
    }),
    ("kernels-leave-wide-heads-to-the-tiles", |device| {
        let device = &device.clone().autodiff();
        let has_kernels = body_of_one(device) == Body::Cube;
        // In several blocks, as wide as the kernels of CubeCL take them, and wider.
        for (width, is_wide) in [(100, false), (256, false), (260, true)] {
            let shapes = [[1, 2, 5, width], [1, 2, 9, width], [1, 2, 9, 3]];
            let tensors = waves_of(shapes, AttentionOptions::new(), device);
            let (query, key, value) = (&tensors.query, &tensors.key, &tensors.value);
            let body = which_body(query, key, value, &tensors.options);
            let is_by_tiles = body == Body::Tiles;
            assert!(!has_kernels || is_by_tiles == is_wide, "{width}: by {body}");
            // A software adapter compiles the widest for ten seconds; they differ in the
            // number of their blocks alone.
            if width != 256 {
                agree(&tensors, flash_with_log_sum_exp, recorded);
            }
        }
    }),
    ("tensors-are-read-where-they-lie", |device| {
        let device = &device.clone().autodiff();
        // Heads beside each other, as a projection leaves them.
        let [batch, heads, seq, width] = [2, 3, 70, 8];
        let numbers_of = |factor: f32| waves([batch, seq, heads, width], factor, device);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let attend = |by: Attend| {
            // One tensor three times over, turned, and turned once more.
            let source = numbers_of(1.3).require_grad();
            let own = source.clone().swap_dims(1, 2);
            let turned = numbers_of(0.7)
                .swap_dims(1, 2)
                .swap_dims(2, 3)
                .mul_scalar(1.0)
                .swap_dims(2, 3);
            let first = by(own.clone(), own.clone(), own.clone(), &options).context;
            let second = by(own, turned.clone(), turned, &options).context;
            let sum = first + second;
            let gradients = sum.clone().powi_scalar(2).sum().backward();
            (numbers(sum), source.grad(&gradients).map(numbers))
        };
        let ((got, d_got), (want, d_want)) = (attend(flash_with_log_sum_exp), attend(recorded));
        let tolerance = Precision::F32.backward(4.0);
        must(tolerance.compare("context", &got, &want));
        let (d_got, d_want) = d_got.zip(d_want).expect("a gradient is missing");
        must(tolerance.compare("gradient", &d_got, &d_want));
    }),
    ("options-on-several-tiles-agree-with-the-tiles", |device| {
        let device = &device.clone().autodiff();
        let (heads, seq, width) = (2, 140, 8);
        let hidden = waves([1, 1, seq, seq], 0.37, device).greater_elem(0.6);
        let options = AttentionOptions::new()
            .with_pattern(Pattern::Causal.and(Pattern::Dense(hidden)))
            .with_softcap(3.0)
            .with_alibi(vec![0.5, 0.01])
            .with_bias(waves([1, heads, 1, seq], 0.11, device))
            .with_dropout(Dropout::new(0.2, 5));
        let tensors = waves_of([[1, heads, seq, width]; 3], options, device);
        agree(&tensors, flash_with_log_sum_exp, by_tiles)
    }),
    // Whoever chooses: LibTorch's kernels choose others than the rest of us.
    ("drops-its-share-by-its-seed", |device| {
        let problem = Problem::new("share", [2, 4, 64, 96, 8]).with_dropout((0.3, 7));
        let mut tensors = Tensors::of(&problem, device);
        let mut drawn = |seed: u64| {
            tensors.options.dropout = Some(Dropout::new(0.3, seed));
            dropped(&tensors)
        };
        let (first, again, other) = (drawn(7), drawn(7), drawn(8));
        let count = first.len() as f64;
        let share = first.iter().filter(|&&is_dropped| is_dropped).count() as f64 / count;
        // Five standard errors.
        let is_share = (share - 0.3).abs() <= 5.0 * (0.3 * 0.7 / count).sqrt();
        assert!(is_share, "{share} are dropped, not 0.3");
        assert!(first == again, "the same seed dropped others");
        let alike = first.iter().zip(&other).filter(|(a, b)| a == b).count() as f64 / count;
        // Both stay, or both go.
        assert!(
            (alike - 0.58).abs() <= 0.02,
            "{alike} of them alike, not 0.58"
        );
    }),
    // Scores are summed up before weights are dropped: what arrives at the two results adds up.
    ("log-sum-exp-knows-of-no-dropout", |device| {
        let device = &device.clone().autodiff();
        let problem = Problem::new("both", [2, 2, 32, 48, 8]);
        let plain = Tensors::of(&problem, device).require_grad();
        let dropping = plain.options.clone().with_dropout(Dropout::new(0.4, 3));
        let gradients = |options: &AttentionOptions, of_context: f32, of_sum: f32| {
            let with = Tensors {
                options: options.clone(),
                ..plain.clone()
            };
            let got = with.apply(flash_with_log_sum_exp);
            let context = (got.context * plain.upstream.clone()).sum() * of_context;
            let sums = got.log_sum_exp.powi_scalar(2).sum() * of_sum;
            let gradients = (context + sums).backward();
            plain.gradients_by_inputs(&gradients)
        };
        let both = gradients(&dropping, 1.0, 1.0);
        let apart = [
            gradients(&dropping, 1.0, 0.0),
            gradients(&plain.options, 0.0, 1.0),
        ];
        for (at, got) in both.iter().enumerate() {
            let [a, b] = apart.each_ref().map(|parts| &parts[at]);
            let want: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(a + b)).collect();
            must(Precision::F32.backward(8.0).check("gradient", got, &want));
        }
    }),
    // Recorded by autodiff, and by the portable tiles.
    ("is-right-without-a-body-of-the-backend", |device| {
        let device = &device.clone().autodiff();
        for name in ["odd", "several-tiles", "everything", "grouped-heads"] {
            let problem = named(name);
            let answer = solve(&problem, &problem.inputs());
            for (way, by) in [("recorded", recorded as Attend), ("tiles", by_tiles)] {
                let tensors = Tensors::of(&problem, device).require_grad();
                let context = tensors.apply(by).context;
                let gradients = tensors.backward(context.clone());
                let forward = Precision::F32.forward(answer.largest_score);
                let what = format!("{name} {way}");
                must(forward.check(&what, &numbers(context), &answer.context));
                let backward = Precision::F32.backward(answer.largest_score);
                must(tensors.check_gradients(&gradients, &answer, backward));
            }
        }
    }),
    ("log-sum-exp-matches-the-oracle", |device| {
        for name in [
            "odd",
            "gpt2",
            "several-tiles",
            "everything",
            "causal-more-queries",
        ] {
            let problem = named(name);
            let got = Tensors::of(&problem, device).apply(flash_with_log_sum_exp);
            let answer = solve(&problem, &problem.inputs());
            let (mut finite, mut want) = (Vec::new(), Vec::new());
            for (got, exact) in numbers(got.log_sum_exp).into_iter().zip(answer.log_sum_exp) {
                if exact.is_finite() {
                    finite.push(got);
                    want.push(exact);
                } else {
                    assert!(got <= -1e30, "{name}: {got} for a query that sees nothing");
                }
            }
            let tolerance = Precision::F32.forward(answer.largest_score);
            must(tolerance.check(name, &finite, &want));
            must(tolerance.check(name, &numbers(got.context), &answer.context));
        }
    }),
    ("parts-merge-into-the-whole", |device| {
        let device = device.clone().autodiff();
        let problem = named("several-tiles");
        let whole = Tensors::of(&problem, &device).require_grad();
        let at_once = whole.apply(flash_with_log_sum_exp);
        // Even keys and odd keys.
        let parted = Tensors::of(&problem, &device).require_grad();
        let parts = [0, 1].map(|odd| {
            let hidden: Vec<bool> = (0..problem.seq_k).map(|j| j % 2 != odd).collect();
            let hidden = TensorData::new(hidden, [1, 1, 1, problem.seq_k]);
            let hidden = Pattern::Dense(Tensor::<4, Bool>::from_data(hidden, &device));
            let pattern = parted.options.pattern.clone().and(hidden);
            let part = Tensors {
                options: AttentionOptions::new().with_pattern(pattern),
                ..parted.clone()
            };
            part.apply(flash_with_log_sum_exp)
        });
        let merged = merge(&parts);
        // The log-sum-exp has a gradient of its own, as in a merge of merges.
        let got = gradients_of_both(&parted, &merged);
        let want = gradients_of_both(&whole, &at_once);
        let tolerance = Precision::F32.backward(0.0);
        let pairs = [
            (merged.context, at_once.context),
            (merged.log_sum_exp, at_once.log_sum_exp),
        ];
        for (got, want) in pairs {
            must(tolerance.compare("merged", &numbers(got), &numbers(want)));
        }
        for (got, want) in got.iter().zip(&want) {
            must(tolerance.compare("gradient", got, want));
        }
    }),
    ("gradients-flow-with-checkpointing", |device| {
        let device = device.clone().autodiff().gradient_checkpointing();
        for name in ["everything", "bias-of-keys", "bert-base"] {
            let problem = named(name);
            let tensors = Tensors::of(&problem, &device);
            let (flash, queries) = (Mechanism::Flash.into(), all_queries(&problem));
            must(judge_gradients(&flash, &problem, tensors, &queries));
        }
    }),
    ("gradients-flow-through-the-log-sum-exp", |device| {
        let device = device.clone().autodiff();
        let problem = named("odd");
        let ours = Tensors::of(&problem, &device).require_grad();
        let got = gradients_of_both(&ours, &ours.apply(flash_with_log_sum_exp));
        // The same by Burn's own operations; the problem has no mask.
        let plain = Tensors::of(&problem, &device).require_grad();
        let by_burn = plain.apply(|query, key, value, _| {
            let scores = query.matmul(key.swap_dims(2, 3));
            let exponentials = scores.mul_scalar(problem.scale()).exp();
            let sum = exponentials.clone().sum_dim(3);
            Flashed {
                context: exponentials.div(sum.clone()).matmul(value),
                log_sum_exp: sum.log(),
            }
        });
        let want = gradients_of_both(&plain, &by_burn);
        for (got, want) in got.iter().zip(&want) {
            // Both sides are rounded.
            must(Precision::F32.backward(8.0).compare("gradient", got, want));
        }
    }),
];
