//! Calls that a program gets wrong, and what it is told.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Mechanism, Pattern, attend};

/// A name, the call, and what it says after the mechanism's name.
type Misuse = (&'static str, fn(Mechanism, &Device), &'static str);

pub(crate) fn trials(mechanism: Mechanism, device: &Device) -> impl Iterator<Item = Trial> {
    MISUSES.iter().map(move |(name, misuse, message)| {
        let device = device.clone();
        Trial::test(format!("{mechanism}/misuse/{name}"), move || {
            let message = format!("{mechanism} attention: {message}");
            is_refused(|| misuse(mechanism, &device), &message)
        })
    })
}

const MISUSES: &[Misuse] = &[
    (
        "key-of-another-width",
        |mechanism, device| {
            misuse(
                mechanism,
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 6],
                [2, 4, 5, 8],
                Pattern::Full,
            );
        },
        "key must be [batch = 2, kv_heads, seq_k, d_head = 8] \
         to fit query [2, 4, 3, 8], got [2, 4, 5, 6]",
    ),
    (
        "value-of-another-length",
        |mechanism, device| {
            misuse(
                mechanism,
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 8],
                [2, 4, 6, 8],
                Pattern::Full,
            );
        },
        "value must be [batch = 2, kv_heads = 4, seq_k = 5, d_value] \
         to fit key [2, 4, 5, 8], got [2, 4, 6, 8]",
    ),
    (
        "heads-that-do-not-divide",
        |mechanism, device| {
            misuse(
                mechanism,
                device,
                [1, 4, 3, 8],
                [1, 3, 5, 8],
                [1, 3, 5, 8],
                Pattern::Full,
            );
        },
        "the 4 heads of query must be a multiple of \
         the 3 heads of key and value",
    ),
    (
        "too-few-lengths",
        |mechanism, device| {
            let lengths = Pattern::key_lengths([5]);
            misuse(
                mechanism,
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 8],
                [2, 4, 5, 8],
                lengths,
            );
        },
        "key lengths must be given for each of the 2 examples, got 1",
    ),
    (
        "a-length-beyond-the-keys",
        |mechanism, device| {
            let lengths = Pattern::key_lengths([5, 6]);
            misuse(
                mechanism,
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 8],
                [2, 4, 5, 8],
                lengths,
            );
        },
        "a key length must be at most seq_k = 5, got 6",
    ),
    (
        "a-padding-mask-of-another-shape",
        |mechanism, device| {
            let padding = Tensor::<2, Bool>::from_data([[false, true]], device);
            let padding = Pattern::KeyPadding(padding);
            misuse(
                mechanism,
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 8],
                [2, 4, 5, 8],
                padding,
            );
        },
        "a key padding mask must be [batch = 2, seq_k = 5], got [1, 2]",
    ),
    (
        "a-dense-mask-of-another-shape",
        |mechanism, device| {
            let mask = Tensor::<4, Bool>::from_data([[[[false, true]]]], device);
            let mask = Pattern::Dense(mask);
            misuse(
                mechanism,
                device,
                [2, 4, 3, 8],
                [2, 4, 5, 8],
                [2, 4, 5, 8],
                mask,
            );
        },
        "a dense mask must be [batch = 2, heads = 4, seq_q = 3, seq_k = 5], \
         or 1 in place of any, got [1, 1, 1, 2]",
    ),
];

fn misuse(
    mechanism: Mechanism,
    device: &Device,
    query: [usize; 4],
    key: [usize; 4],
    value: [usize; 4],
    pattern: Pattern,
) {
    let zeros = |shape| Tensor::<4>::zeros(shape, device);
    let options = AttentionOptions::new().with_pattern(pattern);
    attend(mechanism, zeros(query), zeros(key), zeros(value), &options);
}

fn is_refused(misuse: impl Fn(), message: &str) -> Result<(), Failed> {
    let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse)) else {
        return Err("it was let through".into());
    };
    match panic.downcast_ref::<String>() {
        Some(said) if said == message => Ok(()),
        said => Err(format!("it said {said:?} instead of {message:?}").into()),
    }
}
