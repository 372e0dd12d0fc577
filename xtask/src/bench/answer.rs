//! What a run comes to, printed.

use std::io::Write;

use anyhow::Result;
use zoo_bench_core::findings::{families, findings};
use zoo_bench_core::pool::{Pool, Pooled};
use zoo_bench_core::record::Skipped;
use zoo_bench_core::table::{self, Against};
use zoo_bench_core::units;

use super::Format;

/// Prints the tables or the numbers of a run, what they show, and what went wrong.
pub(super) fn show(
    format: Format,
    cases: &[Pooled],
    skipped: &[Skipped],
    against: Against<'_>,
) -> Result<()> {
    let sections = table::sections(cases, against);
    let mut text = match format {
        Format::Table => devices(cases) + &table::terminal(&sections, terminal_width()),
        Format::Markdown => table::markdown(&sections),
        Format::Json => serde_json::to_string_pretty(&summary(cases, skipped))? + "\n",
    };
    if format != Format::Json {
        let findings = findings(&families(cases));
        let remarks = table::remarks(cases);
        let skipped = table::skipped_lines(skipped);
        for line in findings.iter().chain(&remarks).chain(&skipped) {
            text.push_str(line);
            text.push('\n');
        }
        if format == Format::Table {
            text.push_str(table::LEGEND);
            text.push('\n');
        }
    }
    // A reader that has seen enough (`| head`) is no failure of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// What computes which mechanisms, for each backend.
fn bodies(cases: &[Pooled]) -> Vec<(&str, &str, Vec<&str>)> {
    let mut bodies: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for case in cases {
        let Some(body) = &case.body else { continue };
        let (backend, mechanism) = (case.id.backend.as_str(), case.id.subject.as_str());
        let found = bodies
            .iter_mut()
            .find(|(other, by, _)| *other == backend && by == body);
        match found {
            Some((.., mechanisms)) if mechanisms.contains(&mechanism) => {}
            Some((.., mechanisms)) => mechanisms.push(mechanism),
            None => bodies.push((backend, body, vec![mechanism])),
        }
    }
    bodies
}

fn devices(cases: &[Pooled]) -> String {
    let mut text = String::new();
    for device in cases.iter().filter_map(|case| case.device.as_ref()) {
        let line = format!("device: {device}\n");
        if !text.contains(&line) {
            text.push_str(&line);
        }
    }
    for (backend, body, mechanisms) in bodies(cases) {
        let mechanisms = mechanisms.join(", ");
        text.push_str(&format!(
            "body: {backend} computes {mechanisms} by {body}\n"
        ));
    }
    for case in cases.iter().filter(|case| case.id.subject == "matmul") {
        if let Some(rate) = case.rate() {
            let (n, backend) = (units::count(case.id.n), &case.id.backend);
            let rate = units::three_digits(rate / 1e9);
            text.push_str(&format!(
                "matmul: {backend} multiplies {n} x {n} at {rate} GFLOP/s\n"
            ));
        }
    }
    for (model, parameters) in parameters(cases) {
        let parameters = units::count(parameters as usize);
        text.push_str(&format!("model: {model} has {parameters} parameters\n"));
    }
    text.push('\n');
    text
}

/// How large each model is that was measured.
fn parameters(cases: &[Pooled]) -> Vec<(String, u64)> {
    let mut models = Vec::new();
    let ours = cases.iter().filter(|case| case.id.backend != "pytorch");
    for case in ours {
        let Some(parameters) = case.parameters else {
            continue;
        };
        let model = (
            format!("{} with {}", case.id.problem, case.id.subject),
            parameters,
        );
        if !models.contains(&model) {
            models.push(model);
        }
    }
    models
}

/// The cases as JSON: what the table shows, as numbers; those that were not run have a reason in
/// place of a result.
fn summary(cases: &[Pooled], skipped: &[Skipped]) -> Vec<serde_json::Value> {
    let of = |case: &Pooled| {
        let mut value = serde_json::json!({
            "case": case.id,
            "device": case.device,
            "work": case.work,
            "minimum_bytes": case.minimum_bytes,
            "parameters": case.parameters,
        });
        value["result"] = match &case.result {
            Pool::Samples(samples) => serde_json::json!({
                "median": samples.median(),
                "p10": samples.quantile(0.1),
                "p90": samples.quantile(0.9),
                "samples": samples.count(),
                "flops_per_second": case.rate(),
                "tokens_per_second": case.tokens_per_second(),
                "peak": samples.peak,
                "error": samples.error,
                "checked": samples.checked,
            }),
            Pool::Without(outcome) => serde_json::json!({ "outcome": outcome }),
        };
        value
    };
    let skipped = skipped
        .iter()
        .map(|case| serde_json::json!({ "skipped": case }));
    cases.iter().map(of).chain(skipped).collect()
}

/// Characters in a line, if there is a terminal to show them.
fn terminal_width() -> Option<usize> {
    console::Term::stdout()
        .size_checked()
        .map(|(_, columns)| usize::from(columns))
}
