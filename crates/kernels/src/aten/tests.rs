//! That the bindings do what LibTorch does.

use std::cell::Cell;

use super::*;

#[test]
fn numbers_are_taken_over_and_kept_for_as_long_as_anybody_looks() {
    let numbers: Vec<f32> = (0..24).map(|at| at as f32).collect();
    let place = numbers.as_ptr();
    let tensor = of_numbers(numbers, &[2, 3, 4]).expect("a tensor");
    assert!(tensor.data_ptr().cast_const().cast() == place);
    assert_eq!(tensor.size(), [2, 3, 4]);
    // A part of it, which outlives it.
    let part = tensor.select(0, 1).select(0, 2);
    drop(tensor);
    assert_eq!(part, Tensor::from_slice(&[20.0f32, 21.0, 22.0, 23.0]));
    let nothing = of_numbers(vec![], &[0, 4]).expect("a tensor without numbers");
    assert_eq!(nothing.size(), [0, 4]);
}

#[test]
#[should_panic(expected = "a tensor of [2, 3] cannot have 5 numbers")]
fn dimensions_and_numbers_must_agree() {
    let _ = of_numbers(vec![0.0; 5], &[2, 3]);
}

/// The step is LibTorch's on any device: here it is shown against the formula.
#[test]
fn a_step_is_adams() {
    let numbers = |numbers: [f32; 3]| Tensor::from_slice(&numbers);
    for (is_adamw, decay) in [(false, 0.0), (false, 0.1), (true, 0.1)] {
        let x = [1.0, -2.0, 0.5];
        let g = [0.3, 0.1, -0.7];
        let m = [0.2, 0.0, -0.1];
        let v = [0.04, 0.01, 0.3];
        let (mut parameter, mut first, mut second) = (numbers(x), numbers(m), numbers(v));
        let adam = Adam {
            is_adamw,
            rate: 0.01,
            betas: [0.9, 0.98],
            decay,
            epsilon: 1e-9,
        };
        let time = time_on(Device::Cpu, 3);
        adam_step(
            &mut parameter,
            &numbers(g),
            [&mut first, &mut second],
            &time,
            adam,
        )
        .expect("a step on the host");
        for at in 0..3 {
            let (mut x, mut g) = (f64::from(x[at]), f64::from(g[at]));
            if is_adamw {
                x -= 0.01 * decay * x;
            } else {
                g += decay * x;
            }
            let m = 0.9 * f64::from(m[at]) + 0.1 * g;
            let v = 0.98 * f64::from(v[at]) + 0.02 * g * g;
            let grown = |beta: f64| 1.0 - beta.powi(3);
            x -= 0.01 * (m / grown(0.9)) / ((v / grown(0.98)).sqrt() + 1e-9);
            let got = |tensor: &Tensor| tensor.double_value(&[at as i64]);
            for (got, expected) in [(got(&parameter), x), (got(&first), m), (got(&second), v)] {
                assert!((got - expected).abs() < 1e-6, "{got} is not {expected}");
            }
        }
    }
}

/// Against LibTorch's own autodiff.
#[test]
fn a_norm_goes_back_as_it_came() {
    tch::manual_seed(3);
    let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
    let (input, arrived) = (random(&[2, 3, 5]), random(&[2, 3, 5]));
    let (gamma, beta) = (random(&[5]), random(&[5]));
    let (_, mean, factor) = input.native_layer_norm([5], Some(&gamma), Some(&beta), 1e-5);
    let got = layer_norm_backward([&arrived, &input, &gamma], [&mean, &factor])
        .expect("a norm on the host");
    let leaves = [&input, &gamma, &beta].map(|tensor| tensor.copy().set_requires_grad(true));
    let [input, gamma, beta] = &leaves;
    let output = input.layer_norm([5], Some(gamma), Some(beta), 1e-5, false);
    (output * arrived).sum(Kind::Float).backward();
    for (got, leaf) in got.iter().zip(&leaves) {
        let off = (got - leaf.grad()).abs().max().double_value(&[]);
        assert!(off < 1e-5, "{off}");
    }
}

