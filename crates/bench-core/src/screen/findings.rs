//! Sentences about the largest differences.

use std::cmp::Ordering::Equal;

use super::{label, median, spread};
use crate::pool::group;
use crate::record::CaseLine;
use crate::reference::Reference;
use crate::table::list;
use crate::units::{count, three_digits};

const MAX_FINDINGS: usize = 5;

/// Differences to the references beyond the noise: first the fastest mechanism at the longest
/// length, then flash there, then mechanisms that overtake a reference; each by size.
pub(crate) fn findings(cases: &[CaseLine]) -> Vec<String> {
    use Reference::{Burn, Flash, PyTorch, Standard};
    let ours = cases
        .iter()
        .filter(|case| !case.is_matmul() && case.id.is_ours());
    let ours = ours.filter(|case| case.samples().is_some());
    let mut findings: Vec<(usize, f64, String)> = Vec::new();
    for (_, members) in group(ours, |case| (&case.id.problem, case.id.pass)) {
        let longest = members.iter().map(|case| case.id.n).max();
        let at_longest = || members.iter().filter(|case| Some(case.id.n) == longest);
        let is_flash = |case: &&&CaseLine| case.id.subject == Flash.name();
        let fastest =
            at_longest().min_by(|a, b| median(a).partial_cmp(&median(b)).unwrap_or(Equal));
        let fastest = fastest.filter(|case| !is_flash(case));
        let has_flash = at_longest().any(|case| is_flash(&case));
        let references = if has_flash {
            &[Flash, Standard][..]
        } else {
            &[PyTorch, Burn, Standard]
        };
        let fastest = fastest.map(|case| (usize::from(!has_flash), case, references));
        let flash = at_longest()
            .filter(is_flash)
            .map(|case| (1, case, &[PyTorch, Burn, Standard][..]));
        for (kind, case, references) in fastest.into_iter().chain(flash) {
            let finding = difference(case, references, cases);
            findings.extend(finding.map(|(size, text)| (kind, size, text)));
        }
        for reference in [Flash, Standard] {
            let finding = overtaking(&members, reference, cases);
            findings.extend(finding.map(|(size, text)| (2, size, text)));
        }
    }
    findings.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    findings.truncate(MAX_FINDINGS);
    findings.into_iter().map(|(_, _, text)| text).collect()
}

/// Time relative to a reference, if the difference is beyond their spread.
fn beyond_spread(case: &CaseLine, other: &CaseLine) -> Option<f64> {
    spread(case).and(spread(other))?;
    case.significant_ratio(other)
}

/// The largest factor of a case to the references, and a sentence with all of them.
fn difference(
    case: &CaseLine,
    references: &[Reference],
    cases: &[CaseLine],
) -> Option<(f64, String)> {
    let peak = |case: &CaseLine| Some(case.samples()?.peak.as_ref()?.bytes as f64);
    let (mut size, mut parts) = (1.0, Vec::new());
    for reference in references {
        let Some(other) = reference.of(case, cases) else {
            continue;
        };
        let Some(ratio) = beyond_spread(case, other) else {
            continue;
        };
        size = f64::max(size, ratio.max(1.0 / ratio));
        let factor = three_digits(ratio.max(1.0 / ratio));
        let speed = if ratio < 1.0 { "faster" } else { "slower" };
        let memory = peak(case)
            .zip(peak(other))
            .map(|(ours, theirs)| 100.0 * ours / theirs);
        // A tiny case can have a measured memory of 0.
        let is_notable = |percent: &f64| percent.is_finite() && !(50.0..200.0).contains(percent);
        let memory = memory.filter(is_notable);
        let memory = memory.map(|percent| format!(" with {percent:.0}% of its memory"));
        let memory = memory.unwrap_or_default();
        parts.push(format!("{factor}x {speed} than {reference}{memory}"));
    }
    let (problem, pass, n) = (&case.id.problem, case.id.pass, count(case.id.n));
    let (label, parts) = (
        label(case, cases),
        (!parts.is_empty()).then(|| list(&parts))?,
    );
    Some((
        size,
        format!("{problem}, {pass}, length {n}: {label} is {parts}"),
    ))
}

