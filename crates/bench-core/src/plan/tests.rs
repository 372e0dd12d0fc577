use zoo_oracle::find;

use super::*;

/// Parses flags, including `--full`, which is not a flag of [`Selection`].
fn parse(flags: &str) -> Selection {
    let (extent, flags) = match flags.strip_prefix("--full") {
        Some(flags) => (Extent::Full, flags),
        None => (Extent::Quick, flags),
    };
    let selection = Selection::parse(flags).unwrap_or_else(|error| panic!("{error}"));
    Selection {
        extent,
        ..selection
    }
}

/// One string per case, with its passes merged.
fn names(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for case in &plan.cases {
        let name = format!("{} {} {}", case.subject(), case.name(), case.n());
        match names.last_mut().filter(|last| last.starts_with(&name)) {
            Some(last) => *last += &format!(" {}", case.pass),
            None => names.push(format!("{name} {}", case.pass)),
        }
    }
    names
}

#[test]
fn flags_select_the_expected_cases() {
    let lines = include_str!("selections.txt").lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let mut selections = 0;
    for (i, flags) in lines.iter().enumerate() {
        if !flags.starts_with("--") {
            continue;
        }
        selections += 1;
        let plan = parse(flags).plan();
        let plan = plan.unwrap_or_else(|error| panic!("{flags}: {error}"));
        let (names, skipped) = (names(&plan), skipped_lines(&plan.skipped).join("\n"));
        let is_planned = |name: &str| names.iter().any(|planned| planned.starts_with(name));
        let mut cases = Vec::new();
        let expected = lines[i + 1..].iter();
        for line in expected.take_while(|line| !line.starts_with("--")) {
            let holds = match line.split_once(' ') {
                Some(("+", name)) => is_planned(name),
                Some(("-", name)) => !is_planned(name),
                Some(("skipped:", part)) => skipped.contains(part),
                Some(_) => {
                    cases.push(*line);
                    true
                }
                None => true,
            };
            assert!(holds, "{line} of {flags}: {names:?}\n{skipped}");
        }
        assert!(cases.is_empty() || names == cases, "{flags}: {names:?}");
    }
    assert_eq!(selections, 14);
}

/// A case that is run directly, without a plan.
#[test]
fn only_a_single_query_is_decoded() {
    let reason = |name| {
        let problem = find(name).expect("a problem of the catalogue");
        Case::attention(Mechanism::Flash, problem, Pass::Decode).unsupported_reason()
    };
    assert_eq!(reason("decode-step"), None);
    let expected = "decode needs one query, as in decode-step";
    assert_eq!(reason("layer").as_deref(), Some(expected));
}

#[test]
fn every_mechanism_is_run_or_skipped_with_a_reason() {
    for flags in [
        "",
        "--full",
        "--full --suite decode",
        "--suite all --pass decode",
        "--suite all --pass train",
    ] {
        let selection = parse(flags);
        let plan = selection.plan().expect("cases");
        let problems = selection.sized_problems().expect("problems");
        let passes = |problem| selection.passes_or(default_passes(problem)).len();
        let num_passes: usize = problems.iter().map(passes).sum();
        let run = plan.cases.iter().map(Case::name);
        let skipped = plan.skipped.iter().map(|case| case.problem.clone());
        let is_attention = |name: &String| find(name).is_some();
        assert_eq!(
            run.chain(skipped).filter(is_attention).count(),
            num_passes * Mechanism::ALL.len(),
            "{flags}"
        );
        assert!(plan.skipped.iter().all(|case| !case.reason.is_empty()));
    }
}