#[test]
fn what_cannot_be_computed_is_said() {
    let tensor = Tensor::zeros([1, 4, 2, 8], (Kind::Float, Device::Cpu));
    let error = flash_attention([&tensor, &tensor, &tensor], false, 1.0, None)
        .expect_err("there is none for the host");
    let said = error.to_string();
    assert!(
        said.starts_with("LibTorch's flash attention failed: "),
        "{said}"
    );
    assert!(said.contains("CPU"), "{said}");
}

fn ones(size: &[i64]) -> Tensor {
    Tensor::ones(size, (Kind::Float, Device::Cpu))
}

/// LibTorch's kernel for the CPU takes the size of the parameter for that of all.
#[test]
fn a_step_with_tensors_that_do_not_fit_is_refused() {
    let adam = Adam {
        is_adamw: false,
        rate: 0.1,
        betas: [0.9, 0.999],
        decay: 0.0,
        epsilon: 1e-8,
    };
    // Number `at` of the parameter, its gradient, both moments and the time is another.
    let refused = |at: usize, other: Tensor, expected: &str| {
        let mut tensors: [Tensor; 5] = std::array::from_fn(|_| ones(&[2, 3]));
        tensors[4] = time_on(Device::Cpu, 1);
        tensors[at] = other;
        let [parameter, gradient, first, second, time] = &mut tensors;
        let error = adam_step(parameter, gradient, [first, second], time, adam)
            .expect_err("a step with tensors that do not fit");
        assert_eq!(
            error.to_string(),
            format!("LibTorch's Adam failed: {expected}")
        );
    };
    let like = "must be contiguous and like the parameter, Strided Float [2, 3] on cpu, got";
    for (at, name) in [
        (1, "the gradient"),
        (2, "the first moment"),
        (3, "the second moment"),
    ] {
        let table = ones(&[2, 3]);
        for (other, got) in [
            (ones(&[2, 2]), "Strided Float [2, 2] on cpu"),
            (table.to_kind(Kind::Double), "Strided Double [2, 3] on cpu"),
            (
                ones(&[3, 2]).transpose(0, 1),
                "non-contiguous Strided Float [2, 3] on cpu",
            ),
            (meta(&[2, 3]), "Strided Float [2, 3] on meta"),
            (table.to_sparse_sparse_dim(2), "Sparse Float [2, 3] on cpu"),
            (Tensor::new(), "an undefined tensor"),
        ] {
            refused(at, other, &format!("{name} {like} {got}"));
        }
    }
    refused(
        0,
        ones(&[2, 1]).expand([2, 3], false),
        "the parameter must be contiguous and of a floating-point dtype, got non-contiguous \
         Strided Float [2, 3] on cpu",
    );
    refused(
        4,
        ones(&[0]),
        "time must be one Float on cpu, got Strided Float [0] on cpu",
    );
}

#[test]
fn a_norm_of_tensors_that_do_not_fit_is_refused() {
    // Number `at` of the upstream gradient, the input, gamma, the means and the factors is another.
    let refused = |at: usize, other: Tensor, expected: &str, got: &str| {
        let [table, row] = [ones(&[4, 5]), ones(&[4, 1])];
        let mut tensors = [&table, &table, &ones(&[5]), &row, &row];
        tensors[at] = &other;
        let [arrived, input, gamma, mean, factor] = tensors;
        let error = layer_norm_backward([arrived, input, gamma], [mean, factor])
            .expect_err("a norm of tensors that do not fit");
        let expected = format!(
            "LibTorch's layer norm, backward, failed: {expected} input, Strided Float [4, 5] on \
             cpu, got {got}"
        );
        assert_eq!(error.to_string(), expected);
    };
    let like = "the upstream gradient must be like";
    refused(0, ones(&[1, 5]), like, "Strided Float [1, 5] on cpu");
    refused(0, meta(&[4, 5]), like, "Strided Float [4, 5] on meta");
    let last = "gamma must be the last dimensions of";
    refused(2, ones(&[7]), last, "Strided Float [7] on cpu");
    for (at, name) in [(3, "mean"), (4, "factor")] {
        let expected = format!("{name} must be one number for each of the 4 rows of");
        let whole = ones(&[4, 1]).to_kind(Kind::Int64);
        refused(at, ones(&[1, 1]), &expected, "Strided Float [1, 1] on cpu");
        refused(at, whole, &expected, "Strided Long [4, 1] on cpu");
    }
}