/// The number of mechanisms that are slower than a reference at the shortest length and faster at
/// the longest, and a sentence with their names.
fn overtaking(
    members: &[&CaseLine],
    reference: Reference,
    cases: &[CaseLine],
) -> Option<(f64, String)> {
    let lengths = || members.iter().map(|case| case.id.n);
    let (shortest, longest) = (lengths().min()?, lengths().max()?);
    let ratio_at = |label_: &str, n: usize| {
        let mut at = members.iter().filter(|case| case.id.n == n);
        let case = at.find(|case| label(case, cases) == label_)?;
        beyond_spread(case, reference.of(case, cases)?)
    };
    let overtakes = |name: &String| {
        ratio_at(name, shortest).is_some_and(|ratio| ratio > 1.0)
            && ratio_at(name, longest).is_some_and(|ratio| ratio < 1.0)
    };
    let at_longest = members.iter().filter(|case| case.id.n == longest);
    let names: Vec<String> = at_longest
        .map(|case| label(case, cases))
        .filter(overtakes)
        .collect();
    let (problem, pass) = (&members[0].id.problem, members[0].id.pass);
    let be = if names.len() == 1 { "is" } else { "are" };
    let [shortest, longest] = [shortest, longest].map(count);
    (!names.is_empty()).then(|| {
        let text = format!(
            "{problem}, {pass}: {} {be} slower than {reference} at length {shortest} and faster \
             at {longest}",
            list(&names)
        );
        (names.len() as f64, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::pool;
    use crate::record::{Outcome, Peak};
    use crate::test_utils::{line, steady};

    #[test]
    fn memory_is_not_compared_with_none() {
        let mut standard = steady("standard", 256, 2.0);
        if let Outcome::Measured(measured) = &mut standard.report.outcome {
            let how = "resident".to_owned();
            measured.peak = Some(Peak { bytes: 0, how });
        }
        let found = findings(&pool(&[standard, steady("flash", 256, 1.0)]));
        let expected = "layer, forward, length 256: flash is 2.00x faster than standard";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn findings_are_beyond_the_spread_and_at_most_five() {
        let found = |lines: &[CaseLine]| findings(&pool(lines));
        let noisy = line("linear", 256, &[1.5, 1.0, 2.4]);
        for (lines, expected) in [
            // Faster by less than the spread; a single sample; no reference.
            (vec![steady("flash", 256, 2.0), noisy], &[][..]),
            (
                vec![line("flash", 256, &[2.0]), steady("linear", 256, 1.0)],
                &[],
            ),
            (
                vec![steady("block", 256, 2.0), steady("linear", 256, 1.0)],
                &[],
            ),
            (
                vec![
                    steady("standard", 256, 1.0),
                    steady("linear", 256, 2.0),
                    steady("lsh", 256, 2.0),
                    steady("standard", 1024, 2.0),
                    steady("linear", 1024, 1.0),
                    steady("lsh", 1024, 1.6),
                ],
                &[
                    "layer, forward, length 1,024: linear is 2.00x faster than standard",
                    "layer, forward: linear and lsh are slower than standard at length 256 and \
                     faster at 1,024",
                ],
            ),
        ] {
            assert_eq!(found(&lines), expected);
        }
        let problem = |name: String| {
            ["flash", "standard"].map(|subject| {
                let mut line = steady(subject, 256, subject.len() as f64);
                line.id.problem = name.clone();
                line
            })
        };
        let many: Vec<_> = (0..9)
            .flat_map(|i| problem(format!("problem-{i}")))
            .collect();
        assert_eq!(found(&many).len(), MAX_FINDINGS);
    }
}
