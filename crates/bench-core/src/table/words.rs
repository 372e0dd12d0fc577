//! Cases in words: what they are called, what became of them, and how to read their tables.

use crate::pool::{Pool, Pooled};
use crate::record::{CaseId, Outcome, Skipped};
use crate::units::{count, time};

/// What became of a case that has no time, in a word or three.
pub fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Measured(_) => "measured",
        Outcome::Wrong { .. } => "WRONG",
        Outcome::TimedOut { .. } => "TIMED OUT",
        Outcome::OutOfMemory { .. } => "OUT OF MEMORY",
        Outcome::Failed { .. } => "FAILED",
    }
}

/// How to read the tables.
pub const LEGEND: &str = "\
median, 10th, 90th: time of one pass and its percentiles; GFLOP/s: counted matmul work over the \
median, and its share of this backend's own matmul rate
memory: inputs, results, gradients and all in between, by resident set, memory pool, \
LibTorch's allocator or driver; of least: times what inputs, results and gradients alone take, or a \
model's parameters and what an optimizer keeps of them
tokens/s: of a model, those that go in, source and target, or that are generated; its GFLOP/s \
count three forward passes for a step of training
error: the worst, relative to the largest number of its tensor, against the oracle in f64; *: the \
best of its length
vs: times as long as the other (lowest..highest of a round); below 1 is faster";

/// What the cases without a time have to say.
pub fn remarks(cases: &[Pooled]) -> Vec<String> {
    cases
        .iter()
        .filter_map(|case| {
            let Pool::Without(outcome) = &case.result else {
                return None;
            };
            let detail = match outcome {
                Outcome::Measured(_) => return None,
                Outcome::Wrong { detail, .. } => detail.clone(),
                Outcome::TimedOut { seconds } => format!("not done after {}", time(*seconds)),
                Outcome::OutOfMemory { detail } => detail.clone(),
                Outcome::Failed { message } => message.clone(),
            };
            Some(format!("{}: {}: {detail}", name(&case.id), word(outcome)))
        })
        .collect()
}

/// A line for each mechanism, problem and pass that was not run, with its lengths and the reason.
pub fn skipped_lines(skipped: &[Skipped]) -> Vec<String> {
    let mut groups: Vec<(&Skipped, Vec<String>)> = Vec::new();
    for case in skipped {
        let group = groups.iter_mut().find(|(first, _)| {
            first.subject == case.subject
                && first.problem == case.problem
                && first.pass == case.pass
                && first.reason == case.reason
        });
        match group {
            Some((_, lengths)) => lengths.push(count(case.n)),
            None => groups.push((case, vec![count(case.n)])),
        }
    }
    let line = |(case, lengths): &(&Skipped, Vec<String>)| {
        let lengths = match lengths.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        };
        format!(
            "skipped: {} in {} at n = {lengths}, {}: {}",
            case.subject, case.problem, case.pass, case.reason
        )
    };
    groups.iter().map(line).collect()
}

/// A case in a line: `flex standard on layer at n = 1,024, train, f32`.
pub fn name(id: &CaseId) -> String {
    format!(
        "{} {} on {} at n = {}, {}, {}",
        id.backend,
        id.subject,
        id.problem,
        count(id.n),
        id.pass,
        id.dtype
    )
}
