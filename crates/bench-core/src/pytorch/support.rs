//! The cases that PyTorch runs.

use zoo_oracle::{Difference, Mask, Problem};
use zoo_spec::Mechanism;

use crate::case::{Case, Pass, Task};
use crate::units;

/// Whether PyTorch needs the mask of a problem as a tensor.
pub(super) fn needs_dense_mask(problem: &Problem) -> bool {
    match problem.mask {
        Mask::Full => false,
        // `is_causal` of PyTorch is meant for square attention. A single query attends to all keys.
        Mask::Causal => problem.seq_q != problem.seq_k && problem.seq_q != 1,
        _ => true,
    }
}

/// Why PyTorch does not run a case.
pub(super) fn unsupported_reason(case: &Case) -> Option<String> {
    let Task::Attention { mechanism, problem } = &case.task else {
        return None;
    };
    let options = [
        (problem.softcap.is_some(), "a softcap"),
        (problem.alibi, "ALiBi"),
        (problem.bias.is_some(), "a bias"),
        (problem.dropout.is_some(), "dropout"),
    ];
    if let Some((_, option)) = options.into_iter().find(|(is_set, _)| *is_set) {
        return Some(format!("problems with {option} are not compared"));
    }
    let is_causal_only = matches!(
        mechanism,
        Mechanism::LocalP
            | Mechanism::Lsh
            | Mechanism::Moba
            | Mechanism::NativeSparse
            | Mechanism::Nystrom
            | Mechanism::Linformer
            | Mechanism::Linear
            | Mechanism::Performer
            | Mechanism::Cosformer
            | Mechanism::Based
            | Mechanism::Retention
            | Mechanism::Lightning
            | Mechanism::Mamba2
            | Mechanism::Gla
            | Mechanism::Delta
            | Mechanism::GatedDelta
            | Mechanism::Kda
    );
    if is_causal_only && needs_dense_mask(problem) {
        return Some("in PyTorch, it supports only full and causal attention".to_owned());
    }
    let is_plain = matches!(
        mechanism,
        Mechanism::Standard
            | Mechanism::Additive
            | Mechanism::Hard
            | Mechanism::Relative
            | Mechanism::Forgetting
    );
    if is_plain && has_fully_masked_query(problem) {
        return Some("in PyTorch, the softmax of fully masked queries is NaN".to_owned());
    }
    let has_pattern = Difference::from(*mechanism) == Difference::MaskedKeys
        || *mechanism == Mechanism::NativeSparse;
    if has_pattern && problem.seq_q > problem.seq_k {
        return Some("in PyTorch, it does not support more queries than keys".to_owned());
    }
    // Gradients need the tanh of every query and key.
    const MAX_BYTES: usize = 4 << 30;
    let bytes = 4 * problem.queries() * problem.seq_k * problem.d_head;
    let is_large = *mechanism == Mechanism::Additive && case.pass == Pass::Train;
    (is_large && bytes > MAX_BYTES).then(|| {
        let size = units::bytes(bytes as f64);
        format!("training would need {size} in PyTorch, for every query, key and d_head")
    })
}

fn has_fully_masked_query(problem: &Problem) -> bool {
    let is_square = problem.seq_q == problem.seq_k;
    // Other masks have a fixed, short length.
    let is_long = matches!(problem.mask, Mask::Window { .. }) && is_square;
    let is_fully_masked = |row| problem.mask_row(row).iter().all(|&masked| masked);
    needs_dense_mask(problem) && !is_long && (0..problem.queries()).any(is_fully_masked)
}
