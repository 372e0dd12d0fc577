//! Bitwise determinism of backward passes, whatever the order of threads or workgroups.

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    // A software adapter takes minutes to compile the kernels of every mechanism, and only those of
    // `flash` are ours.
    let mechanisms: &[Mechanism] = if opened.software {
        &[Mechanism::Flash]
    } else {
        &Mechanism::ALL
    };
    for &mechanism in mechanisms {
        // Several tiles of queries and keys in every kernel, the last of them partial.
        let (n, passes) = match (opened.software, mechanism) {
            // A software adapter takes most of a second per pass.
            (true, _) => (140, 20),
            (false, Mechanism::Flash) => (300, 200),
            // Most others are `flash` with other patterns, and the rest are Burn operations.
            _ => (100, 20),
        };
        suite.add_training(format!("determinism/{mechanism}"), move |device| {
            let config = mechanism.small_for_tests();
            check_determinism(&config, &problem(&config, n), passes, device);
        });
    }
    let n = if opened.software { 140 } else { 100 };
    suite.add_training("determinism/flash-with-bias-and-dropout", move |device| {
        let flash = Mechanism::Flash.into();
        // The gradient of a bias that is broadcast is a sum over examples.
        let problem = problem(&flash, n).with_bias([1, 4, n, n]);
        check_determinism(&flash, &problem.with_dropout((0.2, 5)), 20, device);
    });
}

fn problem(mechanism: &MechanismConfig, n: usize) -> Problem {
    let kv_heads = match mechanism.mechanism() {
        // Its keys are its queries.
        Mechanism::Lsh => 4,
        _ => mechanism.kv_heads(4).unwrap_or(2),
    };
    let problem = Problem::new("repeated", [2, 4, n, n, 16]).with_kv_heads(kv_heads);
    match mechanism.capabilities().causal {
        Ok(()) => problem.with_mask(Mask::Causal),
        Err(_) => problem,
    }
}

fn check_determinism(
    mechanism: &MechanismConfig,
    problem: &Problem,
    passes: usize,
    device: &Device,
) {
    let inputs = Tensors::from_problem(problem, device);
    // Of query, key, value and bias.
    let gradients = || {
        let tensors = inputs.clone().require_grad();
        let (_, gradients) = tensors.forward_backward(mechanism);
        let mut all = tensors.input_gradients(&gradients).to_vec();
        let bias = tensors.options.bias.and_then(|bias| bias.grad(&gradients));
        all.extend(bias.map(to_vec));
        all
    };
    let bits = |gradients: &[Vec<f32>]| -> Vec<u32> {
        gradients.iter().flatten().map(|x| x.to_bits()).collect()
    };
    let first = gradients();
    for pass in 1..passes {
        let is_same = bits(&first) == bits(&gradients());
        assert!(is_same, "pass {pass} differs");
    }
    // Zeros would be equal, too.
    let is_nontrivial = |gradient: &Vec<f32>| {
        gradient.iter().any(|x| *x != 0.0) && gradient.iter().all(|x| x.is_finite())
    };
    assert!(is_nontrivial(&first[2]), "the value gradient is trivial");
    assert_eq!(first.len(), 3 + usize::from(problem.bias.is_some()));
}
