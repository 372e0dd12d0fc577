//! Tests of the bindings: results and error messages.

use std::cell::Cell;

use super::*;

#[test]
fn from_vec_takes_ownership_without_a_copy() {
    let elements: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let pointer = elements.as_ptr();
    let tensor = from_vec(elements, &[2, 3, 4]).expect("a tensor");
    assert!(tensor.data_ptr().cast_const().cast() == pointer);
    assert_eq!(tensor.size(), [2, 3, 4]);
    // A view keeps the memory alive.
    let view = tensor.select(0, 1).select(0, 2);
    drop(tensor);
    assert_eq!(view, Tensor::from_slice(&[20.0f32, 21.0, 22.0, 23.0]));
    let empty = from_vec::<f32>(vec![], &[0, 4]).expect("an empty tensor");
    assert_eq!(empty.size(), [0, 4]);
}

#[test]
#[should_panic(expected = "a tensor of shape [2, 3] cannot have 5 elements")]
fn from_vec_rejects_a_wrong_number_of_elements() {
    let _ = from_vec(vec![0.0_f32; 5], &[2, 3]);
}

const ADAM: AdamOptions = AdamOptions {
    is_adamw: false,
    lr: 0.01,
    betas: [0.9, 0.98],
    weight_decay: 0.0,
    epsilon: 1e-9,
};

#[test]
fn adam_step_matches_the_formula() {
    let tensor = |elements: [f32; 3]| Tensor::from_slice(&elements);
    for (is_adamw, weight_decay) in [(false, 0.0), (false, 0.1), (true, 0.1)] {
        let x = [1.0, -2.0, 0.5];
        let g = [0.3, 0.1, -0.7];
        let m = [0.2, 0.0, -0.1];
        let v = [0.04, 0.01, 0.3];
        let (mut parameter, mut first, mut second) = (tensor(x), tensor(m), tensor(v));
        let options = AdamOptions {
            is_adamw,
            weight_decay,
            ..ADAM
        };
        let (moments, step) = ([&mut first, &mut second], step_tensor(Device::Cpu, 3));
        adam_step(&mut parameter, &tensor(g), moments, &step, options).expect("a step on the CPU");
        for i in 0..3 {
            let (mut x, mut g) = (f64::from(x[i]), f64::from(g[i]));
            if is_adamw {
                x -= 0.01 * weight_decay * x;
            } else {
                g += weight_decay * x;
            }
            let m = 0.9 * f64::from(m[i]) + 0.1 * g;
            let v = 0.98 * f64::from(v[i]) + 0.02 * g * g;
            let bias_correction = |beta: f64| 1.0 - beta.powi(3);
            x -= 0.01 * (m / bias_correction(0.9)) / ((v / bias_correction(0.98)).sqrt() + 1e-9);
            let got = |tensor: &Tensor| tensor.double_value(&[i as i64]);
            for (got, expected) in [(got(&parameter), x), (got(&first), m), (got(&second), v)] {
                assert!((got - expected).abs() < 1e-6, "{got} instead of {expected}");
            }
        }
    }
}

#[test]
fn layer_norm_backward_matches_autograd() {
    tch::manual_seed(3);
    let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
    let (input, output_grad) = (random(&[2, 3, 5]), random(&[2, 3, 5]));
    let (gamma, beta) = (random(&[5]), random(&[5]));
    let (_, mean, rstd) = input.native_layer_norm([5], Some(&gamma), Some(&beta), 1e-5);
    let got = layer_norm_backward([&output_grad, &input, &gamma], [&mean, &rstd])
        .expect("a layer norm on the CPU");
    let leaves = [&input, &gamma, &beta].map(|tensor| tensor.copy().set_requires_grad(true));
    let [input, gamma, beta] = &leaves;
    let output = input.layer_norm([5], Some(gamma), Some(beta), 1e-5, false);
    (output * output_grad).sum(Kind::Float).backward();
    for (got, leaf) in got.iter().zip(&leaves) {
        let error = (got - leaf.grad()).abs().max().double_value(&[]);
        assert!(error < 1e-5, "{error}");
    }
}

#[test]
fn flash_attention_on_the_cpu_is_an_error() {
    let tensor = ones(&[1, 4, 2, 8]);
    let error = flash_attention([&tensor, &tensor, &tensor], false, 1.0, None);
    let message = error.expect_err("there is no CPU kernel").to_string();
    let prefix = "LibTorch's flash attention failed: ";
    assert!(message.starts_with(prefix), "{message}");
    assert!(message.contains("CPU"), "{message}");
}

