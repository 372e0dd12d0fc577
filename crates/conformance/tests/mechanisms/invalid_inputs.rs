//! Invalid calls and their error messages.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::Trial;
use zoo_attention::{AttentionOptions, Dropout, Mechanism, Pattern, attend};
use zoo_backend::{Dtype, open};
use zoo_conformance::*;

/// The invalid part of a call with 2 examples, 4 heads, 3 queries and 5 keys.
enum Invalid {
    /// Shapes of query, key and value.
    Shapes([[usize; 4]; 3]),
    Pattern(fn(&Device) -> Pattern),
    Options(fn(&Device) -> AttentionOptions),
}

use Invalid::{Options, Pattern as Mask, Shapes};

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite, device: &Device) {
    for (name, invalid, message) in CASES {
        suite.add(format!("{mechanism}/invalid/{name}"), move |device| {
            let valid = [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8]];
            let plain = AttentionOptions::new();
            let (shapes, options) = match invalid {
                Shapes(shapes) => (*shapes, plain),
                Mask(pattern) => (valid, plain.with_pattern(pattern(device))),
                Options(options) => (valid, options(device)),
            };
            let [query, key, value] = shapes.map(|shape| Tensor::<4>::zeros(shape, device));
            let message = format!("{mechanism} attention: {message}");
            assert_panics_with(|| attend(mechanism, query, key, value, &options), &message);
        });
    }
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
            let [query, key, value] = devices.map(zeros);
            let message = format!(
                "{mechanism} attention: {name} must be on the device of query, {here:?}, got \
                 {other:?}"
            );
            assert_panics_with(|| attend(mechanism, query, key, value, &options), &message);
        }
        Ok(())
    };
    let name = format!("{mechanism}/invalid/tensors-on-two-devices");
    Trial::test(name, run).with_ignored_flag(is_ignored)
}

/// Name, invalid part, and error message after the mechanism's name.
const CASES: &[(&str, Invalid, &str)] = &[
    (
        "wrong-key-dimension",
        Shapes([[2, 4, 3, 8], [2, 4, 5, 6], [2, 4, 5, 8]]),
        "key must be [batch = 2, kv_heads, seq_k, d_head = 8] \
         to fit query [2, 4, 3, 8], got [2, 4, 5, 6]",
    ),
    (
        "wrong-value-length",
        Shapes([[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 6, 8]]),
        "value must be [batch = 2, kv_heads = 4, seq_k = 5, d_value] \
         to fit key [2, 4, 5, 8], got [2, 4, 6, 8]",
    ),
    (
        "heads-that-do-not-divide",
        Shapes([[1, 4, 3, 8], [1, 3, 5, 8], [1, 3, 5, 8]]),
        "the number of query heads must be a multiple of the number of key and value heads, got 4 and 3",
    ),
    (
        "too-few-lengths",
        Mask(|_| Pattern::key_lengths([5])),
        "expected 2 key lengths (the batch size), got 1",
    ),
    (
        "key-length-out-of-range",
        Mask(|_| Pattern::key_lengths([5, 6])),
        "a key length must be at most seq_k = 5, got 6",
    ),
    (
        "wrong-padding-mask-shape",
        Mask(|device| Pattern::KeyPadding(Tensor::from_data([[false, true]], device))),
        "a key padding mask must be [batch = 2, seq_k = 5], got [1, 2]",
    ),
    (
        "wrong-dense-mask-shape",
        Mask(|device| Pattern::Dense(Tensor::from_data([[[[false, true]]]], device))),
        "a dense mask must be broadcastable to [batch = 2, heads = 4, seq_q = 3, seq_k = 5], got \
         [1, 1, 1, 2]",
    ),
    (
        "no-queries",
        Shapes([[2, 4, 0, 8], [2, 4, 5, 8], [2, 4, 5, 8]]),
        "no dimension may be zero, got query [2, 4, 0, 8], key [2, 4, 5, 8], value [2, 4, 5, 8]",
    ),
    (
        "block-size-of-zero",
        Mask(|_| Pattern::Block { size: 0 }),
        "a block size must be at least 1, got 0",
    ),
    (
        "too-few-blocks",
        Mask(|_| Pattern::Blocks {
            size: 2,
            visible: vec![vec![0]],
        }),
        "the visible blocks must be given for each of the 3 blocks of size 2 of seq_k = 5, got 1",
    ),
    (
        "block-out-of-range",
        Mask(|_| Pattern::Blocks {
            size: 3,
            visible: vec![vec![0], vec![2]],
        }),
        "a block index must be below 2, got 2",
    ),
    (
        "stride-of-zero",
        Mask(|_| Pattern::Strided { stride: 0 }),
        "a stride must be at least 1, got 0",
    ),
    (
        "global-position-out-of-range",
        Mask(|_| Pattern::Global(vec![1, 5])),
        "a global position must be below seq_k = 5, got 5",
    ),
    (
        "too-few-document-examples",
        Mask(|_| Pattern::documents([[0; 5]])),
        "expected document ids for 2 examples (the batch size), got 1",
    ),
    (
        "too-few-document-ids",
        Mask(|_| Pattern::documents([[0; 4], [0; 4]])),
        "expected 5 document ids per example (seq_k), got 4",
    ),
    (
        "dropout-of-one",
        Options(|_| AttentionOptions::new().with_dropout(Dropout::new(1.0, 0))),
        "the dropout probability must be at least 0 and below 1, got 1",
    ),
    (
        "dropout-of-nan",
        Options(|_| AttentionOptions::new().with_dropout(Dropout::new(f64::NAN, 0))),
        "the dropout probability must be at least 0 and below 1, got NaN",
    ),
    (
        "softcap-of-zero",
        Options(|_| AttentionOptions::new().with_softcap(0.0)),
        "the softcap must be from 1e-30 to 1e30, got 0",
    ),
    (
        "infinite-scale",
        Options(|_| AttentionOptions::new().with_scale(f64::INFINITY)),
        "the scale must be finite, got inf",
    ),
    (
        "infinite-slope",
        Options(|_| AttentionOptions::new().with_alibi([0.5, f32::INFINITY, 0.5, 0.5])),
        "ALiBi slopes must be finite, got inf",
    ),
    (
        "too-few-slopes",
        Options(|_| AttentionOptions::new().with_alibi([0.5; 3])),
        "expected one ALiBi slope for each of the 4 heads, got 3",
    ),
    (
        "wrong-bias-shape",
        Options(|device| AttentionOptions::new().with_bias(Tensor::zeros([2, 4, 3, 4], device))),
        "the bias must be broadcastable to [batch = 2, heads = 4, seq_q = 3, seq_k = 5], got \
         [2, 4, 3, 4]",
    ),
];
