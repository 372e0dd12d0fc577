//! Cases in words: what they are called, what became of them, and how to read their tables.

use crate::pool::{Pooled, group};
use crate::record::{Outcome, Skipped};
use crate::units::{count, time};

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
    let remark = |case: &Pooled| {
        let detail = match &case.outcome {
            Outcome::Measured(_) => return None,
            Outcome::Wrong { detail, .. } | Outcome::OutOfMemory { detail } => detail.clone(),
            Outcome::TimedOut { seconds } => format!("not done after {}", time(*seconds)),
            Outcome::Failed { message } => message.clone(),
        };
        Some(format!("{}: {}: {detail}", case.id, case.outcome.word()))
    };
    cases.iter().filter_map(remark).collect()
}

/// A line for each mechanism, problem and pass that was not run, with its lengths and the reason.
pub fn skipped_lines(skipped: &[Skipped]) -> Vec<String> {
    let groups = group(skipped, |case| {
        let Skipped {
            subject, problem, ..
        } = case;
        (subject, problem, case.pass, &case.reason)
    });
    let line = |((subject, problem, pass, reason), cases): (_, Vec<&Skipped>)| {
        let lengths: Vec<String> = cases.iter().map(|case| count(case.n)).collect();
        let lengths = match lengths.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        };
        format!("skipped: {subject} in {problem} at n = {lengths}, {pass}: {reason}")
    };
    groups.into_iter().map(line).collect()
}
