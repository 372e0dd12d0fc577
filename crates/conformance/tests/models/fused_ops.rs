//! Fused operations of `zoo-kernels` against plain loops in `f64`, their gradients against central
//! differences, and Adam against Burn's.

use burn::module::Param;
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::{
    AdamConfig as BurnAdam, AdamWConfig as BurnAdamW, GradientsParams, ModuleOptimizer,
};
use zoo_kernels::{
    AdamConfig, AdamKind, add_dropout, causal_convolution, dropout, layer_norm, relu_dropout,
    rms_norm, smoothed_cross_entropy,
};

use crate::support::*;

pub(crate) const TESTS: &[(&str, Test)] = &[
    // Odd widths, a single row, a single element, and more rows than one thread processes.
    ("layer-norm", |device| {
        for [rows, width] in [[3, 5], [1, 128], [7, 1], [2, 37], [300, 130]] {
            check_layer_norm(rows, width, true, device);
        }
        check_layer_norm(4, 19, false, device);
    }),
    ("layer-norm-of-a-transposed-tensor", |device| {
        let norm = LayerNormConfig::new(4).init(device);
        let input = named_normal::<3>("turned", [2, 4, 3], device).swap_dims(1, 2);
        let copied = Tensor::<3>::from_data(input.to_data(), device);
        let want = f64s(layer_norm(&norm, EPSILON, copied));
        assert_near(layer_norm(&norm, EPSILON, input), &want);
    }),
    ("rms-norm", |device| {
        for [rows, width] in [[3, 5], [1, 128], [7, 1], [2, 37], [300, 130]] {
            check_rms_norm(rows, width, device);
        }
    }),
    // A size of 1, sequences shorter than the convolution, odd widths, and more positions than one
    // thread processes.
    ("causal-convolution", |device| {
        for (dims, size) in [
            ([2, 9, 5], 4),
            ([1, 2, 3], 4),
            ([3, 1, 1], 2),
            ([2, 6, 7], 1),
            ([2, 700, 33], 3),
        ] {
            check_convolution(dims, size, device);
        }
    }),
    ("causal-convolution-propagates-nan", |device| {
        let input = named_normal::<3>("nan", [1, 5, 2], device);
        let nan = Tensor::full([1, 1, 1], f32::NAN, device);
        let input = input.slice_assign([0..1, 1..2, 0..1], nan);
        let weight = named_normal::<2>("weight", [2, 2], device);
        let output = to_vec(causal_convolution(input, weight));
        let is_nan: Vec<bool> = output.iter().map(|x| x.is_nan()).collect();
        let expected = [
            [false; 2],
            [true, false],
            [true, false],
            [false; 2],
            [false; 2],
        ];
        assert_eq!(is_nan, expected.concat());
    }),
    ("cross-entropy", |device| {
        let cases = [([5, 7], 0.1), ([3, 33], 0.0), ([1, 16], 0.3), ([2, 1], 0.1)];
        for ([rows, classes], smoothing) in cases {
            check_loss(rows, classes, smoothing, |_| true, device);
        }
        // Padding rows.
        check_loss(6, 21, 0.1, |row| row % 3 == 1, device);
        // More rows than one thread processes.
        check_loss(160, 301, 0.1, |row| row != 7, device);
    }),
    ("cross-entropy-of-padding-only", |device| {
        let logits = named_normal::<2>("padding", [3, 4], device).require_grad();
        let targets = Tensor::<1, Int>::zeros([3], device);
        let loss = smoothed_cross_entropy(logits.clone(), targets, &[false; 3], 0.1);
        let gradients = loss.backward();
        assert_eq!(to_vec(loss), vec![0.0]);
        let got = logits.grad(&gradients).expect("no gradient");
        assert_eq!(to_vec(got), vec![0.0; 12]);
    }),
    ("cross-entropy-does-not-modify-logits", |device| {
        let logits = named_normal::<2>("looked-at", [3, 5], device).require_grad();
        let used = logits.clone() * 2.0;
        let before = to_vec(used.clone());
        let targets = ids(&[4, 0, 2], device);
        let loss = smoothed_cross_entropy(used.clone(), targets, &[true; 3], 0.1);
        loss.backward();
        assert_eq!(to_vec(used), before);
    }),
    ("cross-entropy-of-large-logits", |device| {
        // A sum of exponentials that would overflow, and one in which all but one underflow.
        let logits = [[300.0, -300.0, 299.0], [0.0, 1e4, -1e4]];
        let logits = Tensor::<2>::from_data(logits, device);
        let loss = smoothed_cross_entropy(logits, ids(&[0, 1], device), &[true; 2], 0.0);
        // ln(1 + 1/e) and 0.
        assert_near(loss, &[(1.0 + (-1.0f64).exp()).ln() / 2.0]);
    }),
    ("dropout", |device| {
        let module = DropoutConfig::new(0.3).init();
        let input = Tensor::<2>::ones([40, 1001], device);
        check_dropout(0.3, &to_vec(dropout(&module, input.clone())));
        let base = named_normal::<2>("base", [40, 1001], device);
        let sum = to_vec(add_dropout(&module, base.clone(), input.clone()));
        let difference: Vec<f32> = sum.iter().zip(to_vec(base)).map(|(s, b)| s - b).collect();
        check_dropout(0.3, &difference);
        check_dropout(0.3, &to_vec(relu_dropout(&module, input.clone())));
        let below = to_vec(relu_dropout(&module, -input));
        assert!(below.iter().all(|value| *value == 0.0));
    }),
    ("dropout-gradients", |device| {
        // The backward pass applies the same mask.
        let module = DropoutConfig::new(0.4).init();
        let output_grad = named_normal::<2>("upstream", [9, 333], device);
        let [input, base] = ["x", "z"].map(|name| named_normal::<2>(name, [9, 333], device));
        let (input, base) = (input.require_grad(), base.require_grad());
        let output = dropout(&module, input.clone());
        check_dropout_gradient(&input, &output, None, &output_grad);
        let output = relu_dropout(&module, input.clone());
        check_dropout_gradient(&input, &output, None, &output_grad);
        let output = add_dropout(&module, base.clone(), input.clone());
        check_dropout_gradient(&input, &output, Some(&base), &output_grad);
    }),
    ("dropout-in-inference", |device| {
        let module = DropoutConfig::new(0.5).init();
        let inner = device.clone().inner();
        for (module, device) in [
            (module.clone(), &inner),
            (module.freeze(), device),
            (DropoutConfig::new(0.0).init(), device),
        ] {
            check_no_dropout(&module, device);
        }
    }),
    ("dropout-depends-on-the-seed", |device| {
        let module = DropoutConfig::new(0.5).init();
        let output = |seed: u64| {
            device.seed(seed);
            to_vec(dropout(&module, Tensor::<2>::ones([8, 64], device)))
        };
        // Concurrent tests use the same generator and may interfere, but without seeding the same
        // 512 values would never occur twice.
        for _ in 0..50 {
            let (first, again, other) = (output(3), output(3), output(4));
            if first == again && first != other {
                return;
            }
        }
        panic!("the seed has no effect");
    }),
    ("adam-matches-burn", |device| {
        let own = |kind| AdamConfig::new(kind).with_beta_2(0.98).with_epsilon(1e-6);
        let decayed = |kind| own(kind).with_weight_decay(0.05).init();
        let adam = BurnAdam::new().with_beta_2(0.98).with_epsilon(1e-6);
        let decay = Some(WeightDecayConfig::new(0.05));
        let adamw = BurnAdamW::new().with_beta_2(0.98).with_epsilon(1e-6);
        check_same_steps(own(AdamKind::Adam).init(), adam.init(), device);
        let adam = adam.with_weight_decay(decay).init();
        check_same_steps(decayed(AdamKind::Adam), adam, device);
        let adamw = adamw.with_weight_decay(0.05).init();
        check_same_steps(decayed(AdamKind::Adamw), adamw, device);
    }),
    ("adam-continues-from-a-record", |device| {
        let step = |optimizer: &mut ModuleOptimizer, norm: LayerNorm| {
            let gradients = gradients(&norm, 3, device);
            optimizer.step(0.1, norm, gradients)
        };
        let config = AdamConfig::new(AdamKind::Adam);
        let mut first = config.init();
        let norm = step(&mut first, LayerNormConfig::new(5).init(device));
        let mut second = config.init().load_record(first.to_record());
        let want = to_vec(step(&mut first, norm.clone()).gamma.val());
        assert_eq!(to_vec(step(&mut second, norm).gamma.val()), want);
    }),
    ("adam-does-not-modify-shared-tensors", |device| {
        let norm = LayerNormConfig::new(6).init(device);
        let shared = norm.gamma.val();
        let mut optimizer = AdamConfig::new(AdamKind::Adam).init();
        let gradients = gradients(&norm, 1, device);
        optimizer.step(0.1, norm, gradients);
        assert_eq!(to_vec(shared), vec![1.0; 6]);
    }),
    ("invalid-inputs-are-rejected", |device| {
        let norm = LayerNormConfig::new(4).init(device);
        assert_panics_containing(
            || layer_norm(&norm, EPSILON, Tensor::<2>::zeros([2, 3], device)),
            "layer norm: the last dimension must be 4, got [2, 3]",
        );
        assert_panics_containing(
            || {
                rms_norm(
                    Tensor::ones([4], device),
                    EPSILON,
                    Tensor::<2>::zeros([2, 3], device),
                )
            },
            "RMS norm: the last dimension must be 4, got [2, 3]",
        );
        let call = |targets: &[i64], counts: &[bool], smoothing: f64| {
            let logits = Tensor::<2>::zeros([2, 3], device);
            smoothed_cross_entropy(logits, ids(targets, device), counts, smoothing);
        };
        assert_panics_containing(
            || call(&[0], &[true], 0.1),
            "cross-entropy: logits [rows = 2, classes = 3] do not match targets [1] and a mask of 1",
        );
        assert_panics_containing(
            || call(&[0, 1], &[true; 2], 1.0),
            "cross-entropy: smoothing must be at least 0 and below 1, got 1",
        );
        assert_panics_containing(
            || AdamConfig::new(AdamKind::Adam).with_beta_1(1.0).build(),
            "Adam: beta_1 must be at least 0 and below 1, got 1",
        );
    }),
];

