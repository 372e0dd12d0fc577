//! Calls that a program gets wrong, and what it is told.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::Trial;
use zoo_attention::{AttentionOptions, Dropout, Mechanism, Pattern, attend};
use zoo_backend::{Dtype, open};
use zoo_conformance::*;

/// What is wrong with a call of 2 examples, 4 heads, 3 queries and 5 keys.
enum Misuse {
    /// The sizes of query, key and value.
    Sizes([[usize; 4]; 3]),
    Pattern(fn(&Device) -> Pattern),
    Options(fn(&Device) -> AttentionOptions),
}

use Misuse::{Options, Pattern as Seen, Sizes};

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite, device: &Device) {
    for (name, misuse, message) in MISUSES {
        suite.add(format!("{mechanism}/misuse/{name}"), move |device| {
            let fitting = [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8]];
            let plain = AttentionOptions::new();
            let (sizes, options) = match misuse {
                Sizes(sizes) => (*sizes, plain),
                Seen(pattern) => (fitting, plain.with_pattern(pattern(device))),
                Options(options) => (fitting, options(device)),
            };
            let [query, key, value] = sizes.map(|shape| Tensor::<4>::zeros(shape, device));
            let message = format!("{mechanism} attention: {message}");
            is_refused(|| attend(mechanism, query, key, value, &options), &message);
        });
    }
    suite.trials.push(on_another_device(mechanism, device));
}

/// Tensors of two devices in one call. In a program of one backend there is but one, and the
/// trial is reported as ignored.
fn on_another_device(mechanism: Mechanism, device: &Device) -> Trial {
    let open = |word: &str| open(word.parse().ok()?, Dtype::F32).ok();
    let opened = ["flex", "ndarray"].into_iter().filter_map(open);
    let other = (opened.map(|opened| opened.device)).find(|other| other != device);
    let is_ignored = other.is_none();
    let here = device.clone();
    let run = move || {
        let other = other.expect("there is no other device");
        let bias = Tensor::zeros([1, 1, 5, 5], &other);
        let hidden = Pattern::Dense(bias.clone().greater_elem(0.0));
        let padded = Tensor::<2, Bool>::from_data([[false; 5]; 2], &other);
        let padded = Pattern::KeyPadding(padded);
        let with = |pattern: Pattern| AttentionOptions::new().with_pattern(pattern);
        let full = AttentionOptions::new;
        for (name, devices, options) in [
            ("key", [&here, &other, &here], full()),
            ("value", [&here, &here, &other], full()),
            ("a bias", [&here; 3], full().with_bias(bias)),
            ("a dense mask", [&here; 3], with(hidden)),
            ("a key padding mask", [&here; 3], with(padded)),
        ] {
            let zeros = |device| Tensor::<4>::zeros([2, 4, 5, 8], device);
            let [query, key, value] = devices.map(zeros);
            let message = format!(
                "{mechanism} attention: {name} must be on the device of query, {here:?}, got \
                 {other:?}"
            );
            is_refused(|| attend(mechanism, query, key, value, &options), &message);
        }
        Ok(())
    };
    let name = format!("{mechanism}/misuse/tensors-of-two-devices");
    Trial::test(name, run).with_ignored_flag(is_ignored)
}

