use zoo_oracle::find;

use super::*;

/// The choice of some flags, of which `--full` is none of [`Selection`]'s own.
fn selected(flags: &str) -> Selection {
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

/// Each case in a line, with the passes of the same one side by side.
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
fn a_choice_comes_to_its_cases() {
    let lines = include_str!("choices.txt").lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let mut choices = 0;
    for (at, flags) in lines.iter().enumerate() {
        if !flags.starts_with("--") {
            continue;
        }
        choices += 1;
        let plan = selected(flags).plan();
        let plan = plan.unwrap_or_else(|error| panic!("{flags}: {error}"));
        let (names, skipped) = (names(&plan), skipped_lines(&plan.skipped).join("\n"));
        let is_planned = |name: &str| names.iter().any(|planned| planned.starts_with(name));
        let mut cases = Vec::new();
        let of_choice = lines[at + 1..].iter();
        for line in of_choice.take_while(|line| !line.starts_with("--")) {
            let is_so = match line.split_once(' ') {
                Some(("+", name)) => is_planned(name),
                Some(("-", name)) => !is_planned(name),
                Some(("skipped:", part)) => skipped.contains(part),
                Some(_) => {
                    cases.push(*line);
                    true
                }
                None => true,
            };
            assert!(is_so, "{line} of {flags}: {names:?}\n{skipped}");
        }
        assert!(cases.is_empty() || names == cases, "{flags}: {names:?}");
    }
    assert_eq!(choices, 15);
}

/// Every mechanism of the catalogue is a case or named among those that are none, at every
/// length and in every pass, with a reason.
#[test]
fn nothing_is_left_out_in_silence() {
    for flags in [
        "",
        "--full",
        "--full --suite decode",
        "--suite all --pass decode",
        "--suite all --pass train",
    ] {
        let selection = selected(flags);
        let plan = selection.plan().expect("cases");
        let problems = selection.sized_problems().expect("they are there");
        let passes = |problem| selection.passes_or(passes_of(problem)).len();
        let of_attention: usize = problems.iter().map(passes).sum();
        let run = plan.cases.iter().map(Case::name);
        let skipped = plan.skipped.iter().map(|case| case.problem.clone());
        let is_attention = |name: &String| find(name).is_some();
        assert_eq!(
            run.chain(skipped).filter(is_attention).count(),
            of_attention * Mechanism::ALL.len(),
            "{flags}"
        );
        assert!(plan.skipped.iter().all(|case| !case.reason.is_empty()));
    }
}