fn ids(ids: &[i64], device: &Device) -> Tensor<1, Int> {
    tensor_of(ids.to_vec(), [ids.len()], device)
}

fn f64s<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    to_vec(tensor).into_iter().map(f64::from).collect()
}

fn assert_near<const D: usize>(got: Tensor<D>, want: &[f64]) {
    let tolerance = Precision::F32.backward(0.0);
    must(tolerance.check("result", &to_vec(got), want));
}

/// Gradient of a function by central differences.
fn numerical_gradient(x: &[f64], function: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    // Balances truncation and rounding errors.
    const STEP: f64 = 1e-5;
    let mut perturbed = x.to_vec();
    (0..x.len())
        .map(|i| {
            perturbed[i] = x[i] + STEP;
            let above = function(&perturbed);
            perturbed[i] = x[i] - STEP;
            let below = function(&perturbed);
            perturbed[i] = x[i];
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

const EPSILON: f64 = 1e-5;

/// Layer norm by its formula.
fn plain_norm(input: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let width = gamma.len();
    let row = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let root = (variance + EPSILON).sqrt();
        let element = |(i, x): (usize, &f64)| (x - mean) / root * gamma[i] + beta[i];
        row.iter().enumerate().map(element).collect::<Vec<f64>>()
    };
    input.chunks(width).flat_map(row).collect()
}

fn check_layer_norm(rows: usize, width: usize, bias: bool, device: &Device) {
    let mut norm = LayerNormConfig::new(width)
        .with_epsilon(EPSILON)
        .with_bias(bias)
        .init(device);
    let random = |name: &str| {
        Param::from_tensor(named_normal::<1>(name, [width], device)).set_require_grad(true)
    };
    norm.gamma = random("gamma");
    norm.beta = norm.beta.map(|_| random("beta"));
    let input = named_normal::<2>("norm", [rows, width], device).require_grad();
    let output_grad = named_normal::<2>("up", [rows, width], device);
    let output = layer_norm(&norm, EPSILON, input.clone());
    let gradients = (output.clone() * output_grad.clone()).sum().backward();

    let (x, up) = (f64s(input.clone()), f64s(output_grad));
    let gamma = f64s(norm.gamma.val());
    let beta = norm.beta.as_ref().map(|beta| f64s(beta.val()));
    let beta = beta.unwrap_or_else(|| vec![0.0; width]);
    assert_near(output, &plain_norm(&x, &gamma, &beta));
    let loss = |x: &[f64], gamma: &[f64], beta: &[f64], up: &[f64]| -> f64 {
        let output = plain_norm(x, gamma, beta);
        output.iter().zip(up).map(|(y, up)| y * up).sum()
    };
    // A row's gradient depends only on that row: a few rows are sufficient.
    let len = rows.min(4) * width;
    let want = numerical_gradient(&x[..len], |x| loss(x, &gamma, &beta, &up[..len]));
    let got = to_vec(input.grad(&gradients).expect("no gradient"));
    // The gradient of a row of one element is zero up to rounding.
    let tolerance = Precision::F32.backward(0.0);
    if width > 1 {
        must(tolerance.check("d_input", &got[..len], &want));
    } else {
        assert!(got.iter().all(|value| value.abs() < 1e-6));
    }
    // The loss is linear in these, so that the differences are exact.
    let want = numerical_gradient(&gamma, |gamma| loss(&x, gamma, &beta, &up));
    assert_near(norm.gamma.grad(&gradients).expect("no gradient"), &want);
    if let Some(own) = &norm.beta {
        let want = numerical_gradient(&beta, |beta| loss(&x, &gamma, beta, &up));
        assert_near(own.grad(&gradients).expect("no gradient"), &want);
    }
}

fn check_rms_norm(rows: usize, width: usize, device: &Device) {
    let gamma = named_normal::<1>("gamma", [width], device).require_grad();
    let input = named_normal::<2>("norm", [rows, width], device).require_grad();
    let output_grad = named_normal::<2>("up", [rows, width], device);
    let output = rms_norm(gamma.clone(), EPSILON, input.clone());
    let gradients = (output.clone() * output_grad.clone()).sum().backward();

    let (x, up, factors) = (f64s(input.clone()), f64s(output_grad), f64s(gamma.clone()));
    let plain = |x: &[f64], gamma: &[f64]| -> Vec<f64> {
        let row = |row: &[f64]| {
            let mean_square = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
            let root = (mean_square + EPSILON).sqrt();
            let elements = row.iter().zip(gamma);
            elements
                .map(|(x, gamma)| x / root * gamma)
                .collect::<Vec<f64>>()
        };
        x.chunks(width).flat_map(row).collect()
    };
    assert_near(output, &plain(&x, &factors));
    let loss = |x: &[f64], gamma: &[f64], up: &[f64]| -> f64 {
        let output = plain(x, gamma);
        output.iter().zip(up).map(|(y, up)| y * up).sum()
    };
    // A row's gradient depends only on that row: a few rows are sufficient.
    let len = rows.min(4) * width;
    let want = numerical_gradient(&x[..len], |x| loss(x, &factors, &up[..len]));
    let got = to_vec(input.grad(&gradients).expect("no gradient"));
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        let row = i / width * width..(i / width + 1) * width;
        let mean_square = x[row.clone()].iter().map(|x| x * x).sum::<f64>() / width as f64;
        let terms = up[row]
            .iter()
            .zip(&factors)
            .map(|(up, gamma)| (up * gamma).abs());
        // The two terms of a gradient may cancel: rows of one element have hardly any gradient.
        let largest = terms.fold(0.0, f64::max) / mean_square.sqrt();
        let allowed = 1e-5 * largest + 1e-9;
        let error = (f64::from(*got) - want).abs();
        assert!(
            error <= allowed,
            "[{rows}, {width}], {i}: {got}, expected {want}"
        );
    }
    let want = numerical_gradient(&factors, |gamma| loss(&x, gamma, &up));
    assert_near(gamma.grad(&gradients).expect("no gradient"), &want);
}

fn check_convolution([batch, seq, width]: [usize; 3], size: usize, device: &Device) {
    let weight = named_normal::<2>("weight", [size, width], device).require_grad();
    let input = named_normal::<3>("convolved", [batch, seq, width], device).require_grad();
    let output_grad = named_normal::<3>("up", [batch, seq, width], device);
    let output = causal_convolution(input.clone(), weight.clone());
    let gradients = (output.clone() * output_grad.clone()).sum().backward();

    let (x, up, w) = (f64s(input.clone()), f64s(output_grad), f64s(weight.clone()));
    let plain = |x: &[f64], w: &[f64]| -> Vec<f64> {
        let element = |i: usize| {
            let (row, column) = (i / width, i % width);
            let earlier = (0..size).take_while(|back| *back <= row % seq);
            let terms = earlier.map(|back| w[back * width + column] * x[i - back * width]);
            let z: f64 = terms.sum();
            z / (1.0 + (-z).exp())
        };
        (0..x.len()).map(element).collect()
    };
    assert_near(output, &plain(&x, &w));
    let loss = |x: &[f64], w: &[f64]| -> f64 {
        let output = plain(x, w);
        output.iter().zip(&up).map(|(y, up)| y * up).sum()
    };
    // Of a long sequence, the sums of some columns' gradients.
    let tolerance = Precision::F32.backward(0.0);
    let got = to_vec(input.grad(&gradients).expect("no gradient"));
    if x.len() < 1000 {
        let want = numerical_gradient(&x, |x| loss(x, &w));
        must(tolerance.check("d_input", &got, &want));
        let want = numerical_gradient(&w, |w| loss(&x, w));
        let got = to_vec(weight.grad(&gradients).expect("no gradient"));
        must(tolerance.check("d_weight", &got, &want));
        return;
    }
    let gradient = f64s(weight.grad(&gradients).expect("no gradient"));
    for index in [0, width - 1, size * width - 1] {
        let at = |step: f64| {
            let mut w = w.clone();
            w[index] += step;
            loss(&x, &w)
        };
        let want = (at(1e-4) - at(-1e-4)) / 2e-4;
        let error = (gradient[index] - want).abs();
        assert!(error <= 1e-4 * want.abs().max(1.0), "{index}: {want}");
    }
    for index in [
        0,
        5 * width,
        (seq - 1) * width + 1,
        seq * width,
        x.len() - 1,
    ] {
        let at = |step: f64| {
            let mut x = x.clone();
            x[index] += step;
            loss(&x, &w)
        };
        let want = (at(1e-4) - at(-1e-4)) / 2e-4;
        let error = (f64::from(got[index]) - want).abs();
        assert!(error <= 1e-4 * want.abs().max(1.0), "{index}: {want}");
    }
}

/// Smoothed cross-entropy by its formula.
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

fn check_loss(
    rows: usize,
    classes: usize,
    smoothing: f64,
    counts: fn(usize) -> bool,
    device: &Device,
) {
    let logits = named_normal::<2>("logits", [rows, classes], device).require_grad();
    let targets: Vec<i64> = (0..rows).map(|row| (row * 5 % classes) as i64).collect();
    let counts: Vec<bool> = (0..rows).map(counts).collect();
    // An intermediate tensor, as in a model.
    let intermediate = logits.clone() * 1.0;
    let loss = smoothed_cross_entropy(intermediate, ids(&targets, device), &counts, smoothing);
    let gradients = (loss.clone() * 3.0).backward();
    let x = f64s(logits.clone());
    let plain = |x: &[f64]| plain_loss(x, classes, &targets, &counts, smoothing);
    match classes {
        // The loss is zero up to rounding, so that there is no scale.
        1 => assert!(to_vec(loss)[0].abs() < 1e-6),
        _ => assert_near(loss, &[plain(&x)]),
    }
    let got = to_vec(logits.grad(&gradients).expect("no gradient"));
    // Differences of the first rows and the last, which may be padding.
    let ranges = [
        0..rows.min(3) * classes,
        (rows - 1) * classes..rows * classes,
    ];
    // Largest term of a gradient.
    let counted = counts.iter().filter(|counts| **counts).count();
    let term = 3.0 / counted as f64;
    for range in ranges {
        let want = numerical_gradient(&x[range.clone()], |values| {
            let mut all = x.clone();
            all[range.clone()].copy_from_slice(values);
            3.0 * plain(&all)
        });
        for (got, want) in got[range].iter().zip(want) {
            let error = (f64::from(*got) - want).abs();
            // Differences in f64 have an absolute error of about 1e-9 for a loss of a few nats.
            let allowed = 16.0 * f64::from(f32::EPSILON) * term + 1e-9;
            assert!(error <= allowed, "{got}, expected {want}, terms {term}");
        }
    }
}

/// Checks the dropped fraction of ones and the scale of the others.
fn check_dropout(prob: f64, values: &[f32]) {
    let scale = 1.0 / (1.0 - prob);
    let is_scaled = |x: &f32| (f64::from(*x) - scale).abs() < 1e-5;
    assert!(values.iter().all(|x| x.abs() < 1e-5 || is_scaled(x)));
    let count = values.len() as f64;
    let got = 1.0 - values.iter().filter(|x| is_scaled(x)).count() as f64 / count;
    // Five standard errors.
    let noise = 5.0 * (prob * (1.0 - prob) / count).sqrt();
    assert!((got - prob).abs() < noise, "{got} dropped, expected {prob}");
}

/// Checks that gradients have the factors of the output.
fn check_dropout_gradient(
    input: &Tensor<2>,
    output: &Tensor<2>,
    base: Option<&Tensor<2>>,
    output_grad: &Tensor<2>,
) {
    let gradients = (output.clone() * output_grad.clone()).sum().backward();
    let got = to_vec(input.grad(&gradients).expect("no gradient"));
    let [x, y, up] = [input, output, output_grad].map(|tensor| f64s(tensor.clone()));
    let mut z = vec![0.0; x.len()];
    if let Some(base) = base {
        assert_near(base.grad(&gradients).expect("no gradient"), &up);
        z = f64s(base.clone());
    }
    for i in 0..x.len() {
        // The factor of the output, up to the rounding error of the sum.
        let factor = (y[i] - z[i]) / x[i];
        let noise = 1e-6 * z[i].abs() / x[i].abs();
        let (got, want) = (f64::from(got[i]), factor * up[i]);
        let is_near = (got - want).abs() <= (noise + 1e-6) * (1.0 + up[i].abs());
        assert!(is_near, "{got}, expected {want}");
    }
}

fn check_no_dropout(module: &Dropout, device: &Device) {
    let input = named_normal::<2>("rest", [3, 7], device);
    let want = to_vec(input.clone());
    assert_eq!(to_vec(dropout(module, input.clone())), want);
    let base = Tensor::zeros([3, 7], device);
    assert_eq!(to_vec(add_dropout(module, base, input.clone())), want);
    let want: Vec<f32> = want.into_iter().map(|x| x.max(0.0)).collect();
    assert_eq!(to_vec(relu_dropout(module, input)), want);
}

/// Random gradients of a norm's parameters that differ between steps.
fn gradients(norm: &LayerNorm, step: usize, device: &Device) -> GradientsParams {
    let [width] = norm.gamma.dims();
    let slope = named_normal::<1>(&format!("slope-{step}"), [width], device);
    let mut loss = norm.gamma.val() * slope.clone();
    if let Some(beta) = &norm.beta {
        loss = loss + beta.val() * slope * 0.5;
    }
    GradientsParams::from_grads(loss.sum().backward(), norm)
}

fn check_same_steps(mut own: ModuleOptimizer, mut burns: ModuleOptimizer, device: &Device) {
    // More elements than one thread processes.
    let width = 40_001;
    let norm: LayerNorm = LayerNormConfig::new(width).init(device);
    let (mut got, mut want) = (norm.clone(), norm);
    for step in 0..5 {
        let [by_own, by_burns] = [&got, &want].map(|norm| gradients(norm, step, device));
        got = own.step(0.01, got, by_own);
        want = burns.step(0.01, want, by_burns);
        assert_near(got.gamma.val(), &f64s(want.gamma.val()));
        if let (Some(got), Some(want)) = (&got.beta, &want.beta) {
            // They start at zero, and Burn computes 1 - beta in f32, with a relative error of 1e-5.
            let (got, want) = (to_vec(got.val()), f64s(want.val()));
            let error = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs();
            let worst = got.iter().zip(&want).map(error).fold(0.0, f64::max);
            assert!(worst < 1e-5 * 0.01 * 5.0);
        }
    }
}
