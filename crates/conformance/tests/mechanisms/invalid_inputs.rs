//! Invalid calls and their error messages.

use libtest_mimic::Trial;
use zoo_attention::Dropout;
use zoo_backend::{Dtype, open};

use crate::prelude::*;

type Check = fn(Mechanism, &Device);

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite, device: &Device) {
    let tests: [(&str, Check); 3] = [
        ("shapes", check_shapes),
        ("patterns", check_patterns),
        ("options", check_options),
    ];
    let prefix = format!("{mechanism}/invalid/");
    suite.add_cases(&prefix, tests, move |test, device| test(mechanism, device));
    suite.trials.push(two_devices(mechanism, device));
}

/// Tensors of two devices in one call. The trial is ignored if only one device is available.
fn two_devices(mechanism: Mechanism, device: &Device) -> Trial {
    let open = |name: &str| open(name.parse().ok()?, Dtype::F32).ok();
    let opened = ["flex", "ndarray"].into_iter().filter_map(open);
    let other = (opened.map(|opened| opened.device)).find(|other| other != device);
    let is_ignored = other.is_none();
    let here = device.clone();
    let run = move || {
        let other = other.expect("another device");
        let bias = Tensor::zeros([1, 1, 5, 5], &other);
        let dense = Pattern::Dense(bias.clone().greater_elem(0.0));
        let padded = Tensor::<2, Bool>::from_data([[false; 5]; 2], &other);
        let padded = Pattern::KeyPadding(padded);
        let with = |pattern: Pattern| AttentionOptions::new().with_pattern(pattern);
        let full = AttentionOptions::new;
        for (name, devices, options) in [
            ("key", [&here, &other, &here], full()),
            ("value", [&here, &here, &other], full()),
            ("a bias", [&here; 3], full().with_bias(bias)),
            ("a dense mask", [&here; 3], with(dense)),
            ("a key padding mask", [&here; 3], with(padded)),
        ] {
            let zeros = |device| Tensor::<4>::zeros([2, 4, 5, 8], device);
            let message = format!("{name} must be on the device of query, {here:?}, got {other:?}");
            assert_rejected(mechanism, devices.map(zeros), &options, &message);
        }
        Ok(())
    };
    let name = format!("{mechanism}/invalid/tensors-on-two-devices");
    Trial::test(name, run).with_ignored_flag(is_ignored)
}

/// Checks that a call is rejected with this message after the mechanism's name.
fn assert_rejected(
    mechanism: Mechanism,
    [query, key, value]: [Tensor<4>; 3],
    options: &AttentionOptions,
    message: &str,
) {
    let message = format!("{mechanism} attention: {message}");
    assert_panics_with(|| attend(mechanism, query, key, value, options), &message);
}

fn check_shapes(mechanism: Mechanism, device: &Device) {
    let reject = |shapes: [[usize; 4]; 3], message: &str| {
        let tensors = shapes.map(|shape| Tensor::zeros(shape, device));
        assert_rejected(mechanism, tensors, &AttentionOptions::new(), message);
    };
    let message = "key must be [batch = 2, kv_heads, seq_k, d_head = 8] to fit query [2, 4, 3, 8], \
                   got [2, 4, 5, 6]";
    reject([[2, 4, 3, 8], [2, 4, 5, 6], [2, 4, 5, 8]], message);
    let message = "value must be [batch = 2, kv_heads = 4, seq_k = 5, d_value] to fit key \
                   [2, 4, 5, 8], got [2, 4, 6, 8]";
    reject([[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 6, 8]], message);
    let message = "the number of query heads must be a multiple of the number of key and value \
                   heads, got 4 and 3";
    reject([[1, 4, 3, 8], [1, 3, 5, 8], [1, 3, 5, 8]], message);
    let message = "no dimension may be zero, got query [2, 4, 0, 8], key [2, 4, 5, 8], value \
                   [2, 4, 5, 8]";
    reject([[2, 4, 0, 8], [2, 4, 5, 8], [2, 4, 5, 8]], message);
}

/// Query, key and value of 2 examples with 4 heads, 3 queries and 5 keys.
fn valid_tensors(device: &Device) -> [Tensor<4>; 3] {
    [3, 5, 5].map(|seq| Tensor::zeros([2, 4, seq, 8], device))
}

fn check_patterns(mechanism: Mechanism, device: &Device) {
    let reject = |pattern: Pattern, message: &str| {
        let options = AttentionOptions::new().with_pattern(pattern);
        assert_rejected(mechanism, valid_tensors(device), &options, message);
    };
    let message = "expected 2 key lengths (the batch size), got 1";
    reject(Pattern::key_lengths([5]), message);
    let message = "a key length must be at most seq_k = 5, got 6";
    reject(Pattern::key_lengths([5, 6]), message);
    let message = "a key padding mask must be [batch = 2, seq_k = 5], got [1, 2]";
    let mask = Tensor::from_data([[false, true]], device);
    reject(Pattern::KeyPadding(mask), message);
    let message = "a dense mask must be broadcastable to [batch = 2, heads = 4, seq_q = 3, \
                   seq_k = 5], got [1, 1, 1, 2]";
    let mask = Tensor::from_data([[[[false, true]]]], device);
    reject(Pattern::Dense(mask), message);
    let message = "a block size must be at least 1, got 0";
    reject(Pattern::Block { size: 0 }, message);
    let message = "the visible blocks must be given for each of the 3 blocks of size 2 of \
                   seq_k = 5, got 1";
    let (size, visible) = (2, vec![vec![0]]);
    reject(Pattern::Blocks { size, visible }, message);
    let message = "a block index must be below 2, got 2";
    let (size, visible) = (3, vec![vec![0], vec![2]]);
    reject(Pattern::Blocks { size, visible }, message);
    let message = "a stride must be at least 1, got 0";
    reject(Pattern::Strided { stride: 0 }, message);
    let message = "a global position must be below seq_k = 5, got 5";
    reject(Pattern::Global(vec![1, 5]), message);
    let message = "expected document ids for 2 examples (the batch size), got 1";
    reject(Pattern::documents([[0; 5]]), message);
    let message = "expected 5 document ids per example (seq_k), got 4";
    reject(Pattern::documents([[0; 4], [0; 4]]), message);
}

fn check_options(mechanism: Mechanism, device: &Device) {
    let reject = |options: AttentionOptions, message: &str| {
        assert_rejected(mechanism, valid_tensors(device), &options, message);
    };
    let plain = AttentionOptions::new;
    let message = "the dropout probability must be at least 0 and below 1, got 1";
    reject(plain().with_dropout(Dropout::new(1.0, 0)), message);
    let message = "the dropout probability must be at least 0 and below 1, got NaN";
    reject(plain().with_dropout(Dropout::new(f64::NAN, 0)), message);
    let message = "the softcap must be from 1e-30 to 1e30, got 0";
    reject(plain().with_softcap(0.0), message);
    let message = "the scale must be finite, got inf";
    reject(plain().with_scale(f64::INFINITY), message);
    let message = "ALiBi slopes must be finite, got inf";
    reject(plain().with_alibi([0.5, f32::INFINITY, 0.5, 0.5]), message);
    let message = "expected one ALiBi slope for each of the 4 heads, got 3";
    reject(plain().with_alibi([0.5; 3]), message);
    let message = "the bias must be broadcastable to [batch = 2, heads = 4, seq_q = 3, \
                   seq_k = 5], got [2, 4, 3, 4]";
    reject(
        plain().with_bias(Tensor::zeros([2, 4, 3, 4], device)),
        message,
    );
}
