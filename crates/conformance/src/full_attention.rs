//! Assertion that a test's sizes distinguish a mechanism from full attention.

use burn::tensor::Device;
use zoo_attention::MechanismConfig;
use zoo_oracle::{Difference, Mask, Problem, expected_kv_heads, solve};

use crate::compare::reference_problem;
use crate::tensors::Tensors;

/// Checks that a mechanism differs from full attention with these sizes and mask as [`Difference`]
/// says, by the oracle's weights for random queries and keys: it masks a key that `mask` does not,
/// or has other weights. A test at sizes where this fails would only test full attention.
#[track_caller]
pub fn assert_not_full_attention(
    mechanism: &MechanismConfig,
    heads: usize,
    [seq_q, seq_k]: [usize; 2],
    mask: Mask,
    device: &Device,
) {
    let kv_heads = expected_kv_heads(mechanism, heads).unwrap_or(heads);
    let problem = Problem::new("differs from full attention", [2, heads, seq_q, seq_k, 8])
        .with_kv_heads(kv_heads)
        .with_mask(mask);
    let case = format!("{mechanism:?} with {heads} heads, {seq_q} queries and {seq_k} keys");
    let difference = Difference::from(mechanism.mechanism());
    match difference {
        Difference::None => return,
        Difference::SharedHeads => {
            assert!(kv_heads < heads, "{case}: no KV head is shared");
            return;
        }
        Difference::MaskedKeys | Difference::Weights => {}
    }
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device);
    let reference = reference_problem(mechanism, &problem, &tensors);
    let [own, full] = [&reference, &problem].map(|problem| solve(problem, &inputs).weights);
    /// Far above rounding errors.
    const MIN_DIFFERENCE: f64 = 0.05;
    let pairs = || own.iter().zip(&full).enumerate();
    let is_different = match difference {
        // The own position does not count: `lsh` masks it at any size.
        Difference::MaskedKeys => pairs().any(|(index, (own, full))| {
            let (i, j) = (index / seq_k % seq_q, index % seq_k);
            *own == 0.0 && *full > 0.0 && i + seq_k != j + seq_q
        }),
        _ => pairs().any(|(_, (own, full))| (own - full).abs() > MIN_DIFFERENCE),
    };
    assert!(is_different, "{case}: equal to full attention");
    let has_several_keys = |row: &[f64]| row.iter().filter(|weight| **weight != 0.0).count() > 1;
    let attends = own.chunks(seq_k).any(has_several_keys);
    let is_valid = attends || difference != Difference::MaskedKeys;
    assert!(is_valid, "{case}: no query attends to two keys");
}
