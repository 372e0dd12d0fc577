//! The same backward pass again and again: every bit of every gradient is the same, whichever
//! thread or workgroup was first.

use burn::tensor::{Device, Distribution, Tensor};
use libtest_mimic::Failed;
use zoo_attention::{AttentionOptions, Dropout, Mechanism, MechanismConfig, Pattern, attend};
use zoo_backend::Opened;
use zoo_conformance::Suite;
use zoo_oracle::small_for_tests;

/// A length, and how many backward passes are compared.
#[derive(Clone, Copy)]
struct Repeats {
    n: usize,
    passes: usize,
}

/// Several tiles of queries and of keys in every body, the last of them not full.
const FLASH: Repeats = Repeats {
    n: 300,
    passes: 200,
};
/// Still several tiles. Fewer passes, since most mechanisms are `flash` with other patterns, and
/// the others are operations of Burn.
const OTHERS: Repeats = Repeats { n: 100, passes: 20 };

/// The same for a processor that stands in for a GPU, which takes most of a second for a pass.
const SOFTWARE: Repeats = Repeats { n: 140, passes: 20 };

pub(crate) fn trials(suite: &mut Suite, opened: &Opened) {
    // On software, every mechanism has kernels of its own to be compiled, for minutes: those of
    // `flash` are what is ours.
    let mechanisms: &[Mechanism] = match opened.software {
        true => &[Mechanism::Flash],
        false => &Mechanism::ALL,
    };
    let cases = mechanisms.iter().map(|&mechanism| {
        let name = mechanism.to_string();
        (name, mechanism, Extras::Nothing)
    });
    let with_more = "flash-with-bias-and-dropout".to_owned();
    let with_more = (with_more, Mechanism::Flash, Extras::BiasAndDropout);
    for (name, mechanism, extras) in cases.chain([with_more]) {
        let repeats = match (opened.software, mechanism, extras) {
            (true, ..) => SOFTWARE,
            (false, Mechanism::Flash, Extras::Nothing) => FLASH,
            _ => OTHERS,
        };
        suite.add_training(format!("repeated/{name}"), move |device| {
            is_repeated(mechanism, repeats, extras, device)
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extras {
    Nothing,
    /// A bias that all examples share, whose gradient is a sum over them.
    BiasAndDropout,
}

fn is_repeated(
    mechanism: Mechanism,
    Repeats { n, passes }: Repeats,
    extras: Extras,
    device: &Device,
) -> Result<(), Failed> {
    let config = small_for_tests(mechanism);
    let (heads, width) = (4, 16);
    let kv_heads = match mechanism {
        // Its keys are made of its queries.
        Mechanism::Lsh => heads,
        _ => config.kv_heads(heads).unwrap_or(2),
    };
    let draw = |dims: [usize; 4]| {
        Tensor::<4>::random(dims, Distribution::Normal(0.0, 1.0), device).detach()
    };
    let inputs = [
        draw([2, heads, n, width]),
        draw([2, kv_heads, n, width]),
        draw([2, kv_heads, n, width]),
        draw([1, heads, n, n]),
    ];
    let upstream = draw([2, heads, n, width]);
    let gradients = || gradients(&config, &inputs, &upstream, extras);
    let first = gradients();
    for pass in 1..passes {
        let again = gradients();
        for (name, (first, again)) in NAMES.iter().zip(first.iter().zip(&again)) {
            let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(
                bits(first) == bits(again),
                "d_{name} has other numbers in pass {pass}"
            );
        }
    }
    // Zeros would be the same, too.
    let of_value = &first[2];
    assert!(
        of_value.iter().any(|number| *number != 0.0) && of_value.iter().all(|x| x.is_finite()),
        "no gradient to compare"
    );
    Ok(())
}

const NAMES: [&str; 4] = ["query", "key", "value", "bias"];

/// The gradients by query, key, value and bias; none where an input has no part in the result.
fn gradients(
    mechanism: &MechanismConfig,
    inputs: &[Tensor<4>; 4],
    upstream: &Tensor<4>,
    extras: Extras,
) -> [Vec<f32>; 4] {
    let inputs = inputs.each_ref().map(|input| input.clone().require_grad());
    let [query, key, value, bias] = inputs.clone();
    let mut options = AttentionOptions::new().with_pattern(Pattern::Causal);
    if extras == Extras::BiasAndDropout {
        options = options.with_bias(bias).with_dropout(Dropout::new(0.2, 5));
    }
    let context = attend(*mechanism, query, key, value, &options);
    let gradients = (context * upstream.clone()).sum().backward();
    inputs.each_ref().map(|input| {
        let gradient = input.grad(&gradients);
        gradient.map_or(Vec::new(), |gradient| {
            gradient.into_data().iter::<f32>().collect()
        })
    })
}
