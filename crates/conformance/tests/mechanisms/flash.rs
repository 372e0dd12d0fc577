//! Properties of `flash` only: a kernel on every backend, and gradients through the log-sum-exp.

use zoo_attention::flash::{
    FlashKernel, FlashOutput, composite, flash_with_log_sum_exp, merge, selected_kernel, tile_loops,
};
use zoo_attention::{AttentionShape, Dropout, alibi_slopes};
use zoo_kernels::matmul::matmul;

use crate::prelude::*;

type Attend = fn(Tensor<4>, Tensor<4>, Tensor<4>, &AttentionOptions) -> FlashOutput;

/// Compares results with those of `want`, which is also rounded.
fn assert_agree(tensors: &Tensors, got: Attend, want: Attend) {
    let [got, want] = [got, want].map(|attend| tensors.results(tensors.apply(attend).context));
    assert_results_close(Precision::F32.backward(8.0), got, want);
}

/// Pseudorandom values between -1 and 1.
fn sines(dims: [usize; 4], factor: f32, device: &Device) -> Tensor<4> {
    let count = dims.iter().product();
    let values = (0..count).map(|i| (i as f32 * factor).sin());
    tensor_of(values.collect(), dims, device)
}

fn sine_tensors(shapes: [[usize; 4]; 3], options: AttentionOptions, device: &Device) -> Tensors {
    let [query, key, value] = shapes;
    let output_grad = [query[0], query[1], query[2], value[3]];
    Tensors {
        query: sines(query, 1.7, device).require_grad(),
        key: sines(key, 2.3, device).require_grad(),
        value: sines(value, 0.9, device).require_grad(),
        output_grad: sines(output_grad, 1.1, device),
        options,
    }
}

/// Gradients of query, key and value of a weighted sum of context and log-sum-exp.
fn gradients_of_both(tensors: &Tensors, output: &FlashOutput) -> [Vec<f32>; 3] {
    let weights = tensors.output_grad.clone().slice_dim(3, 0..1);
    let log_sum_exp = (output.log_sum_exp.clone() * weights).sum();
    let context = (output.context.clone() * tensors.output_grad.clone()).sum();
    tensors.input_gradients(&(log_sum_exp + context).backward())
}

/// The kernel without options and with one element.
pub(crate) fn default_kernel(device: &Device) -> FlashKernel {
    let one = Tensor::zeros([1, 1, 1, 1], device);
    selected_kernel(&one, &one, &one, &AttentionOptions::new())
}

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("flash/", TESTS);
    suite.add_training_table("flash/", TRAINING_TESTS);
}

/// Heads of 64 and 128 over several tiles, for kernels that have a layout of their own for each.
pub(crate) fn wide_heads() -> [Problem; 4] {
    let window = Mask::Window {
        left: 90,
        right: 40,
    };
    let lengths = Mask::KeyLengths(vec![270, 131]);
    [
        Problem::new("head-128", [1, 2, 150, 270, 128]).with_mask(window.clone()),
        Problem::new("head-128-64", [2, 4, 150, 270, 128])
            .with_d_value(64)
            .with_kv_heads(2)
            .with_mask(lengths),
        Problem::new("head-64-128", [1, 2, 270, 270, 64])
            .with_d_value(128)
            .with_mask(Mask::Causal),
        Problem::new("head-64", [1, 4, 270, 390, 64])
            .with_kv_heads(1)
            .with_mask(window),
    ]
}

/// Few queries and many keys, which GPU kernels divide over several cubes for each query tile, and a decoding
/// step on the latent vectors of `mla` with the sizes of DeepSeek-V3.
pub(crate) fn few_queries() -> [Problem; 4] {
    let no_keys_in_the_second = Mask::KeyLengths(vec![4700, 0]);
    [
        Problem::new("few-queries", [1, 4, 20, 2300, 32]).with_kv_heads(2),
        Problem::new("few-queries-with-options", [2, 2, 17, 4700, 20])
            .with_d_value(24)
            .with_mask(no_keys_in_the_second)
            .with_softcap(5.0)
            .with_alibi()
            .with_dropout((0.2, 7)),
        Problem::new("one-query", [1, 2, 1, 4200, 64]).with_mask(Mask::KeyLengths(vec![4100])),
        Problem::new("latent-step", [1, 4, 1, 150, 512 + 64])
            .with_kv_heads(1)
            .with_d_value(512),
    ]
}

/// Problems with skipped, complete and partial tiles.
const WITH_TILES: &[&str] = &[
    "several-tiles",
    "window-and-lengths",
    "sparse-transformer",
    "everything",
    "bias-of-all-heads",
    "bigbird-blocks",
    "function-in-a-window",
    "monotonic-more-keys",
];