/// A name, the misuse, and what is said of it after the mechanism's name.
const MISUSES: &[(&str, Misuse, &str)] = &[
    (
        "key-of-another-width",
        Sizes([[2, 4, 3, 8], [2, 4, 5, 6], [2, 4, 5, 8]]),
        "key must be [batch = 2, kv_heads, seq_k, d_head = 8] \
         to fit query [2, 4, 3, 8], got [2, 4, 5, 6]",
    ),
    (
        "value-of-another-length",
        Sizes([[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 6, 8]]),
        "value must be [batch = 2, kv_heads = 4, seq_k = 5, d_value] \
         to fit key [2, 4, 5, 8], got [2, 4, 6, 8]",
    ),
    (
        "heads-that-do-not-divide",
        Sizes([[1, 4, 3, 8], [1, 3, 5, 8], [1, 3, 5, 8]]),
        "the 4 heads of query must be a multiple of the 3 heads of key and value",
    ),
    (
        "too-few-lengths",
        Seen(|_| Pattern::key_lengths([5])),
        "key lengths must be given for each of the 2 examples, got 1",
    ),
    (
        "a-length-beyond-the-keys",
        Seen(|_| Pattern::key_lengths([5, 6])),
        "a key length must be at most seq_k = 5, got 6",
    ),
    (
        "a-padding-mask-of-another-shape",
        Seen(|device| Pattern::KeyPadding(Tensor::from_data([[false, true]], device))),
        "a key padding mask must be [batch = 2, seq_k = 5], got [1, 2]",
    ),
    (
        "a-dense-mask-of-another-shape",
        Seen(|device| Pattern::Dense(Tensor::from_data([[[[false, true]]]], device))),
        "a dense mask must be [batch = 2, heads = 4, seq_q = 3, seq_k = 5], \
         or 1 in place of any, got [1, 1, 1, 2]",
    ),
    (
        "no-queries",
        Sizes([[2, 4, 0, 8], [2, 4, 5, 8], [2, 4, 5, 8]]),
        "no size may be zero, got query [2, 4, 0, 8], key [2, 4, 5, 8], value [2, 4, 5, 8]",
    ),
    (
        "blocks-without-a-size",
        Seen(|_| Pattern::Block { size: 0 }),
        "the blocks of a pattern must have a size, got 0",
    ),
    (
        "too-few-blocks",
        Seen(|_| Pattern::Blocks {
            size: 2,
            seen: vec![vec![0]],
        }),
        "a pattern of blocks of 2 must say what each of the 3 blocks of seq_k = 5 sees, got 1",
    ),
    (
        "a-block-that-is-not-there",
        Seen(|_| Pattern::Blocks {
            size: 3,
            seen: vec![vec![0], vec![2]],
        }),
        "a block must be one of the 2, got 2",
    ),
    (
        "a-stride-of-zero",
        Seen(|_| Pattern::Strided { stride: 0 }),
        "a stride must be at least 1, got 0",
    ),
    (
        "a-global-place-beyond-the-keys",
        Seen(|_| Pattern::Global(vec![1, 5])),
        "a global place must be below seq_k = 5, got 5",
    ),
    (
        "documents-of-too-few-examples",
        Seen(|_| Pattern::documents([[0; 5]])),
        "document ids must be given for each of the 2 examples, got 1",
    ),
    (
        "too-few-document-ids",
        Seen(|_| Pattern::documents([[0; 4], [0; 4]])),
        "a document id must be given for each of seq_k = 5 keys, got 4",
    ),
    (
        "a-dropout-of-one",
        Options(|_| AttentionOptions::new().with_dropout(Dropout::new(1.0, 0))),
        "a dropout must be at least 0 and below 1, got 1",
    ),
    (
        "a-dropout-that-is-no-number",
        Options(|_| AttentionOptions::new().with_dropout(Dropout::new(f64::NAN, 0))),
        "a dropout must be at least 0 and below 1, got NaN",
    ),
    (
        "a-softcap-of-zero",
        Options(|_| AttentionOptions::new().with_softcap(0.0)),
        "a softcap must be above 0 and at most 1e30, got 0",
    ),
    (
        "an-infinite-scale",
        Options(|_| AttentionOptions::new().with_scale(f64::INFINITY)),
        "a scale must be a finite number, got inf",
    ),
    (
        "a-slope-without-end",
        Options(|_| AttentionOptions::new().with_alibi([0.5, f32::INFINITY, 0.5, 0.5])),
        "an ALiBi slope must be a finite number, got inf",
    ),
    (
        "too-few-slopes",
        Options(|_| AttentionOptions::new().with_alibi([0.5; 3])),
        "an ALiBi slope must be given for each of the 4 heads, got 3",
    ),
    (
        "a-bias-of-another-shape",
        Options(|device| AttentionOptions::new().with_bias(Tensor::zeros([2, 4, 3, 4], device))),
        "a bias must be [batch = 2, heads = 4, seq_q = 3, seq_k = 5], \
         or 1 in place of any, got [2, 4, 3, 4]",
    ),
];
