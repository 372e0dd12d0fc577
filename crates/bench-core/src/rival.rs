//! Which of our cases PyTorch is asked to compute, and whether it did the same.

use zoo_oracle::find;

use crate::case::{Case, Task};
use crate::record::{CaseId, CaseLine, Outcome, Report, Skipped};

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

/// PyTorch's report with the work of our model that is the same, if that was measured before. One
/// with other parameters is another model, and has no time.
pub(crate) fn compared_with_ours(
    id: &CaseId,
    case: &Case,
    before: &[CaseLine],
    mut report: Report,
) -> Report {
    let (Task::Model { setup, .. }, Some(theirs)) = (&case.task, report.parameters) else {
        return report;
    };
    let is_ours = |line: &&CaseLine| {
        let attention = line.id.subject.parse();
        line.id.backend != id.backend
            && line.id.is_of_same_problem(id)
            && attention.is_ok_and(|attention| setup.model.is_same_in_pytorch(attention))
    };
    let mut measured = before.iter().filter(is_ours);
    let found = measured.find_map(|line| Some((line.report.work, line.report.parameters?)));
    if let Some((work, ours)) = found {
        report.work = work;
        if ours != theirs {
            let detail = format!("it is another model: {theirs} parameters, and ours has {ours}");
            report.outcome = Outcome::wrong(detail);
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use zoo_spec::Mechanism;

    use super::*;
    use crate::case::Pass;
    use crate::for_tests::line;
    use crate::model::{Model, Setup, Size};

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
            line.report.parameters = Some(parameters);
            line.report.work = Some(work);
            line
        };
        let before = [
            of("flex", "multi-query", 90, 8.0),
            of("flex", "flash", 100, 10.0),
        ];
        let theirs = of("pytorch", "sdpa", 0, 0.0);
        let compared = |parameters| {
            let report = Report {
                parameters: Some(parameters),
                ..theirs.report.outcome.clone().into()
            };
            compared_with_ours(&theirs.id, &case, &before, report)
        };
        let report = compared(100);
        assert_eq!(report.work, Some(10.0));
        assert_eq!(report.outcome, theirs.report.outcome);
        let outcome = format!("{:?}", compared(99).outcome);
        let says = "99 parameters, and ours has 100";
        assert!(
            outcome.contains("Wrong") && outcome.contains(says),
            "{outcome}"
        );
    }
}
