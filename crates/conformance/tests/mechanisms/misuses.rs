//! Calls that a program gets wrong, and what it is told.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Dropout, Mechanism, Pattern, attend};
use zoo_backend::{Dtype, open};

/// A name, the call, and what it says after the mechanism's name.
type Misuse = (&'static str, fn(Mechanism, &Device), &'static str);

pub(crate) fn trials(mechanism: Mechanism, device: &Device) -> impl Iterator<Item = Trial> {
    let misuses = MISUSES.iter().map(move |(name, misuse, message)| {
        let device = device.clone();
        Trial::test(format!("{mechanism}/misuse/{name}"), move || {
            let message = format!("{mechanism} attention: {message}");
            is_refused(|| misuse(mechanism, &device), &message)
        })
    });
    misuses.chain([on_another_device(mechanism, device)])
}

/// Tensors of two devices in one call. In a program of one backend there is but one, and the
/// trial is reported as ignored.
fn on_another_device(mechanism: Mechanism, device: &Device) -> Trial {
    let open = |word: &str| open(word.parse().ok()?, Dtype::F32).ok();
    let other = ["flex", "ndarray"]
        .into_iter()
        .filter_map(open)
        .map(|opened| opened.device)
        .find(|other| other != device);
    let is_ignored = other.is_none();
    let here = device.clone();
    let run = move || {
        let Some(other) = other else {
            return Err("there is no other device".into());
        };
        let sizes = [2, 4, 5, 8];
        let tensor = |device: &Device| Tensor::<4>::zeros(sizes, device);
        let call = |devices: [&Device; 3], options: &AttentionOptions| {
            let [query, key, value] = devices.map(tensor);
            attend(mechanism, query, key, value, options);
        };
        let message = |name: &str| {
            format!(
                "{mechanism} attention: {name} must be on the device of query, {here:?}, got \
                 {other:?}"
            )
        };
        let full = AttentionOptions::new();
        is_refused(|| call([&here, &other, &here], &full), &message("key"))?;
        is_refused(|| call([&here, &here, &other], &full), &message("value"))?;
        let bias = Tensor::zeros([1, 1, 5, 5], &other);
        let biased = AttentionOptions::new().with_bias(bias.clone());
        is_refused(|| call([&here; 3], &biased), &message("a bias"))?;
        let hidden = Pattern::Dense(bias.greater_elem(0.0));
        let masked = AttentionOptions::new().with_pattern(hidden);
        is_refused(|| call([&here; 3], &masked), &message("a dense mask"))?;
        let padded = Tensor::<2, Bool>::from_data([[false; 5]; 2], &other);
        let padded = AttentionOptions::new().with_pattern(Pattern::KeyPadding(padded));
        is_refused(|| call([&here; 3], &padded), &message("a key padding mask"))
    };
    let name = format!("{mechanism}/misuse/tensors-of-two-devices");
    Trial::test(name, run).with_ignored_flag(is_ignored)
}