const TESTS: &[(&str, Test)] = &[
    ("problems-have-skipped-and-partial-tiles", |device| {
        for name in WITH_TILES {
            let problem = find_problem(name);
            let tensors = Tensors::from_problem(&problem, device);
            let shape =
                AttentionShape::from_tensors("test", &tensors.query, &tensors.key, &tensors.value);
            let computed = tensors.options.pattern.plan(&shape, [64, 64]).density();
            // Partially visible tiles are computed completely.
            let has_partial_tiles = computed > problem.density() && computed < 1.0;
            assert!(has_partial_tiles, "{name}: density {computed}");
        }
    }),
    ("has-a-kernel-for-inference-and-training", |device| {
        for device in [device.clone(), device.clone().autodiff()] {
            assert_ne!(default_kernel(&device), FlashKernel::Composite);
        }
    }),
    // For any random generator: LibTorch's kernels have their own.
    ("dropout-matches-its-probability-and-seed", |device| {
        let problem = Problem::new("share", [2, 4, 64, 96, 8]).with_dropout((0.3, 7));
        let mut tensors = Tensors::from_problem(&problem, device);
        let mut mask = |seed: u64| {
            tensors.options.dropout = Some(Dropout::new(0.3, seed));
            dropout_mask(&Mechanism::Flash.into(), &tensors)
        };
        let (first, again, other) = (mask(7), mask(7), mask(8));
        let count = first.len() as f64;
        let fraction = first.iter().filter(|&&is_dropped| is_dropped).count() as f64 / count;
        // Five standard errors.
        let is_close = (fraction - 0.3).abs() <= 5.0 * (0.3 * 0.7 / count).sqrt();
        assert!(is_close, "{fraction} dropped, expected 0.3");
        assert!(first == again, "the same seed dropped other weights");
        let equal = first.iter().zip(&other).filter(|(a, b)| a == b).count() as f64 / count;
        let is_close = (equal - (0.3 * 0.3 + 0.7 * 0.7)).abs() <= 0.02;
        assert!(is_close, "{equal} equal for two seeds, expected 0.58");
    }),
    ("log-sum-exp-matches-the-oracle", |device| {
        for name in [
            "odd",
            "gpt2",
            "several-tiles",
            "everything",
            "causal-more-queries",
            "few-queries",
            "few-queries-with-options",
        ] {
            let mut few_queries = few_queries().into_iter();
            let problem = few_queries.find(|problem| problem.name == name);
            let problem = problem.unwrap_or_else(|| find_problem(name));
            let got = Tensors::from_problem(&problem, device).apply(flash_with_log_sum_exp);
            let solution = solve(&problem, &problem.inputs());
            let (mut finite, mut want) = (Vec::new(), Vec::new());
            let log_sum_exps = to_vec(got.log_sum_exp).into_iter();
            for (got, exact) in log_sum_exps.zip(solution.log_sum_exp) {
                if exact.is_finite() {
                    finite.push(got);
                    want.push(exact);
                } else {
                    assert!(got <= -1e30, "{name}: {got} for a fully masked query");
                }
            }
            let tolerance = Precision::F32.forward(solution.largest_score);
            must(tolerance.check(name, &finite, &want));
            must(tolerance.check(name, &to_vec(got.context), &solution.context));
        }
    }),
    ("gradients-with-checkpointing", |device| {
        let device = device.clone().autodiff().gradient_checkpointing();
        for name in ["everything", "bias-of-keys", "bert-base"] {
            let problem = find_problem(name);
            let tensors = Tensors::from_problem(&problem, &device);
            let (flash, queries) = (Mechanism::Flash.into(), all_queries(&problem));
            must(compare_gradients(&flash, &problem, tensors, &queries));
        }
    }),
];

