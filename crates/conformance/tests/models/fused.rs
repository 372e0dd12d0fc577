//! What a training step does besides matmuls and attention: each op of `zoo-kernels` against
//! plain loops in `f64`, its gradient against central differences of those, and Adam against
//! Burn's.

use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig};
use burn::optim::{
    AdamConfig as BurnAdam, AdamWConfig as BurnAdamW, GradientsParams, ModuleOptimizer,
    decay::WeightDecayConfig,
};
use burn::tensor::{Device, Int, Tensor, TensorData};
use zoo_kernels::{
    AdamConfig, AdamKind, add_dropout, dropout, layer_norm, relu_dropout, smoothed_cross_entropy,
};
use zoo_oracle::{Precision, normals};

use crate::support::*;

pub(crate) const TESTS: &[(&str, Test)] = &[
    // Odd widths, a single row, a single number, and more rows than one thread takes.
    ("layer-norm", |device| {
        for [rows, width] in [[3, 5], [1, 128], [7, 1], [2, 37], [300, 130]] {
            norm_is_right(rows, width, true, device);
        }
        norm_is_right(4, 19, false, device);
    }),
    ("layer-norm-of-another-order", |device| {
        let norm = LayerNormConfig::new(4).init(device);
        let input = tensor::<3>("turned", [2, 4, 3], device).swap_dims(1, 2);
        let copied = Tensor::<3>::from_data(input.to_data(), device);
        let want = f64s(layer_norm(&norm, EPSILON, copied));
        near(layer_norm(&norm, EPSILON, input), &want);
    }),
    ("cross-entropy", |device| {
        let cases = [([5, 7], 0.1), ([3, 33], 0.0), ([1, 16], 0.3), ([2, 1], 0.1)];
        for ([rows, classes], smoothing) in cases {
            loss_is_right(rows, classes, smoothing, |_| true, device);
        }
        // Padding within, and at the ends.
        loss_is_right(6, 21, 0.1, |row| row % 3 == 1, device);
        // More rows than one thread takes.
        loss_is_right(160, 301, 0.1, |row| row != 7, device);
    }),
    ("cross-entropy-of-padding-alone", |device| {
        let logits = tensor::<2>("padding", [3, 4], device).require_grad();
        let targets = Tensor::<1, Int>::zeros([3], device);
        let loss = smoothed_cross_entropy(logits.clone(), targets, &[false; 3], 0.1);
        let gradients = loss.backward();
        assert_eq!(numbers(loss), vec![0.0]);
        let got = logits.grad(&gradients).expect("no gradient");
        assert_eq!(numbers(got), vec![0.0; 12]);
    }),
    ("cross-entropy-leaves-logits-alone", |device| {
        let logits = tensor::<2>("looked-at", [3, 5], device).require_grad();
        let seen = logits.clone() * 2.0;
        let before = numbers(seen.clone());
        let targets = ids(&[4, 0, 2], device);
        let loss = smoothed_cross_entropy(seen.clone(), targets, &[true; 3], 0.1);
        loss.backward();
        assert_eq!(numbers(seen), before);
    }),
    ("cross-entropy-of-large-logits", |device| {
        // Where a sum of exponentials would overflow, and where all but one vanish.
        let logits = TensorData::new(vec![300.0f32, -300.0, 299.0, 0.0, 1e4, -1e4], [2, 3]);
        let logits = Tensor::<2>::from_data(logits, device);
        let loss = smoothed_cross_entropy(logits, ids(&[0, 1], device), &[true; 2], 0.0);
        // ln(1 + 1/e), and nothing.
        near(loss, &[(1.0 + (-1.0f64).exp()).ln() / 2.0]);
    }),
    ("dropout", |device| {
        let module = DropoutConfig::new(0.3).init();
        let input = Tensor::<2>::ones([40, 1001], device);
        forgets(0.3, &numbers(dropout(&module, input.clone())));
        let base = tensor::<2>("base", [40, 1001], device);
        let sum = numbers(add_dropout(&module, base.clone(), input.clone()));
        let kept: Vec<f32> = sum.iter().zip(numbers(base)).map(|(s, b)| s - b).collect();
        forgets(0.3, &kept);
        forgets(0.3, &numbers(relu_dropout(&module, input.clone())));
        let below = numbers(relu_dropout(&module, -input));
        assert!(below.iter().all(|number| *number == 0.0));
    }),
    ("dropout-is-linear", |device| {
        // The gradient is what numbers were multiplied by: the same ones are forgotten.
        let module = DropoutConfig::new(0.4).init();
        let upstream = tensor::<2>("upstream", [9, 333], device);
        let [input, base] = ["x", "z"].map(|name| tensor::<2>(name, [9, 333], device));
        let (input, base) = (input.require_grad(), base.require_grad());
        let output = dropout(&module, input.clone());
        follows(&input, &output, None, &upstream);
        let output = add_dropout(&module, base.clone(), input.clone());
        follows(&input, &output, Some(&base), &upstream);
        let output = relu_dropout(&module, input.clone());
        let gradients = (output.clone() * upstream.clone()).sum().backward();
        let got = numbers(input.grad(&gradients).expect("no gradient"));
        let (input, output) = (numbers(input), numbers(output));
        let factor = |at: usize| match input[at] > 0.0 {
            true => output[at] / input[at],
            false => 0.0,
        };
        let upstream = numbers(upstream);
        let want = (0..input.len()).map(|at| f64::from(factor(at) * upstream[at]));
        let want: Vec<f64> = want.collect();
        must(Precision::F32.backward(0.0).check("gradient", &got, &want));
    }),
    ("dropout-at-rest", |device| {
        let module = DropoutConfig::new(0.5).init();
        let inner = device.clone().inner();
        for (module, device) in [
            (module.clone(), &inner),
            (module.freeze(), device),
            (DropoutConfig::new(0.0).init(), device),
        ] {
            rests(&module, device);
        }
    }),
    ("dropout-follows-the-seed", |device| {
        let module = DropoutConfig::new(0.5).init();
        let drawn = |seed: u64| {
            device.seed(seed);
            numbers(dropout(&module, Tensor::<2>::ones([8, 64], device)))
        };
        // Tests beside this one draw from the same generator: now and then one comes between,
        // but a seed that decided nothing would never give the same 512 choices twice.
        for _ in 0..50 {
            let (first, again, other) = (drawn(3), drawn(3), drawn(4));
            if first == again && first != other {
                return;
            }
        }
        panic!("the same seed never gave the same numbers");
    }),
    ("adam-is-burns", |device| {
        let own = |kind| AdamConfig::new(kind).with_beta_2(0.98).with_epsilon(1e-6);
        let burns = || BurnAdam::new().with_beta_2(0.98).with_epsilon(1e-6);
        let decay = Some(WeightDecayConfig::new(0.05));
        let burns_adamw = BurnAdamW::new().with_beta_2(0.98).with_epsilon(1e-6);
        for (own, burns) in [
            (own(AdamKind::Adam), burns().init()),
            (
                own(AdamKind::Adam).with_weight_decay(0.05),
                burns().with_weight_decay(decay).init(),
            ),
            (
                own(AdamKind::Adamw).with_weight_decay(0.05),
                burns_adamw.with_weight_decay(0.05).init(),
            ),
        ] {
            go_the_same_way(own.init(), burns, device);
        }
    }),
    ("adam-goes-on-from-a-record", |device| {
        let step = |optimizer: &mut ModuleOptimizer, norm: LayerNorm| {
            let gradients = gradients(&norm, 3, device);
            optimizer.step(0.1, norm, gradients)
        };
        let config = AdamConfig::new(AdamKind::Adam);
        let mut first = config.init();
        let norm = step(&mut first, LayerNormConfig::new(5).init(device));
        let mut second = config.init().load_record(first.to_record());
        let want = numbers(step(&mut first, norm.clone()).gamma.val());
        assert_eq!(numbers(step(&mut second, norm).gamma.val()), want);
    }),
    ("adam-leaves-others-alone", |device| {
        let norm = LayerNormConfig::new(6).init(device);
        let seen = norm.gamma.val();
        let mut optimizer = AdamConfig::new(AdamKind::Adam).init();
        let gradients = gradients(&norm, 1, device);
        optimizer.step(0.1, norm, gradients);
        assert_eq!(numbers(seen), vec![1.0; 6]);
    }),
    ("misuse-is-named", |device| {
        let norm = LayerNormConfig::new(4).init(device);
        is_refused(
            || layer_norm(&norm, EPSILON, Tensor::<2>::zeros([2, 3], device)),
            "layer norm: the last dimension must be 4, got [2, 3]",
        );
        let call = |targets: &[i64], counts: &[bool], smoothing: f64| {
            let logits = Tensor::<2>::zeros([2, 3], device);
            smoothed_cross_entropy(logits, ids(targets, device), counts, smoothing);
        };
        is_refused(
            || call(&[0], &[true], 0.1),
            "cross-entropy: [rows = 2, classes = 3] with targets [1] of which 1 count or not",
        );
        is_refused(
            || call(&[0, 1], &[true; 2], 1.0),
            "cross-entropy: smoothing must be at least 0 and below 1, got 1",
        );
        is_refused(
            || AdamConfig::new(AdamKind::Adam).with_beta_1(1.0).build(),
            "Adam: beta_1 must be at least 0 and below 1, got 1",
        );
    }),
];

