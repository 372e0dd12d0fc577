//! The Burn side of `--vs burn`: `burn::tensor::module::attention`, measured by `zoo-bench` on each
//! backend.

use zoo_oracle::Problem;

use crate::case::{Case, Task, own_problem};
use crate::library::is_last_of_problem;
use crate::record::Skipped;

/// Burn's attention in results, and in `--mechanism` of `zoo-bench`.
pub const SUBJECT: &str = "burn-attention";

/// The case of Burn that runs after `cases[i]`: once for each problem, length and pass.
pub(crate) fn case_after(cases: &[Case], i: usize) -> Option<Case> {
    let case = attention_after(cases, i)?;
    case.unsupported_reason().is_none().then_some(case)
}

/// The cases that Burn does not run beside `cases`.
pub(crate) fn skipped(cases: &[Case]) -> Vec<Skipped> {
    let skipped = |i: usize| {
        let case = &cases[i];
        let reason = match &case.task {
            Task::Matmul | Task::BurnAttention { .. } => None,
            Task::Attention { .. } => attention_after(cases, i)?.unsupported_reason(),
            Task::Model { .. } => {
                is_last_of_problem(cases, i).then(|| "models are not compared with Burn".to_owned())
            }
        };
        Some(Skipped::new(case, SUBJECT, reason?))
    };
    (0..cases.len()).filter_map(skipped).collect()
}

/// Burn's attention on the problem of `cases[i]`, if it is the last case with that problem.
fn attention_after(cases: &[Case], i: usize) -> Option<Case> {
    match &cases[i].task {
        Task::Attention { problem, .. } if is_last_of_problem(cases, i) => {
            Some(Case::burn_attention(own_problem(problem), cases[i].pass))
        }
        Task::Matmul | Task::Attention { .. } | Task::BurnAttention { .. } | Task::Model { .. } => {
            None
        }
    }
}

/// Why Burn's attention does not support a problem.
pub(crate) fn unsupported_reason(problem: &Problem) -> Option<String> {
    let options = [
        (problem.dropout.is_some(), "Burn's attention has no dropout"),
        (
            problem.alibi,
            "Burn's attention has ALiBi only as a bias of every query and key",
        ),
        (
            problem.kv_heads != problem.heads,
            "Burn's attention needs as many key and value heads as query heads",
        ),
    ];
    let unsupported = options.into_iter().find(|(is_set, _)| *is_set);
    unsupported.map(|(_, reason)| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use zoo_spec::Mechanism;

    use super::*;
    use crate::case::{Pass, problem};
    use crate::model::{Model, Setup, Size};

    fn attention(mechanism: Mechanism, name: &str, pass: Pass) -> Case {
        let problem = problem(name, None).expect("in the catalogue");
        Case::attention(mechanism, problem, pass)
    }

    #[test]
    fn attention_runs_once_for_each_problem_and_pass() {
        let cases = [
            attention(Mechanism::Flash, "layer", Pass::Forward),
            attention(Mechanism::MultiQuery, "layer", Pass::Forward),
            attention(Mechanism::Flash, "layer", Pass::Train),
            attention(Mechanism::Flash, "decode-step", Pass::Decode),
            Case::matmul(),
        ];
        let layer = |pass| Case::burn_attention(problem("layer", None).expect("known"), pass);
        let decode =
            Case::burn_attention(problem("decode-step", None).expect("known"), Pass::Decode);
        let after: Vec<_> = (0..cases.len()).map(|i| case_after(&cases, i)).collect();
        // With the key and value heads of the problem, not of multi-query.
        let expected = [
            None,
            Some(layer(Pass::Forward)),
            Some(layer(Pass::Train)),
            Some(decode),
            None,
        ];
        assert_eq!(after, expected);
        assert_eq!(skipped(&cases), []);
    }

    #[test]
    fn unsupported_cases_are_skipped_with_a_reason() {
        let train = Pass::Train;
        let flash = |name: &str| attention(Mechanism::Flash, name, train);
        let gpt = |attention| Case::model(Setup::new(Model::Gpt, Size::Tiny), attention, train);
        for (case, reason) in [
            (flash("layer-window"), None),
            (flash("softcap"), None),
            (
                flash("bias-of-keys"),
                Some("as many key and value heads as query heads"),
            ),
            (flash("bias"), None),
            (flash("odd"), None),
            (flash("unscaled"), None),
            (
                flash("grouped-heads"),
                Some("as many key and value heads as query heads"),
            ),
            (flash("alibi"), Some("ALiBi")),
            (flash("dropout"), Some("no dropout")),
            (gpt(Mechanism::Flash), Some("models are not compared")),
        ] {
            let skipped = skipped(std::slice::from_ref(&case));
            match (&skipped[..], reason) {
                ([], None) => {}
                ([skipped], Some(reason)) => {
                    assert!(skipped.reason.contains(reason), "{skipped:?}");
                    assert_eq!(skipped.subject, SUBJECT);
                }
                _ => panic!("{case:?}: {skipped:?}, expected {reason:?}"),
            }
            let is_run = case_after(std::slice::from_ref(&case), 0).is_some();
            assert_eq!(is_run, reason.is_none(), "{case:?}");
        }
        // A model is listed once for all its attention mechanisms.
        let models = [gpt(Mechanism::Flash), gpt(Mechanism::Linear)];
        assert_eq!(skipped(&models).len(), 1);
    }
}