#[test]
fn attention_of_tensors_that_do_not_fit_is_refused() {
    let query = ones(&[2, 5, 4, 8]);
    let described = "Strided Float [2, 5, 4, 8] on cpu";
    let full = Efficient {
        mask: Mask::Nothing,
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
            efficient_attention([&query, &other, &query], &full).err(),
        ];
        for error in errors {
            let error = error.expect("a key that does not fit").to_string();
            assert!(error.ends_with(&expected), "{error}");
        }
    }
    let bias = ones(&[2, 4, 5, 4]);
    let told = Efficient {
        bias: Some(&bias),
        ..full
    };
    let error = efficient_attention([&query, &query, &query], &told)
        .expect_err("a bias that does not fit")
        .to_string();
    let expected = "failed: bias must be of the dtype and device of query and [2, 4, 5, 5], got \
                    Strided Float [2, 4, 5, 4] on cpu";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn slices_are_of_f32_in_the_hosts_memory_alone() {
    // SAFETY: nothing else uses these tensors.
    let slice = |tensor: &Tensor| unsafe { host_slice(tensor) }.map(|slice| slice.into_owned());
    let error = |tensor: &Tensor| slice(tensor).expect_err("no memory to look at").to_string();
    let prefix = "LibTorch's access to host memory failed: the tensor must be Strided Float on \
                  cpu, got";
    assert_eq!(
        error(&meta(&[3])),
        format!("{prefix} Strided Float [3] on meta")
    );
    let half = ones(&[3]).to_kind(Kind::Half);
    assert_eq!(error(&half), format!("{prefix} Strided Half [3] on cpu"));
    let sparse = ones(&[3]).to_sparse_sparse_dim(1);
    assert_eq!(error(&sparse), format!("{prefix} Sparse Float [3] on cpu"));
    assert_eq!(slice(&ones(&[0, 4])), Ok(vec![]));

    let mut table = Tensor::from_slice(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).reshape([2, 3]);
    assert_eq!(
        slice(&table.transpose(0, 1)),
        Ok(vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    );
    // SAFETY: as above.
    let strided = unsafe { host_strided::<2>(&table) }.map(|found| found.map(|found| found.1));
    assert_eq!(strided, Ok(Some([3, 1])));
    let column = table.narrow(1, 1, 1);
    // SAFETY: as above.
    let strided = unsafe { host_strided::<2>(&column) };
    assert_eq!(strided, Ok(Some(([1.0, 2.0, 3.0, 4.0].as_slice(), [3, 1]))));
    // SAFETY: as above.
    unsafe { host_slice_mut(&mut table) }.expect("contiguous")[4] = 9.0;
    assert_eq!(table.double_value(&[1, 1]), 9.0);
    let mut turned = table.transpose(0, 1);
    // SAFETY: as above.
    let refused = unsafe { host_slice_mut(&mut turned) }.map(|_| ());
    let refused = refused.expect_err("not contiguous").to_string();
    assert!(
        refused.ends_with("got [3, 2] with strides [1, 3]"),
        "{refused}"
    );
}

thread_local! {
    static HAS_NO_MEMORY: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn strlen(text: *const c_char) -> usize;
}

/// Takes the place of libc's in this program, so that it can fail.
///
/// # Safety
///
/// As libc's: a string that ends with zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn strdup(text: *const c_char) -> *mut c_char {
    if HAS_NO_MEMORY.get() {
        return ptr::null_mut();
    }
    // SAFETY: of the caller.
    let size = unsafe { strlen(text) } + 1;
    // SAFETY: any size.
    let copy = unsafe { malloc(size) }.cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: so many bytes on either side.
        unsafe { ptr::copy_nonoverlapping(text, copy, size) };
    }
    copy
}

/// A null pointer in place of its message once meant success, and tensors that were not there.
#[test]
fn an_error_without_memory_for_its_message_is_an_error() {
    let tensor = ones(&[1, 4, 2, 8]);
    for _ in 0..2 {
        HAS_NO_MEMORY.set(true);
        let result = flash_attention([&tensor, &tensor, &tensor], false, 1.0, None);
        HAS_NO_MEMORY.set(false);
        assert_eq!(
            result
                .map(|_| ())
                .expect_err("there is none for the host")
                .to_string(),
            "LibTorch's flash attention failed: an error whose message did not fit into memory"
        );
    }
}