const MISUSES: &[Misuse] = &[
    (
        "key-of-another-width",
        |mechanism, device| {
            with_sizes(
                mechanism,
                device,
                [[2, 4, 3, 8], [2, 4, 5, 6], [2, 4, 5, 8]],
            );
        },
        "key must be [batch = 2, kv_heads, seq_k, d_head = 8] \
         to fit query [2, 4, 3, 8], got [2, 4, 5, 6]",
    ),
    (
        "value-of-another-length",
        |mechanism, device| {
            with_sizes(
                mechanism,
                device,
                [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 6, 8]],
            );
        },
        "value must be [batch = 2, kv_heads = 4, seq_k = 5, d_value] \
         to fit key [2, 4, 5, 8], got [2, 4, 6, 8]",
    ),
    (
        "heads-that-do-not-divide",
        |mechanism, device| {
            with_sizes(
                mechanism,
                device,
                [[1, 4, 3, 8], [1, 3, 5, 8], [1, 3, 5, 8]],
            );
        },
        "the 4 heads of query must be a multiple of \
         the 3 heads of key and value",
    ),
    (
        "too-few-lengths",
        |mechanism, device| {
            let lengths = Pattern::key_lengths([5]);
            with_pattern(mechanism, device, lengths);
        },
        "key lengths must be given for each of the 2 examples, got 1",
    ),
    (
        "a-length-beyond-the-keys",
        |mechanism, device| {
            let lengths = Pattern::key_lengths([5, 6]);
            with_pattern(mechanism, device, lengths);
        },
        "a key length must be at most seq_k = 5, got 6",
    ),
    (
        "a-padding-mask-of-another-shape",
        |mechanism, device| {
            let padding = Tensor::<2, Bool>::from_data([[false, true]], device);
            let padding = Pattern::KeyPadding(padding);
            with_pattern(mechanism, device, padding);
        },
        "a key padding mask must be [batch = 2, seq_k = 5], got [1, 2]",
    ),
    (
        "a-dense-mask-of-another-shape",
        |mechanism, device| {
            let mask = Tensor::<4, Bool>::from_data([[[[false, true]]]], device);
            let mask = Pattern::Dense(mask);
            with_pattern(mechanism, device, mask);
        },
        "a dense mask must be [batch = 2, heads = 4, seq_q = 3, seq_k = 5], \
         or 1 in place of any, got [1, 1, 1, 2]",
    ),
    (
        "no-queries",
        |mechanism, device| {
            with_sizes(
                mechanism,
                device,
                [[2, 4, 0, 8], [2, 4, 5, 8], [2, 4, 5, 8]],
            );
        },
        "no size may be zero, got query [2, 4, 0, 8], key [2, 4, 5, 8], value [2, 4, 5, 8]",
    ),
    (
        "blocks-without-a-size",
        |mechanism, device| with_pattern(mechanism, device, Pattern::Block { size: 0 }),
        "the blocks of a pattern must have a size, got 0",
    ),
    (
        "too-few-blocks",
        |mechanism, device| {
            let blocks = Pattern::Blocks {
                size: 2,
                seen: vec![vec![0]],
            };
            with_pattern(mechanism, device, blocks);
        },
        "a pattern of blocks of 2 must say what each of the 3 blocks of seq_k = 5 sees, got 1",
    ),
    (
        "a-block-that-is-not-there",
        |mechanism, device| {
            let blocks = Pattern::Blocks {
                size: 3,
                seen: vec![vec![0], vec![2]],
            };
            with_pattern(mechanism, device, blocks);
        },
        "a block must be one of the 2, got 2",
    ),
    (
        "a-stride-of-zero",
        |mechanism, device| with_pattern(mechanism, device, Pattern::Strided { stride: 0 }),
        "a stride must be at least 1, got 0",
    ),
    (
        "a-global-place-beyond-the-keys",
        |mechanism, device| with_pattern(mechanism, device, Pattern::Global(vec![1, 5])),
        "a global place must be below seq_k = 5, got 5",
    ),
    (
        "documents-of-too-few-examples",
        |mechanism, device| with_pattern(mechanism, device, Pattern::documents([[0; 5]])),
        "document ids must be given for each of the 2 examples, got 1",
    ),
    (
        "too-few-document-ids",
        |mechanism, device| with_pattern(mechanism, device, Pattern::documents([[0; 4], [0; 4]])),
        "a document id must be given for each of seq_k = 5 keys, got 4",
    ),
    (
        "a-dropout-of-one",
        |mechanism, device| {
            let options = AttentionOptions::new().with_dropout(Dropout::new(1.0, 0));
            with_options(mechanism, device, &options);
        },
        "a dropout must be at least 0 and below 1, got 1",
    ),
    (
        "a-dropout-that-is-no-number",
        |mechanism, device| {
            let options = AttentionOptions::new().with_dropout(Dropout::new(f64::NAN, 0));
            with_options(mechanism, device, &options);
        },
        "a dropout must be at least 0 and below 1, got NaN",
    ),
    (
        "a-softcap-of-zero",
        |mechanism, device| {
            with_options(
                mechanism,
                device,
                &AttentionOptions::new().with_softcap(0.0),
            );
        },
        "a softcap must be above 0 and at most 1e30, got 0",
    ),
    (
        "an-infinite-scale",
        |mechanism, device| {
            let options = AttentionOptions::new().with_scale(f64::INFINITY);
            with_options(mechanism, device, &options);
        },
        "a scale must be a finite number, got inf",
    ),
    (
        "a-slope-without-end",
        |mechanism, device| {
            let options = AttentionOptions::new().with_alibi([0.5, f32::INFINITY, 0.5, 0.5]);
            with_options(mechanism, device, &options);
        },
        "an ALiBi slope must be a finite number, got inf",
    ),
    (
        "too-few-slopes",
        |mechanism, device| {
            let options = AttentionOptions::new().with_alibi([0.5; 3]);
            with_options(mechanism, device, &options);
        },
        "an ALiBi slope must be given for each of the 4 heads, got 3",
    ),
    (
        "a-bias-of-another-shape",
        |mechanism, device| {
            let bias = Tensor::zeros([2, 4, 3, 4], device);
            with_options(mechanism, device, &AttentionOptions::new().with_bias(bias));
        },
        "a bias must be [batch = 2, heads = 4, seq_q = 3, seq_k = 5], \
         or 1 in place of any, got [2, 4, 3, 4]",
    ),
];

fn with_pattern(mechanism: Mechanism, device: &Device, pattern: Pattern) {
    let options = AttentionOptions::new().with_pattern(pattern);
    with_options(mechanism, device, &options);
}

fn with_options(mechanism: Mechanism, device: &Device, options: &AttentionOptions) {
    let sizes = [[2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8]];
    call(mechanism, device, sizes, options);
}

/// Sizes of query, key and value.
fn with_sizes(mechanism: Mechanism, device: &Device, sizes: [[usize; 4]; 3]) {
    call(mechanism, device, sizes, &AttentionOptions::new());
}

fn call(mechanism: Mechanism, device: &Device, sizes: [[usize; 4]; 3], options: &AttentionOptions) {
    let [query, key, value] = sizes.map(|shape| Tensor::<4>::zeros(shape, device));
    attend(mechanism, query, key, value, options);
}

pub(crate) fn is_refused(misuse: impl Fn(), message: &str) -> Result<(), Failed> {
    match panic_message(misuse)? {
        said if said == message => Ok(()),
        said => Err(format!("it said {said:?} instead of {message:?}").into()),
    }
}

/// Whether a call panics with a message that contains `part`.
pub(crate) fn is_refused_with(misuse: impl Fn(), part: &str) -> Result<(), Failed> {
    match panic_message(misuse)? {
        said if said.contains(part) => Ok(()),
        said => Err(format!("it said {said:?} without {part:?}").into()),
    }
}

fn panic_message(misuse: impl Fn()) -> Result<String, Failed> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse)) {
        Ok(()) => Err("it was let through".into()),
        Err(panic) => Ok(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
    }
}