fn tensor<const D: usize>(name: &str, dims: [usize; D], device: &Device) -> Tensor<D> {
    let drawn = normals(name, dims.iter().product(), 1.0);
    Tensor::from_data(TensorData::new(drawn, dims), device)
}

fn ids(ids: &[i64], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), [ids.len()]), device)
}

fn f64s<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    numbers(tensor).into_iter().map(f64::from).collect()
}

fn near<const D: usize>(got: Tensor<D>, want: &[f64]) {
    let tolerance = Precision::F32.backward(0.0);
    must(tolerance.check("result", &numbers(got), want));
}

/// The derivative of a function by each number, by central differences.
fn slopes(at: &[f64], function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    // Where the error of cutting the series off meets that of rounding.
    const STEP: f64 = 1e-5;
    let mut moved = at.to_vec();
    (0..at.len())
        .map(|place| {
            moved[place] = at[place] + STEP;
            let above = function(&moved);
            moved[place] = at[place] - STEP;
            let below = function(&moved);
            moved[place] = at[place];
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

const EPSILON: f64 = 1e-5;

/// A norm as its formula has it: of rows of `gamma`'s width.
fn plain_norm(input: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let width = gamma.len();
    let row = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let root = (variance + EPSILON).sqrt();
        let number = |(at, x): (usize, &f64)| (x - mean) / root * gamma[at] + beta[at];
        row.iter().enumerate().map(number).collect::<Vec<f64>>()
    };
    input.chunks(width).flat_map(row).collect()
}

fn norm_is_right(rows: usize, width: usize, bias: bool, device: &Device) {
    let mut norm = LayerNormConfig::new(width)
        .with_epsilon(EPSILON)
        .with_bias(bias)
        .init(device);
    let drawn =
        |name: &str| Param::from_tensor(tensor::<1>(name, [width], device)).set_require_grad(true);
    norm.gamma = drawn("gamma");
    norm.beta = norm.beta.map(|_| drawn("beta"));
    let input = tensor::<2>("norm", [rows, width], device).require_grad();
    let upstream = tensor::<2>("up", [rows, width], device);
    let output = layer_norm(&norm, EPSILON, input.clone());
    let gradients = (output.clone() * upstream.clone()).sum().backward();

    let (x, up) = (f64s(input.clone()), f64s(upstream));
    let gamma = f64s(norm.gamma.val());
    let beta = norm.beta.as_ref().map(|beta| f64s(beta.val()));
    let beta = beta.unwrap_or_else(|| vec![0.0; width]);
    near(output, &plain_norm(&x, &gamma, &beta));
    let loss = |x: &[f64], gamma: &[f64], beta: &[f64], up: &[f64]| -> f64 {
        let output = plain_norm(x, gamma, beta);
        output.iter().zip(up).map(|(y, up)| y * up).sum()
    };
    // A row's gradient depends on that row alone: a few rows of many are enough.
    let looked_at = rows.min(4) * width;
    let up_to = &up[..looked_at];
    let want = slopes(&x[..looked_at], |x| loss(x, &gamma, &beta, up_to));
    let got = numbers(input.grad(&gradients).expect("no gradient"));
    // Of a row of one number nothing is left but rounding.
    let tolerance = Precision::F32.backward(0.0);
    if width > 1 {
        must(tolerance.check("d_input", &got[..looked_at], &want));
    } else {
        assert!(got.iter().all(|number| number.abs() < 1e-6));
    }
    // They are straight lines: the slope is exact however long the step.
    let want = slopes(&gamma, |gamma| loss(&x, gamma, &beta, &up));
    near(norm.gamma.grad(&gradients).expect("no gradient"), &want);
    if let Some(own) = &norm.beta {
        let want = slopes(&beta, |beta| loss(&x, &gamma, beta, &up));
        near(own.grad(&gradients).expect("no gradient"), &want);
    }
}

/// The loss as its formula has it.
fn plain_loss(logits: &[f64], classes: usize, targets: &[i64], counts: &[bool], s: f64) -> f64 {
    let row = |row: &[f64], target: i64| {
        let log_sum_exp = row.iter().map(|x| x.exp()).sum::<f64>().ln();
        let mean = row.iter().sum::<f64>() / classes as f64;
        log_sum_exp - (1.0 - s) * row[target as usize] - s * mean
    };
    let rows = logits.chunks(classes).zip(targets).zip(counts);
    let counted = rows.filter(|(_, counts)| **counts);
    let counted: Vec<f64> = counted
        .map(|((logits, target), _)| row(logits, *target))
        .collect();
    counted.iter().sum::<f64>() / counted.len() as f64
}

fn loss_is_right(
    rows: usize,
    classes: usize,
    smoothing: f64,
    counts: fn(usize) -> bool,
    device: &Device,
) {
    let logits = tensor::<2>("logits", [rows, classes], device).require_grad();
    let targets: Vec<i64> = (0..rows).map(|row| (row * 5 % classes) as i64).collect();
    let counts: Vec<bool> = (0..rows).map(counts).collect();
    // What is given is nobody else's, as in a model.
    let given = logits.clone() * 1.0;
    let loss = smoothed_cross_entropy(given, ids(&targets, device), &counts, smoothing);
    let gradients = (loss.clone() * 3.0).backward();
    let at = f64s(logits.clone());
    let plain = |at: &[f64]| plain_loss(at, classes, &targets, &counts, smoothing);
    match classes {
        // What is left of equal terms is no size to be relative to.
        1 => assert!(numbers(loss)[0].abs() < 1e-6),
        _ => near(loss, &[plain(&at)]),
    }
    let got = numbers(logits.grad(&gradients).expect("no gradient"));
    // All rows are many: differences of the first and last, which padding may be among.
    let sizes = [
        0..rows.min(3) * classes,
        (rows - 1) * classes..rows * classes,
    ];
    // A gradient is a difference of terms up to this.
    let counted = counts.iter().filter(|counts| **counts).count();
    let term = 3.0 / counted as f64;
    for part in sizes {
        let want = slopes(&at[part.clone()], |own| {
            let mut all = at.clone();
            all[part.clone()].copy_from_slice(own);
            3.0 * plain(&all)
        });
        for (got, want) in got[part].iter().zip(want) {
            let apart = (f64::from(*got) - want).abs();
            // Differences lose digits: the root of f64's, of a loss of a few nats.
            let allowed = 16.0 * f64::from(f32::EPSILON) * term + 1e-9;
            assert!(
                apart <= allowed,
                "{got} instead of {want}, terms up to {term}"
            );
        }
    }
}

/// Whether so many of ones are forgotten, and the others are larger for it.
fn forgets(share: f64, numbers: &[f32]) {
    let kept = 1.0 / (1.0 - share);
    let is_kept = |number: &f32| (f64::from(*number) - kept).abs() < 1e-5;
    assert!(numbers.iter().all(|x| x.abs() < 1e-5 || is_kept(x)));
    let count = numbers.len() as f64;
    let got = 1.0 - numbers.iter().filter(|number| is_kept(number)).count() as f64 / count;
    // Five standard errors.
    let noise = 5.0 * (share * (1.0 - share) / count).sqrt();
    assert!(
        (got - share).abs() < noise,
        "{got} dropped instead of {share}"
    );
}

/// Whether gradients are the factors that the result shows.
fn follows(input: &Tensor<2>, output: &Tensor<2>, base: Option<&Tensor<2>>, upstream: &Tensor<2>) {
    let gradients = (output.clone() * upstream.clone()).sum().backward();
    let got = numbers(input.grad(&gradients).expect("no gradient"));
    let [x, y, up] = [input, output, upstream].map(|tensor| f64s(tensor.clone()));
    let z = base.map_or_else(
        || vec![0.0; x.len()],
        |base| {
            near(base.grad(&gradients).expect("no gradient"), &up);
            f64s(base.clone())
        },
    );
    for at in 0..x.len() {
        // By what the number shows that it was multiplied by, in digits that a sum leaves.
        let factor = (y[at] - z[at]) / x[at];
        let noise = 1e-6 * (1.0 + z[at].abs()) / x[at].abs();
        let (got, want) = (f64::from(got[at]), factor * up[at]);
        let is_near = (got - want).abs() <= (noise + 1e-6) * (1.0 + up[at].abs());
        assert!(is_near, "{got} instead of {want}");
    }
}

fn rests(module: &Dropout, device: &Device) {
    let input = tensor::<2>("rest", [3, 7], device);
    let want = numbers(input.clone());
    assert_eq!(numbers(dropout(module, input.clone())), want);
    let base = Tensor::zeros([3, 7], device);
    assert_eq!(numbers(add_dropout(module, base, input.clone())), want);
    let want: Vec<f32> = want.into_iter().map(|x| x.max(0.0)).collect();
    assert_eq!(numbers(relu_dropout(module, input)), want);
}

/// Gradients for a norm's parameters that differ from step to step.
fn gradients(norm: &LayerNorm, step: usize, device: &Device) -> GradientsParams {
    let [width] = norm.gamma.dims();
    let slope = tensor::<1>(&format!("slope-{step}"), [width], device);
    let own = norm.gamma.val() * slope.clone();
    let own = match &norm.beta {
        Some(beta) => own + beta.val() * slope * 0.5,
        None => own,
    };
    GradientsParams::from_grads(own.sum().backward(), norm)
}

fn go_the_same_way(mut own: ModuleOptimizer, mut burns: ModuleOptimizer, device: &Device) {
    // More than one thread takes.
    let width = 40_001;
    let norm: LayerNorm = LayerNormConfig::new(width).init(device);
    let (mut got, mut want) = (norm.clone(), norm);
    for step in 0..5 {
        let [by_own, by_burns] = [&got, &want].map(|norm| gradients(norm, step, device));
        got = own.step(0.01, got, by_own);
        want = burns.step(0.01, want, by_burns);
        near(got.gamma.val(), &f64s(want.gamma.val()));
        if let (Some(got), Some(want)) = (&got.beta, &want.beta) {
            // They start at zero: what is compared is all that steps have made of them, and
            // Burn takes 1 - beta in f32, which is off by a hundred-thousandth of itself.
            let (got, want) = (numbers(got.val()), f64s(want.val()));
            let off = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs();
            let worst = got.iter().zip(&want).map(off).fold(0.0, f64::max);
            assert!(worst < 1e-5 * 0.01 * 5.0);
        }
    }
}
