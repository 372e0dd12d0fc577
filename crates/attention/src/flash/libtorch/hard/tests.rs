use burn::tensor::{Device as BurnDevice, Distribution, Tensor as BurnTensor};

use super::super::tests::context_and_grads;
use super::*;
use crate::mechanisms::hard::hard;
use crate::{AttentionOptions, Pattern};

/// Compared with the CPU kernels, which compute the same noise.
#[test]
fn hard_attention_matches_cpu_kernels() {
    let device = BurnDevice::libtorch().autodiff();
    let random = |heads: usize, seq: usize| {
        BurnTensor::<4>::random([2, heads, seq, 8], Distribution::Normal(0.0, 1.0), &device)
    };
    for (seq_q, seq_k) in [(90, 90), (40, 90), (90, 40)] {
        let tensors = [random(4, seq_q), random(2, seq_k), random(2, seq_k)];
        let d_context = random(4, seq_q);
        for pattern in [
            Pattern::Full,
            Pattern::Causal,
            Pattern::key_lengths([seq_k, 0]).and(Pattern::Causal),
            Pattern::longformer(3, [5]),
        ] {
            for selection in [
                HardSelection::Best,
                HardSelection::Sampled {
                    temperature: 0.7,
                    seed: 3,
                },
            ] {
                let options = AttentionOptions::default().with_pattern(pattern.clone());
                let attention = |[query, key, value]: [BurnTensor<4>; 3]| {
                    // Query and key have a gradient of zero without it.
                    let zero = query.clone().sum() * 0.0 + key.clone().sum() * 0.0;
                    hard(query, key, value, selection, &options) + zero.reshape([1, 1, 1, 1])
                };
                let run = |is_aten| context_and_grads(&attention, &tensors, &d_context, is_aten);
                for (actual, expected) in run(true).iter().zip(run(false)) {
                    let difference = actual.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                    let error = difference.fold(0.0, f32::max);
                    assert!(error < 5e-5, "error {error}, {selection:?}, {options:?}");
                }
            }
        }
    }
}