fn ones(size: &[i64]) -> Tensor {
    Tensor::ones(size, (Kind::Float, Device::Cpu))
}

/// LibTorch's CPU kernel assumes that all tensors have the parameter's size.
#[test]
fn adam_step_rejects_mismatched_tensors() {
    // Replaces one of the parameter, its gradient, both moments and the step.
    let rejected = |index: usize, other: Tensor, expected: &str| {
        let mut tensors: [Tensor; 5] = std::array::from_fn(|_| ones(&[2, 3]));
        tensors[4] = step_tensor(Device::Cpu, 1);
        tensors[index] = other;
        let [parameter, gradient, first, second, step] = &mut tensors;
        let error = adam_step(parameter, gradient, [first, second], step, ADAM)
            .expect_err("a step with mismatched tensors");
        let expected = format!("LibTorch's Adam failed: {expected}");
        assert_eq!(error.to_string(), expected);
    };
    let like = "must be contiguous and like the parameter, Strided Float [2, 3] on cpu, got";
    for (index, name) in [(1, "gradient"), (2, "first moment"), (3, "second moment")] {
        let table = ones(&[2, 3]);
        let transposed = ones(&[3, 2]).transpose(0, 1);
        for (other, got) in [
            (ones(&[2, 2]), "Strided Float [2, 2] on cpu"),
            (table.to_kind(Kind::Double), "Strided Double [2, 3] on cpu"),
            (transposed, "non-contiguous Strided Float [2, 3] on cpu"),
            (meta(&[2, 3]), "Strided Float [2, 3] on meta"),
            (table.to_sparse_sparse_dim(2), "Sparse Float [2, 3] on cpu"),
            (Tensor::new(), "an undefined tensor"),
        ] {
            rejected(index, other, &format!("the {name} {like} {got}"));
        }
    }
    rejected(
        0,
        ones(&[2, 1]).expand([2, 3], false),
        "the parameter must be contiguous and of a floating-point dtype, got non-contiguous \
         Strided Float [2, 3] on cpu",
    );
    let expected = "step must be one Float on cpu, got Strided Float [0] on cpu";
    rejected(4, ones(&[0]), expected);
}

#[test]
fn layer_norm_backward_rejects_mismatched_tensors() {
    // Replaces one of the output gradient, the input, gamma, mean and rstd.
    let rejected = |index: usize, other: Tensor, expected: &str, got: &str| {
        let [table, row] = [ones(&[4, 5]), ones(&[4, 1])];
        let mut tensors = [&table, &table, &ones(&[5]), &row, &row];
        tensors[index] = &other;
        let [output_grad, input, gamma, mean, rstd] = tensors;
        let error = layer_norm_backward([output_grad, input, gamma], [mean, rstd])
            .expect_err("a layer norm of mismatched tensors");
        let expected = format!(
            "LibTorch's layer norm backward failed: {expected} input, Strided Float [4, 5] on \
             cpu, got {got}"
        );
        assert_eq!(error.to_string(), expected);
    };
    let like = "the output gradient must be like";
    rejected(0, ones(&[1, 5]), like, "Strided Float [1, 5] on cpu");
    rejected(0, meta(&[4, 5]), like, "Strided Float [4, 5] on meta");
    let last = "gamma must be the last dimensions of";
    rejected(2, ones(&[7]), last, "Strided Float [7] on cpu");
    for (index, name) in [(3, "mean"), (4, "rstd")] {
        let expected = format!("{name} must be one value for each of the 4 rows of");
        let (one, integers) = (ones(&[1, 1]), ones(&[4, 1]).to_kind(Kind::Int64));
        rejected(index, one, &expected, "Strided Float [1, 1] on cpu");
        rejected(index, integers, &expected, "Strided Long [4, 1] on cpu");
    }
}

