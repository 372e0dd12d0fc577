//! Whether a test's sizes show what a mechanism does at all.

use burn::tensor::Device;
use zoo_attention::MechanismConfig;
use zoo_oracle::{Difference, Mask, Problem, kv_heads_of, solve};

use crate::judge::given;
use crate::tensors::Tensors;

/// Checks that a mechanism is not full attention for `heads` query heads and sequences of
/// `[seq_q, seq_k]` positions under a mask: by the oracle's weights for random queries and keys,
/// it hides a key that the mask shows, or weights keys differently; whatever
/// [`Difference`] says of it. A test of a mechanism at sizes where this fails tests nothing of it.
#[track_caller]
pub fn differs_from_full(
    mechanism: &MechanismConfig,
    heads: usize,
    [seq_q, seq_k]: [usize; 2],
    mask: Mask,
    device: &Device,
) {
    let kv_heads = kv_heads_of(mechanism, heads).unwrap_or(heads);
    let problem = Problem::new("differs from full attention", [2, heads, seq_q, seq_k, 8])
        .with_kv_heads(kv_heads)
        .with_mask(mask);
    let case = format!("{mechanism:?} with {heads} heads, {seq_q} queries and {seq_k} keys");
    let difference = Difference::of(mechanism.mechanism());
    match difference {
        Difference::None => return,
        Difference::SharedHeads => {
            assert!(kv_heads < heads, "{case}: no head is shared");
            return;
        }
        Difference::HiddenKeys | Difference::Weights => {}
    }
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device);
    let [own, full] = [given(mechanism, &problem, &tensors), problem.clone()]
        .map(|problem| solve(&problem, &inputs).weights);
    /// A difference of weights that no rounding makes.
    const CLEARLY: f64 = 0.05;
    let pairs = || own.iter().zip(&full).enumerate();
    let is_different = match difference {
        // The position itself does not count: `lsh` hides it at any size.
        Difference::HiddenKeys => pairs().any(|(at, (own, full))| {
            let (i, j) = (at / seq_k % seq_q, at % seq_k);
            *own == 0.0 && *full > 0.0 && i + seq_k != j + seq_q
        }),
        _ => pairs().any(|(_, (own, full))| (own - full).abs() > CLEARLY),
    };
    assert!(is_different, "{case}: it is full attention");
    let sees_several = |row: &[f64]| row.iter().filter(|weight| **weight != 0.0).count() > 1;
    let is_seen = own.chunks(seq_k).any(sees_several) || difference != Difference::HiddenKeys;
    assert!(is_seen, "{case}: no query sees more than one key");
}
