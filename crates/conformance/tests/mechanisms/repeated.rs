//! The same backward pass again and again: every bit of every gradient is the same, whichever
//! thread or workgroup was first.

use burn::tensor::Device;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_backend::Opened;
use zoo_conformance::*;
use zoo_oracle::{Mask, Problem, small_for_tests};

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
    for &mechanism in mechanisms {
        let repeats = match (opened.software, mechanism) {
            (true, _) => SOFTWARE,
            (false, Mechanism::Flash) => FLASH,
            _ => OTHERS,
        };
        suite.add_training(format!("repeated/{mechanism}"), move |device| {
            let config = small_for_tests(mechanism);
            is_repeated(
                &config,
                &problem(&config, repeats.n),
                repeats.passes,
                device,
            );
        });
    }
    let Repeats { n, passes } = if opened.software { SOFTWARE } else { OTHERS };
    suite.add_training("repeated/flash-with-bias-and-dropout", move |device| {
        let flash = Mechanism::Flash.into();
        // A bias that all examples share, whose gradient is a sum over them.
        let problem = problem(&flash, n).with_bias([1, 4, n, n]);
        is_repeated(&flash, &problem.with_dropout((0.2, 5)), passes, device);
    });
}

fn problem(mechanism: &MechanismConfig, n: usize) -> Problem {
    let kv_heads = match mechanism.mechanism() {
        // Its keys are made of its queries.
        Mechanism::Lsh => 4,
        _ => mechanism.kv_heads(4).unwrap_or(2),
    };
    Problem::new("repeated", [2, 4, n, n, 16])
        .with_kv_heads(kv_heads)
        .with_mask(Mask::Causal)
}

fn is_repeated(mechanism: &MechanismConfig, problem: &Problem, passes: usize, device: &Device) {
    let inputs = Tensors::of(problem, device);
    // By query, key, value and bias.
    let gradients = || {
        let tensors = inputs.clone().require_grad();
        let (_, gradients) = tensors.train(mechanism);
        let mut all = tensors.gradients_by_inputs(&gradients).to_vec();
        let bias = tensors.options.bias.and_then(|bias| bias.grad(&gradients));
        all.extend(bias.map(numbers));
        all
    };
    let bits = |gradients: &[Vec<f32>]| -> Vec<u32> {
        gradients.iter().flatten().map(|x| x.to_bits()).collect()
    };
    let first = gradients();
    for pass in 1..passes {
        let is_same = bits(&first) == bits(&gradients());
        assert!(is_same, "pass {pass} has other numbers");
    }
    // Zeros would be the same, too.
    let has_numbers = |gradient: &Vec<f32>| {
        gradient.iter().any(|x| *x != 0.0) && gradient.iter().all(|x| x.is_finite())
    };
    assert!(has_numbers(&first[2]), "no gradient to compare");
    assert_eq!(first.len(), 3 + usize::from(problem.bias.is_some()));
}
