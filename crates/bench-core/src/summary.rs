//! The results in three sentences: what was measured, the main difference, and whether the results
//! are correct.

use crate::pool::distinct;
use crate::record::{CaseLine, Skipped};
use crate::screen::findings;
use crate::table::list;
use crate::units::count;

pub(crate) fn summary(cases: &[CaseLine], skipped: &[Skipped]) -> [String; 3] {
    let cases: Vec<CaseLine> = cases.iter().filter(|it| !it.is_matmul()).cloned().collect();
    [
        measured(&cases),
        difference(&cases),
        correctness(&cases, skipped),
    ]
}

fn plural(n: usize, name: &str) -> String {
    let ending = match n {
        1 => "",
        _ if name.ends_with("pass") => "es",
        _ => "s",
    };
    format!("{} {name}{ending}", count(n))
}

fn measured(cases: &[CaseLine]) -> String {
    let names = |of: &dyn Fn(&CaseLine) -> Option<String>| -> Vec<String> {
        let names: Vec<String> = cases.iter().filter_map(of).collect();
        distinct(names.iter()).into_iter().cloned().collect()
    };
    let ours = |case: &CaseLine| case.id.is_ours();
    let mechanisms = names(&|case| ours(case).then(|| case.id.subject.clone()));
    let backends = names(&|case| ours(case).then(|| case.id.backend.clone()));
    let passes = names(&|case| Some(case.id.pass.to_string()));
    let problems = names(&|case| Some(case.id.problem.clone()));
    let libraries = names(&|case| Some(case.id.library()?.title().to_owned()));
    let libraries = match &libraries[..] {
        [] => String::new(),
        libraries => format!(", and {}", list(libraries)),
    };
    let lengths = || cases.iter().map(|case| case.id.n);
    let lengths = match (lengths().min(), lengths().max()) {
        (Some(low), Some(high)) if low < high => {
            format!("sequence lengths from {} to {}", count(low), count(high))
        }
        (Some(n), _) => format!("sequence length {}", count(n)),
        (None, _) => return "Nothing was measured.".to_owned(),
    };
    let pass = if passes.len() == 1 { "pass" } else { "passes" };
    format!(
        "{} on {}{libraries}: {} {pass} of {}, at {lengths}.",
        plural(mechanisms.len(), "mechanism"),
        list(&backends),
        list(&passes),
        list(&problems),
    )
}

fn difference(cases: &[CaseLine]) -> String {
    match findings(cases).first() {
        Some(finding) => format!("Main difference: {finding}."),
        None => "No difference from flash, standard or other libraries exceeds the spread of the \
             measurements."
            .to_owned(),
    }
}

fn correctness(cases: &[CaseLine], skipped: &[Skipped]) -> String {
    let samples = || cases.iter().filter_map(CaseLine::samples);
    let (measured, failed) = (samples().count(), cases.len() - samples().count());
    let error = samples().filter_map(|it| it.error).reduce(f64::max);
    let errors = error.map_or(String::new(), |error| {
        format!(", with relative errors of at most {error:.1e} against the f64 reference")
    });
    let others = match (failed, skipped.len()) {
        (0, 0) => "none failed".to_owned(),
        (0, skipped) => format!("none failed and {} skipped", were(skipped)),
        (failed, 0) => format!("{} failed", count(failed)),
        (failed, skipped) => format!("{} failed and {} skipped", count(failed), were(skipped)),
    };
    format!("{} measured{errors}; {others}.", plural(measured, "case"))
}

fn were(n: usize) -> String {
    format!("{} {}", count(n), if n == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burn;
    use crate::pool::pool;
    use crate::record::Outcome;
    use crate::test_utils::{failed_line, line, on_backend, skipped};

    fn steady(subject: &str, n: usize, ms: f64) -> CaseLine {
        line(subject, n, &[ms, 0.99 * ms, 1.01 * ms])
    }

    #[test]
    fn summary_has_three_sentences() {
        let lines = [
            steady("standard", 256, 4.0),
            steady("flash", 256, 2.0),
            steady("standard", 1024, 60.0),
            steady("flash", 1024, 20.0),
            on_backend("pytorch", steady("sdpa", 1024, 20.0)),
            steady(burn::SUBJECT, 1024, 21.0),
            failed_line("linear", 1024, Outcome::TimedOut { seconds: 1.0 }),
        ];
        let expected = [
            "3 mechanisms on flex, and PyTorch and Burn: forward pass of layer, at sequence lengths \
             from 256 to 1,024.",
            "Main difference: layer, forward, length 1,024: flash is 3.00x faster than standard.",
            "6 cases measured, with relative errors of at most 1.0e-7 against the f64 reference; 1 \
             failed and 1 was skipped.",
        ];
        assert_eq!(
            summary(&pool(&lines), &[skipped("additive", 1024, "slow")]),
            expected
        );
    }

    #[test]
    fn few_cases_are_summarised() {
        let one = pool(&[steady("flash", 256, 1.0)]);
        let expected = [
            "1 mechanism on flex: forward pass of layer, at sequence length 256.",
            "No difference from flash, standard or other libraries exceeds the spread of the \
             measurements.",
            "1 case measured, with relative errors of at most 1.0e-7 against the f64 reference; none \
             failed.",
        ];
        assert_eq!(summary(&one, &[]), expected);
        assert_eq!(summary(&[], &[])[0], "Nothing was measured.");
    }
}