#[test]
fn attention_rejects_mismatched_tensors() {
    let query = ones(&[2, 5, 4, 8]);
    let described = "Strided Float [2, 5, 4, 8] on cpu";
    let unmasked = EfficientOptions {
        mask: Mask::None,
        bias: None,
        scale: 1.0,
        dropout: None,
    };
    let key = "key must be of the batch, width, dtype and device of query,";
    for (other, got) in [
        (ones(&[1, 5, 4, 8]), "Strided Float [1, 5, 4, 8] on cpu"),
        (ones(&[2, 5, 4, 7]), "Strided Float [2, 5, 4, 7] on cpu"),
        (meta(&[2, 5, 4, 8]), "Strided Float [2, 5, 4, 8] on meta"),
    ] {
        let expected = format!("failed: {key} {described}, got {got}");
        let errors = [
            flash_attention([&query, &other, &query], false, 1.0, None).err(),
            cudnn_attention([&query, &other, &query], false, 1.0).err(),
            efficient_attention([&query, &other, &query], &unmasked).err(),
        ];
        for error in errors {
            let error = error.expect("a mismatched key").to_string();
            assert!(error.ends_with(&expected), "{error}");
        }
    }
    let bias = ones(&[2, 4, 5, 4]);
    let options = EfficientOptions {
        bias: Some(&bias),
        ..unmasked
    };
    let error = efficient_attention([&query, &query, &query], &options)
        .expect_err("a mismatched bias")
        .to_string();
    let expected = "failed: bias must be of the dtype and device of query and [2, 4, 5, 5], got \
                    Strided Float [2, 4, 5, 4] on cpu";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn slices_need_f32_in_host_memory() {
    // SAFETY: nothing else uses these tensors.
    let slice =
        |tensor: &Tensor| unsafe { host_slice::<f32>(tensor) }.map(|slice| slice.into_owned());
    let prefix = "LibTorch's access to host memory failed: the tensor must be Strided Float on \
                  cpu, got";
    let row = ones(&[3]);
    for (tensor, got) in [
        (meta(&[3]), "Strided Float [3] on meta"),
        (row.to_kind(Kind::Half), "Strided Half [3] on cpu"),
        (row.to_sparse_sparse_dim(1), "Sparse Float [3] on cpu"),
    ] {
        let error = slice(&tensor).expect_err("an unsupported tensor");
        assert_eq!(error.to_string(), format!("{prefix} {got}"));
    }
    assert_eq!(slice(&ones(&[0, 4])), Ok(vec![]));

    let mut table = Tensor::from_slice(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).reshape([2, 3]);
    assert_eq!(
        slice(&table.transpose(0, 1)),
        Ok(vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    );
    // SAFETY: as above.
    let strided = unsafe { host_strided::<2, f32>(&table) }.map(|found| found.map(|found| found.1));
    assert_eq!(strided, Ok(Some([3, 1])));
    let column = table.narrow(1, 1, 1);
    // SAFETY: as above.
    let strided = unsafe { host_strided::<2, f32>(&column) };
    assert_eq!(strided, Ok(Some(([1.0, 2.0, 3.0, 4.0].as_slice(), [3, 1]))));
    // SAFETY: as above.
    unsafe { host_slice_mut(&mut table) }.expect("contiguous")[4] = 9.0;
    assert_eq!(table.double_value(&[1, 1]), 9.0);
    let mut transposed = table.transpose(0, 1);
    // SAFETY: as above.
    let error = unsafe { host_slice_mut(&mut transposed) }.map(|_| ());
    let error = error.expect_err("not contiguous").to_string();
    assert!(error.ends_with("got [3, 2] with strides [1, 3]"), "{error}");
}

thread_local! {
    static STRDUP_FAILS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn strlen(text: *const c_char) -> usize;
}

/// Overrides libc's function in this program, so that it can fail.
///
/// # Safety
///
/// `text` is a zero-terminated string.
#[unsafe(no_mangle)]
unsafe extern "C" fn strdup(text: *const c_char) -> *mut c_char {
    if STRDUP_FAILS.get() {
        return ptr::null_mut();
    }
    // SAFETY: as promised by the caller.
    let size = unsafe { strlen(text) } + 1;
    // SAFETY: any size.
    let copy = unsafe { malloc(size) }.cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: both have `size` bytes.
        unsafe { ptr::copy_nonoverlapping(text, copy, size) };
    }
    copy
}

/// Regression test: a null message was once taken for success, and tensors for initialised.
#[test]
fn failing_to_copy_a_message_is_an_error() {
    let tensor = ones(&[1, 4, 2, 8]);
    for _ in 0..2 {
        STRDUP_FAILS.set(true);
        let result = flash_attention([&tensor, &tensor, &tensor], false, 1.0, None);
        STRDUP_FAILS.set(false);
        assert_eq!(
            result.expect_err("there is no CPU kernel").to_string(),
            "LibTorch's flash attention failed: out of memory while copying the error message"
        );
    }
}