/// On a device with autodiff.
const TRAINING_TESTS: &[(&str, Test)] = &[
    ("wide-heads-use-the-portable-tiles", |device| {
        let has_kernels = default_kernel(device) == FlashKernel::Cube;
        // Several blocks, the maximum width of the CubeCL kernels, and wider.
        for (width, is_wide) in [(100, false), (256, false), (260, true)] {
            let shapes = [[1, 2, 5, width], [1, 2, 9, width], [1, 2, 9, 3]];
            let tensors = sine_tensors(shapes, AttentionOptions::new(), device);
            let (query, key, value) = (&tensors.query, &tensors.key, &tensors.value);
            let kernel = selected_kernel(query, key, value, &tensors.options);
            let uses_tiles = kernel == FlashKernel::TileLoops;
            assert!(!has_kernels || uses_tiles == is_wide, "{width}: {kernel}");
            // A software adapter takes ten seconds to compile the widest, which differs only in
            // the number of blocks.
            if width != 256 {
                assert_agree(&tensors, flash_with_log_sum_exp, composite);
            }
        }
    }),
    ("mask-fn-of-batch-and-head-equals-a-dense-mask", |device| {
        let [batch, heads, seq_q, seq_k] = [2, 4, 40, 70];
        let shapes = [
            [batch, heads, seq_q, 8],
            [batch, 2, seq_k, 8],
            [batch, 2, seq_k, 5],
        ];
        let is_visible = |batch: usize, head: usize, query: i64, key: i64| {
            key == 3 * batch as i64 || (0..6_i64 << head).contains(&(query - key))
        };
        let indices = (0..batch * heads * seq_q * seq_k).map(|i| {
            let (row, key) = (i / seq_k, i % seq_k);
            let (row, query) = (row / seq_q, row % seq_q + seq_k - seq_q);
            !is_visible(row / heads, row % heads, query as i64, key as i64)
        });
        let mask = tensor_of(indices.collect(), [batch, heads, seq_q, seq_k], device);
        let options = AttentionOptions::new()
            .with_alibi(alibi_slopes(heads))
            .with_bias(sines([1, heads, 1, seq_k], 0.3, device));
        let lengths = || Pattern::key_lengths([seq_k, 60]);
        // The head determines which weights are dropped, also where heads are computed one by one.
        for options in [options.clone(), options.with_dropout(Dropout::new(0.3, 5))] {
            let [by_function, by_mask] =
                [Pattern::mask_fn(is_visible), Pattern::Dense(mask.clone())]
                    .map(|pattern| options.clone().with_pattern(pattern.and(lengths())))
                    .map(|options| sine_tensors(shapes, options, device));
            let expected = by_mask.results(by_mask.apply(standard).context);
            let mut contexts = vec![by_function.apply(standard).context];
            // LibTorch's kernels have their own random generator.
            if options.dropout.is_none() || by_function.kernel() != FlashKernel::Aten {
                contexts.push(by_function.apply(flash_with_log_sum_exp).context);
            }
            for context in contexts {
                let got = by_function.results(context);
                assert_results_close(Precision::F32.backward(8.0), got, expected.clone());
            }
        }
    }),
    ("strided-tensors", |device| {
        // `[batch, seq, heads, d_head]`, as by a projection.
        let [batch, heads, seq, width] = [2, 3, 70, 8];
        let random = |factor: f32| sines([batch, seq, heads, width], factor, device);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let run = |attend: Attend| {
            // The same tensor as query, key and value, and keys with transposed memory.
            let source = random(1.3).require_grad();
            let x = source.clone().swap_dims(1, 2);
            let transposed = random(0.7)
                .swap_dims(1, 2)
                .swap_dims(2, 3)
                .mul_scalar(1.0)
                .swap_dims(2, 3);
            let first = attend(x.clone(), x.clone(), x.clone(), &options).context;
            let second = attend(x, transposed.clone(), transposed, &options).context;
            let sum = first + second;
            let gradients = sum.clone().powi_scalar(2).sum().backward();
            (to_vec(sum), source.grad(&gradients).map(to_vec))
        };
        let ((got, d_got), (want, d_want)) = (run(flash_with_log_sum_exp), run(composite));
        let tolerance = Precision::F32.backward(4.0);
        must(tolerance.compare("context", &got, &want));
        let (d_got, d_want) = d_got.zip(d_want).expect("a gradient is missing");
        must(tolerance.compare("gradient", &d_got, &d_want));
    }),
    ("options-match-the-portable-tiles", |device| {
        let (heads, seq, width) = (2, 140, 8);
        let mask = sines([1, 1, seq, seq], 0.37, device).greater_elem(0.6);
        let options = AttentionOptions::new()
            .with_pattern(Pattern::Causal.and(Pattern::Dense(mask)))
            .with_softcap(3.0)
            .with_alibi(vec![0.5, 0.01])
            .with_bias(sines([1, heads, 1, seq], 0.11, device))
            .with_dropout(Dropout::new(0.2, 5));
        let tensors = sine_tensors([[1, heads, seq, width]; 3], options, device);
        assert_agree(&tensors, flash_with_log_sum_exp, tile_loops)
    }),
    // The log-sum-exp is computed before dropout, and the gradients of both outputs add up.
    ("log-sum-exp-is-independent-of-dropout", |device| {
        let problem = Problem::new("both", [2, 2, 32, 48, 8]);
        let plain = Tensors::from_problem(&problem, device).require_grad();
        let dropout = plain.options.clone().with_dropout(Dropout::new(0.4, 3));
        let gradients = |options: &AttentionOptions, context_factor: f32, sum_factor: f32| {
            let tensors = Tensors {
                options: options.clone(),
                ..plain.clone()
            };
            let got = tensors.apply(flash_with_log_sum_exp);
            let context = (got.context * plain.output_grad.clone()).sum() * context_factor;
            let sums = got.log_sum_exp.powi_scalar(2).sum() * sum_factor;
            let gradients = (context + sums).backward();
            plain.input_gradients(&gradients)
        };
        let both = gradients(&dropout, 1.0, 1.0);
        let separate = [
            gradients(&dropout, 1.0, 0.0),
            gradients(&plain.options, 0.0, 1.0),
        ];
        for (i, got) in both.iter().enumerate() {
            let [a, b] = separate.each_ref().map(|parts| &parts[i]);
            let want: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(a + b)).collect();
            must(Precision::F32.backward(8.0).check("gradient", got, &want));
        }
    }),
    // Recorded by autodiff, and with the portable tiles.
    ("fallbacks-match-the-oracle", |device| {
        for name in ["odd", "several-tiles", "everything", "grouped-heads"] {
            let problem = find_problem(name);
            let solution = solve(&problem, &problem.inputs());
            for (fallback, attend) in [
                ("composite", composite as Attend),
                ("tile-loops", tile_loops),
            ] {
                let tensors = Tensors::from_problem(&problem, device).require_grad();
                let context = tensors.apply(attend).context;
                let gradients = tensors.backward(context.clone());
                let forward = Precision::F32.forward(solution.largest_score);
                let case = format!("{name} {fallback}");
                must(forward.check(&case, &to_vec(context), &solution.context));
                let backward = Precision::F32.backward(solution.largest_score);
                must(tensors.check_gradients(&gradients, &solution, backward));
            }
        }
    }),
    ("merged-parts-match-full-attention", |device| {
        let problem = find_problem("several-tiles");
        let whole = Tensors::from_problem(&problem, device).require_grad();
        let full = whole.apply(flash_with_log_sum_exp);
        // Even keys and odd keys.
        let split = Tensors::from_problem(&problem, device).require_grad();
        let parts = [0, 1].map(|odd| {
            let mask: Vec<bool> = (0..problem.seq_k).map(|j| j % 2 != odd).collect();
            let mask = Pattern::Dense(tensor_of(mask, [1, 1, 1, problem.seq_k], device));
            let pattern = split.options.pattern.clone().and(mask);
            let part = Tensors {
                options: AttentionOptions::new().with_pattern(pattern),
                ..split.clone()
            };
            part.apply(flash_with_log_sum_exp)
        });
        let merged = merge(&parts);
        // With a gradient of the log-sum-exp, as in a nested merge.
        let got = gradients_of_both(&split, &merged);
        let want = gradients_of_both(&whole, &full);
        let tolerance = Precision::F32.backward(0.0);
        let pairs = [
            (merged.context, full.context),
            (merged.log_sum_exp, full.log_sum_exp),
        ];
        for (got, want) in pairs {
            must(tolerance.compare("merged", &to_vec(got), &to_vec(want)));
        }
        for (got, want) in got.iter().zip(&want) {
            must(tolerance.compare("gradient", got, want));
        }
    }),
    ("gradients-through-the-log-sum-exp", |device| {
        let problem = find_problem("odd");
        let tensors = Tensors::from_problem(&problem, device).require_grad();
        let got = gradients_of_both(&tensors, &tensors.apply(flash_with_log_sum_exp));
        // Reference with Burn operations; the problem has no mask.
        let plain = Tensors::from_problem(&problem, device).require_grad();
        let reference = plain.apply(|query, key, value, _| {
            let scores = matmul(query, key.swap_dims(2, 3));
            let exponentials = scores.mul_scalar(problem.scale()).exp();
            let sum = exponentials.clone().sum_dim(3);
            FlashOutput {
                context: matmul(exponentials.div(sum.clone()), value),
                log_sum_exp: sum.log(),
            }
        });
        let want = gradients_of_both(&plain, &reference);
        for (got, want) in got.iter().zip(&want) {
            // Both sides are rounded.
            let tolerance = Precision::F32.backward(8.0);
            must(tolerance.compare("gradient", got, want));
        }
    }),
];
