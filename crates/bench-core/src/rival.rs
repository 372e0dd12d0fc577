//! Which of our cases PyTorch is asked to compute, and whether it did the same.

use zoo_oracle::find;

use crate::case::{Case, Task};
use crate::record::{CaseId, CaseLine, Counted, Outcome, Report, Skipped};

/// Whether PyTorch is asked for a case. Where a mechanism has fewer key and value heads, it
/// is held against the same as those that have all.
pub(crate) fn is_asked(case: &Case) -> bool {
    match &case.task {
        Task::Matmul { .. } => false,
        Task::Attention { problem, .. } => {
            find(problem.name).is_some_and(|own| own.kv_heads == problem.kv_heads)
        }
        Task::Model { .. } => true,
    }
}

/// What PyTorch is not asked for of a case, if it is not.
pub fn skipped(case: &Case) -> Option<Skipped> {
    let reason = "it is compared with PyTorch's attention of as many key heads as query heads";
    (!is_asked(case)).then(|| {
        let subject = format!("pytorch beside {}", case.subject());
        Skipped::new(case, &subject, reason.to_owned())
    })
}

/// Whether PyTorch computes the same for both.
pub(crate) fn is_same(one: &Case, other: &Case) -> bool {
    let same = match (&one.task, &other.task) {
        (Task::Attention { problem: one, .. }, Task::Attention { problem: other, .. }) => {
            one == other
        }
        (Task::Model { setup: one, .. }, Task::Model { setup: other, .. }) => one == other,
        _ => false,
    };
    same && one.pass == other.pass
}

/// What PyTorch's model comes to: as much as ours that is the same, if that was measured
/// before. One with other parameters is another model, and has no time.
pub(crate) fn held_against_ours(
    id: &CaseId,
    case: &Case,
    before: &[CaseLine],
    report: &Report,
) -> (Option<Counted>, Outcome) {
    let outcome = report.outcome.clone();
    let (Task::Model { setup, .. }, Some(theirs)) = (&case.task, report.counted) else {
        return (report.counted, outcome);
    };
    let is_ours = |line: &&CaseLine| {
        let of = |id: &CaseId| (id.problem.clone(), id.n, id.pass);
        let attention = line.id.subject.parse();
        line.id.backend != id.backend
            && of(&line.id) == of(id)
            && attention.is_ok_and(|attention| setup.model.is_same_in_pytorch(attention))
    };
    let measured = before.iter().filter(is_ours);
    let Some((ours, parameters)) = measured
        .filter_map(|line| Some((line, line.parameters?)))
        .next()
    else {
        return (Some(theirs), outcome);
    };
    let outcome = if parameters == theirs.parameters {
        outcome
    } else {
        let detail = format!(
            "it is another model: {} parameters, and ours has {parameters}",
            theirs.parameters
        );
        Outcome::Wrong {
            error: None,
            detail,
        }
    };
    let counted = Counted {
        work: ours.work,
        ..theirs
    };
    (Some(counted), outcome)
}

#[cfg(test)]
mod tests {
    use zoo_spec::Mechanism;

    use super::*;
    use crate::case::Pass;
    use crate::model::{Model, Setup, Size};
    use crate::record::tests::line;

    fn gpt(attention: Mechanism) -> Case {
        Case::model(Setup::new(Model::Gpt, Size::Tiny), attention, Pass::Train)
    }

    #[test]
    fn a_model_is_asked_for_once_whatever_its_attention() {
        let (flash, linear) = (gpt(Mechanism::Flash), gpt(Mechanism::Linear));
        assert!(is_asked(&flash) && is_same(&flash, &linear));
        let generating = Case {
            pass: Pass::Generate,
            ..flash.clone()
        };
        assert!(!is_same(&flash, &generating));
        assert!(!is_asked(&Case::matmul()));
    }

    #[test]
    fn pytorch_has_our_work_and_must_have_our_parameters() {
        let case = gpt(Mechanism::Flash);
        let of = |backend: &str, subject: &str, parameters, work| {
            let mut line = line(subject, case.n(), &[1.0]);
            line.id.backend = backend.to_owned();
            line.id.problem = case.name();
            line.id.pass = case.pass;
            line.parameters = Some(parameters);
            line.work = work;
            line
        };
        let before = [
            of("flex", "multi-query", 90, 8.0),
            of("flex", "flash", 100, 10.0),
        ];
        let theirs = of("pytorch", "sdpa", 0, 0.0);
        let held = |parameters| {
            let report = Report {
                counted: Some(Counted {
                    parameters,
                    work: 0.0,
                }),
                ..Report::without_device(theirs.outcome.clone())
            };
            held_against_ours(&theirs.id, &case, &before, &report)
        };
        let (counted, outcome) = held(100);
        assert_eq!(counted.map(|counted| counted.work), Some(10.0));
        assert_eq!(outcome, theirs.outcome);
        let (_, outcome) = held(99);
        let Outcome::Wrong { detail, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            detail.contains("99 parameters, and ours has 100"),
            "{detail}"
        );
    }
}
