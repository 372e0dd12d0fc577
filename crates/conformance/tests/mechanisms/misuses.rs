//! Calls that a program gets wrong, and what it is told.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Pattern, standard};

/// A name, the call, and what it says.
type Misuse = (&'static str, fn(&Device), &'static str);

pub(crate) fn trials(device: &Device) -> impl Iterator<Item = Trial> {
    MISUSES.iter().map(|(name, misuse, message)| {
        let device = device.clone();
        Trial::test(format!("misuse/{name}"), move || {
            is_refused(&device, *misuse, message)
        })
    })
}

const MISUSES: &[Misuse] = &[
    (
        "key-of-another-width",
        |device| {
            misuse(
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 6],
                [2, 4, 5, 8],
                Pattern::Full,
            );
        },
        "standard attention: key must be [batch = 2, kv_heads, seq_k, d_head = 8] \
         to fit query [2, 4, 3, 8], got [2, 4, 5, 6]",
    ),
    (
        "value-of-another-length",
        |device| {
            misuse(
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 8],
                [2, 4, 6, 8],
                Pattern::Full,
            );
        },
        "standard attention: value must be [batch = 2, kv_heads = 4, seq_k = 5, d_value] \
         to fit key [2, 4, 5, 8], got [2, 4, 6, 8]",
    ),
    (
        "heads-that-do-not-divide",
        |device| {
            misuse(
                device,
                [1, 4, 3, 8],
                [1, 3, 5, 8],
                [1, 3, 5, 8],
                Pattern::Full,
            );
        },
        "standard attention: the 4 heads of query must be a multiple of \
         the 3 heads of key and value",
    ),
    (
        "too-few-lengths",
        |device| {
            let lengths = Pattern::key_lengths([5]);
            misuse(device, [2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8], lengths);
        },
        "standard attention: key lengths must be given for each of the 2 examples, got 1",
    ),
    (
        "a-length-beyond-the-keys",
        |device| {
            let lengths = Pattern::key_lengths([5, 6]);
            misuse(device, [2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8], lengths);
        },
        "standard attention: a key length must be at most seq_k = 5, got 6",
    ),
    (
        "a-padding-mask-of-another-shape",
        |device| {
            let padding = Tensor::<2, Bool>::from_data([[false, true]], device);
            let padding = Pattern::KeyPadding(padding);
            misuse(device, [2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8], padding);
        },
        "standard attention: a key padding mask must be [batch = 2, seq_k = 5], got [1, 2]",
    ),
    (
        "a-dense-mask-of-another-shape",
        |device| {
            let mask = Tensor::<4, Bool>::from_data([[[[false, true]]]], device);
            let mask = Pattern::Dense(mask);
            misuse(device, [2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8], mask);
        },
        "standard attention: a dense mask must be [batch = 2, heads = 4, seq_q = 3, seq_k = 5], \
         or 1 in place of any, got [1, 1, 1, 2]",
    ),
];

fn misuse(
    device: &Device,
    query: [usize; 4],
    key: [usize; 4],
    value: [usize; 4],
    pattern: Pattern,
) {
    let zeros = |shape| Tensor::<4>::zeros(shape, device);
    let options = AttentionOptions::new().with_pattern(pattern);
    standard(zeros(query), zeros(key), zeros(value), &options);
}

fn is_refused(device: &Device, misuse: fn(&Device), message: &str) -> Result<(), Failed> {
    let device = std::panic::AssertUnwindSafe(device);
    let Err(panic) = std::panic::catch_unwind(|| misuse(&device)) else {
        return Err("it was let through".into());
    };
    match panic.downcast_ref::<String>() {
        Some(said) if said == message => Ok(()),
        said => Err(format!("it said {said:?} instead of {message:?}").into()),
    }
}
