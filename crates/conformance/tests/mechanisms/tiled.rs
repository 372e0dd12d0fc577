//! What `flash` alone promises: a body of its own on every backend, and a gradient
//! through the log-sum-exp.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use libtest_mimic::{Failed, Trial};
use zoo_attention::flash::{by_tiles, recorded};
use zoo_attention::{
    AttentionOptions, Body, Dropout, Flashed, Mechanism, Pattern, flash_with_log_sum_exp, merge,
    which_body,
};
use zoo_conformance::{Tensors, all_queries, dropped, judge_gradients, numbers};
use zoo_oracle::{Precision, Problem, find, solve};

type Test = fn(&Device) -> Result<(), Failed>;
/// One way of computing the same.
type Attend = fn(Tensor<4>, Tensor<4>, Tensor<4>, &AttentionOptions) -> Flashed;

pub(crate) fn trials(device: &Device) -> impl Iterator<Item = Trial> {
    TESTS.iter().map(move |(name, test)| {
        let device = device.clone();
        Trial::test(format!("flash/{name}"), move || test(&device))
    })
}

const TESTS: &[(&str, Test)] = &[
    ("has-a-body-for-inference-and-training", |device| {
        for device in [device.clone(), device.clone().autodiff()] {
            let zeros = || Tensor::zeros([1, 1, 1, 1], &device);
            let options = AttentionOptions::new();
            let body = which_body(&zeros(), &zeros(), &zeros(), &options);
            if body == Body::Recorded {
                return Err("it would be recorded op by op".into());
            }
        }
        Ok(())
    }),
    ("kernels-leave-wide-heads-to-the-tiles", |device| {
        let device = &device.clone().autodiff();
        let random = |seq: usize, width: usize, factor: f32| {
            let numbers: Vec<f32> = (0..2 * seq * width)
                .map(|at| (at as f32 * factor).sin())
                .collect();
            let tensor = TensorData::new(numbers, [1, 2, seq, width]);
            Tensor::<4>::from_data(tensor, device).require_grad()
        };
        let one = || Tensor::zeros([1, 1, 1, 1], device);
        let has_kernels =
            which_body(&one(), &one(), &one(), &AttentionOptions::new()) == Body::Cube;
        // In several blocks, as wide as the kernels of CubeCL take them, and wider.
        for (width, is_wide) in [(100, false), (256, false), (260, true)] {
            let (query, key) = (random(5, width, 1.7), random(9, width, 2.3));
            let value = random(9, 3, 0.9);
            let options = AttentionOptions::new();
            let body = which_body(&query, &key, &value, &options);
            if has_kernels && (body == Body::Tiles) != is_wide {
                return Err(format!("{width} numbers a head are computed by {body}").into());
            }
            // A software adapter compiles the widest for ten seconds; they differ in the
            // number of their blocks alone.
            if width == 256 {
                continue;
            }
            let attend = |by: Attend| {
                let flashed = by(query.clone(), key.clone(), value.clone(), &options);
                let gradients = flashed.context.clone().powi_scalar(2).sum().backward();
                let of = |tensor: &Tensor<4>| tensor.grad(&gradients).map(numbers);
                [
                    Some(numbers(flashed.context)),
                    of(&query),
                    of(&key),
                    of(&value),
                ]
            };
            let (got, want) = (attend(flash_with_log_sum_exp), attend(recorded));
            for (name, (got, want)) in ["context", "d_query", "d_key", "d_value"]
                .into_iter()
                .zip(got.into_iter().zip(want))
            {
                let (got, want) = got.zip(want).ok_or("a gradient is missing")?;
                let want: Vec<f64> = want.into_iter().map(f64::from).collect();
                // Both sides are rounded.
                Precision::F32.backward(8.0).check(name, &got, &want)?;
            }
        }
        Ok(())
    }),
    ("tensors-are-read-where-they-lie", |device| {
        let device = &device.clone().autodiff();
        // Heads beside each other, as a projection leaves them.
        let [batch, heads, seq, width] = [2, 3, 70, 8];
        let numbers_of = |factor: f32| {
            let count = batch * seq * heads * width;
            let numbers: Vec<f32> = (0..count).map(|at| (at as f32 * factor).sin()).collect();
            let data = TensorData::new(numbers, [batch, seq, heads, width]);
            Tensor::<4>::from_data(data, device)
        };
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
        let exact = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).collect::<Vec<_>>();
        let tolerance = Precision::F32.backward(4.0);
        tolerance.check("context", &got, &exact(want))?;
        let (d_got, d_want) = d_got.zip(d_want).ok_or("a gradient is missing")?;
        tolerance.check("gradient", &d_got, &exact(d_want))?;
        Ok(())
    }),
    ("kernels-agree-with-the-tiles", |device| {
        for name in ["several-tiles", "everything", "grouped-heads"] {
            let problem = find(name).expect("a problem of the catalogue");
            let tensors = Tensors::new(&problem, &problem.inputs(), device);
            let attend = |by: Attend| {
                let Tensors {
                    query, key, value, ..
                } = tensors.clone();
                by(query, key, value, &tensors.options)
            };
            let (got, want) = (attend(flash_with_log_sum_exp), attend(by_tiles));
            let want: Vec<f64> = numbers(want.context).into_iter().map(f64::from).collect();
            let answer = solve(&problem, &problem.inputs());
            // Both sides are rounded.
            let tolerance = Precision::F32.backward(answer.largest_score);
            tolerance.check(name, &numbers(got.context), &want)?;
        }
        Ok(())
    }),
    ("options-on-several-tiles-agree-with-the-tiles", |device| {
        let device = &device.clone().autodiff();
        let (heads, seq, width) = (2, 140, 8);
        let random = |dims: [usize; 4], factor: f32| {
            let count: usize = dims.iter().product();
            let numbers: Vec<f32> = (0..count).map(|at| (at as f32 * factor).sin()).collect();
            Tensor::<4>::from_data(TensorData::new(numbers, dims), device)
        };
        let inputs = [1.7, 2.3, 0.9].map(|f| random([1, heads, seq, width], f).require_grad());
        let hidden = random([1, 1, seq, seq], 0.37).greater_elem(0.6);
        let options = AttentionOptions::new()
            .with_pattern(Pattern::Causal.and(Pattern::Dense(hidden)))
            .with_softcap(3.0)
            .with_alibi(vec![0.5, 0.01])
            .with_bias(random([1, heads, 1, seq], 0.11))
            .with_dropout(Dropout::new(0.2, 5));
        let attend = |by: Attend| {
            let [query, key, value] = inputs.clone();
            let context = by(query, key, value, &options).context;
            let gradients = context.clone().powi_scalar(2).sum().backward();
            let d_inputs = inputs.each_ref().map(|tensor| tensor.grad(&gradients));
            (numbers(context), d_inputs.map(|tensor| tensor.map(numbers)))
        };
        let ((got, d_got), (want, d_want)) = (attend(flash_with_log_sum_exp), attend(by_tiles));
        let exact = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).collect::<Vec<_>>();
        // Both sides are rounded.
        let tolerance = Precision::F32.backward(8.0);
        tolerance.check("context", &got, &exact(want))?;
        for (got, want) in d_got.into_iter().zip(d_want) {
            let (got, want) = got.zip(want).ok_or("a gradient is missing")?;
            tolerance.check("gradient", &got, &exact(want))?;
        }
        Ok(())
    }),
    // Whoever chooses: LibTorch's kernels choose others than the rest of us.
    ("drops-its-share-by-its-seed", |device| {
        let problem = Problem {
            dropout: Some((0.3, 7)),
            ..Problem::new("share", [2, 4, 64, 96, 8])
        };
        let mut tensors = Tensors::new(&problem, &problem.inputs(), device);
        let mut drawn = |seed: u64| {
            tensors.options.dropout = Some(Dropout::new(0.3, seed));
            dropped(&tensors)
        };
        let (first, again, other) = (drawn(7), drawn(7), drawn(8));
        let count = first.len() as f64;
        let share = first.iter().filter(|&&is_dropped| is_dropped).count() as f64 / count;
        // Five standard errors.
        if (share - 0.3).abs() > 5.0 * (0.3 * 0.7 / count).sqrt() {
            return Err(format!("{share} are dropped, not 0.3").into());
        }
        if first != again {
            return Err("the same seed dropped others".into());
        }
        let alike = first.iter().zip(&other).filter(|(a, b)| a == b).count() as f64 / count;
        // Both stay, or both go.
        if (alike - 0.58).abs() > 0.02 {
            return Err(format!("another seed agrees on {alike} of them, not on 0.58").into());
        }
        Ok(())
    }),
    // Scores are summed up before weights are dropped: what arrives at the two results adds up.
    ("log-sum-exp-knows-of-no-dropout", |device| {
        let device = &device.clone().autodiff();
        let problem = Problem::new("both", [2, 2, 32, 48, 8]);
        let plain = Tensors::new(&problem, &problem.inputs(), device).require_grad();
        let dropping = plain.options.clone().with_dropout(Dropout::new(0.4, 3));
        let gradients = |options: &AttentionOptions, of_context: f32, of_sum: f32| {
            let Tensors {
                query, key, value, ..
            } = plain.clone();
            let got = flash_with_log_sum_exp(query, key, value, options);
            let context = (got.context * plain.upstream.clone()).sum() * of_context;
            let sums = got.log_sum_exp.powi_scalar(2).sum() * of_sum;
            let gradients = (context + sums).backward();
            let by = |tensor: &Tensor<4>| match tensor.grad(&gradients) {
                Some(gradient) => numbers(gradient),
                None => vec![0.0; tensor.dims().iter().product()],
            };
            [&plain.query, &plain.key, &plain.value].map(by)
        };
        let both = gradients(&dropping, 1.0, 1.0);
        let apart = [
            gradients(&dropping, 1.0, 0.0),
            gradients(&plain.options, 0.0, 1.0),
        ];
        for (at, got) in both.iter().enumerate() {
            let [a, b] = apart.each_ref().map(|parts| &parts[at]);
            let want: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(a + b)).collect();
            Precision::F32.backward(8.0).check("gradient", got, &want)?;
        }
        Ok(())
    }),
    ("is-right-without-a-body-of-the-backend", |device| {
        let device = &device.clone().autodiff();
        for name in ["odd", "several-tiles", "everything", "grouped-heads"] {
            let problem = find(name).expect("a problem of the catalogue");
            let inputs = problem.inputs();
            let tensors = Tensors::new(&problem, &inputs, device).require_grad();
            let Tensors {
                query,
                key,
                value,
                upstream,
                options,
            } = tensors.clone();
            let context = recorded(query, key, value, &options).context;
            let gradients = (context.clone() * upstream).sum().backward();
            let answer = solve(&problem, &inputs);
            let forward = Precision::F32.forward(answer.largest_score);
            forward.check(name, &numbers(context), &answer.context)?;
            let backward = Precision::F32.backward(answer.largest_score);
            for (tensor, want) in [
                (&tensors.query, &answer.d_query),
                (&tensors.key, &answer.d_key),
                (&tensors.value, &answer.d_value),
            ] {
                let gradient = tensor.grad(&gradients);
                let gradient = gradient.ok_or("the result depends on all three")?;
                backward.check(name, &numbers(gradient), want)?;
            }
        }
        Ok(())
    }),
    ("log-sum-exp-matches-the-oracle", |device| {
        for name in [
            "odd",
            "gpt2",
            "several-tiles",
            "everything",
            "causal-more-queries",
        ] {
            let problem = find(name).expect("a problem of the catalogue");
            let inputs = problem.inputs();
            let tensors = Tensors::new(&problem, &inputs, device);
            let got =
                flash_with_log_sum_exp(tensors.query, tensors.key, tensors.value, &tensors.options);
            let answer = solve(&problem, &inputs);
            let (mut finite, mut want) = (Vec::new(), Vec::new());
            for (got, exact) in numbers(got.log_sum_exp).into_iter().zip(answer.log_sum_exp) {
                if exact.is_finite() {
                    finite.push(got);
                    want.push(exact);
                } else if got > -1e30 {
                    return Err(format!("{name}: {got} for a query that sees nothing").into());
                }
            }
            let tolerance = Precision::F32.forward(answer.largest_score);
            tolerance.check(name, &finite, &want)?;
        }
        Ok(())
    }),
    ("parts-merge-into-the-whole", |device| {
        let device = device.clone().autodiff();
        let problem = find("several-tiles").expect("a problem of the catalogue");
        let whole = Tensors::new(&problem, &problem.inputs(), &device).require_grad();
        let at_once = flash_with_log_sum_exp(
            whole.query.clone(),
            whole.key.clone(),
            whole.value.clone(),
            &whole.options,
        );
        // The log-sum-exp has a gradient of its own, as in a merge of merges.
        let weigh = |flashed: &Flashed, upstream: &Tensor<4>| {
            let weights = upstream.clone().slice_dim(3, 0..1);
            let sizes = (flashed.log_sum_exp.clone() * weights).sum();
            (sizes + (flashed.context.clone() * upstream.clone()).sum()).backward()
        };
        let gradients = weigh(&at_once, &whole.upstream);

        // Even keys and odd keys.
        let parted = Tensors::new(&problem, &problem.inputs(), &device).require_grad();
        let parts = [0, 1].map(|odd| {
            let hidden: Vec<bool> = (0..problem.seq_k).map(|j| j % 2 != odd).collect();
            let hidden = TensorData::new(hidden, [1, 1, 1, problem.seq_k]);
            let hidden = Pattern::Dense(Tensor::<4, Bool>::from_data(hidden, &device));
            let options =
                AttentionOptions::new().with_pattern(parted.options.pattern.clone().and(hidden));
            flash_with_log_sum_exp(
                parted.query.clone(),
                parted.key.clone(),
                parted.value.clone(),
                &options,
            )
        });
        let merged = merge(&parts);
        let got = weigh(&merged, &parted.upstream);
        let tolerance = Precision::F32.backward(0.0);
        let exact = |tensor: Tensor<4>| {
            numbers(tensor)
                .into_iter()
                .map(f64::from)
                .collect::<Vec<_>>()
        };
        tolerance.check("context", &numbers(merged.context), &exact(at_once.context))?;
        tolerance.check(
            "log-sum-exp",
            &numbers(merged.log_sum_exp),
            &exact(at_once.log_sum_exp),
        )?;
        for (name, parted, whole) in [
            ("d_query", &parted.query, &whole.query),
            ("d_key", &parted.key, &whole.key),
            ("d_value", &parted.value, &whole.value),
        ] {
            let got = parted.grad(&got).ok_or("a gradient is missing")?;
            let want = whole.grad(&gradients).ok_or("a gradient is missing")?;
            tolerance.check(name, &numbers(got), &exact(want))?;
        }
        Ok(())
    }),
    ("gradients-flow-with-checkpointing", |device| {
        let device = device.clone().autodiff().gradient_checkpointing();
        for name in ["everything", "bias-of-keys", "bert-base"] {
            let problem = find(name).expect("a problem of the catalogue");
            let tensors = Tensors::new(&problem, &problem.inputs(), &device);
            judge_gradients(
                &Mechanism::Flash.into(),
                &problem,
                tensors,
                &all_queries(&problem),
            )?;
        }
        Ok(())
    }),
    ("gradients-flow-through-the-log-sum-exp", |device| {
        let device = device.clone().autodiff();
        let problem = find("odd").expect("a problem of the catalogue");
        let tensors = || Tensors::new(&problem, &problem.inputs(), &device).require_grad();
        // Each query's own weight, and the context's in the loss as well.
        let rows = [problem.batch, problem.heads, problem.seq_q, 1];
        let weigh = |log_sum_exp: Tensor<4>, context: Tensor<4>, upstream: Tensor<4>| {
            let weights = upstream
                .clone()
                .slice([0..rows[0], 0..rows[1], 0..rows[2], 0..1]);
            ((log_sum_exp * weights).sum() + (context * upstream).sum()).backward()
        };

        let ours = tensors();
        let got = flash_with_log_sum_exp(
            ours.query.clone(),
            ours.key.clone(),
            ours.value.clone(),
            &ours.options,
        );
        let got = weigh(got.log_sum_exp, got.context, ours.upstream.clone());

        // The same by Burn's own operations; the problem has no mask.
        let plain = tensors();
        let scores = plain
            .query
            .clone()
            .matmul(plain.key.clone().swap_dims(2, 3));
        let exponentials = scores.mul_scalar(problem.scale()).exp();
        let sum = exponentials.clone().sum_dim(3);
        let context = exponentials.div(sum.clone()).matmul(plain.value.clone());
        let want = weigh(sum.log(), context, plain.upstream.clone());

        for (name, ours, plain) in [
            ("d_query", &ours.query, &plain.query),
            ("d_key", &ours.key, &plain.key),
            ("d_value", &ours.value, &plain.value),
        ] {
            let [got, want] = [(ours, &got), (plain, &want)]
                .map(|(tensor, gradients)| tensor.grad(gradients).map(numbers));
            let (got, want) = got.zip(want).ok_or("a gradient is missing")?;
            let want: Vec<f64> = want.into_iter().map(f64::from).collect();
            // Both sides are rounded.
            Precision::F32.backward(8.0).check(name, &got, &want)?;
        }
        Ok(())
    }),
];
