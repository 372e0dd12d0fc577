//! The end of a sweep: a table, and a page of quality against cost.

use zoo_config::wrap;

use super::super::runs::compare::{last, page};
use super::super::runs::record::{RunContent, State};
use super::super::runs::{TextCells, by_quality, find};
use super::super::terminal::{table, width};
use super::{Failure, Skipped, Sweep};
use crate::Result;
use crate::files::write_output;
use crate::out::print_line;
use crate::report::format::{metric_value, thousands};
use crate::run::TEST;

const PAGE: &str = "sweep.html";

/// Prints the results of the variants, the best first, and writes the page of all runs in the folder
/// of the sweep.
pub(super) fn report(sweep: &Sweep, failures: &[Failure], is_stopped: bool) -> Result<()> {
    let mut all = runs(sweep);
    all.sort_by(|a, b| by_quality(&a.record, &b.record));
    let is_variant = |run: &&RunContent| {
        let mut variants = sweep.variants.iter();
        variants.any(|variant| variant.name == run.record.run)
    };
    let rows: Vec<[String; 5]> = all.iter().filter(is_variant).map(cells).collect();
    let width = width();
    if !rows.is_empty() {
        let columns = [
            ("variant\nstate", None),
            ("best\ntest", Some(17)),
            ("time\nper step", Some(9)),
            ("memory\ntokens/s", Some(9)),
            ("parameters\nsteps", Some(15)),
        ];
        print_line(table(columns, &rows, width).trim_end());
    }
    for skipped in &sweep.skipped {
        print_line(wrap(&skipped.note(), width).trim_end());
    }
    for Failure { name, reason } in failures {
        print_line(wrap(&format!("failed: {name}: {reason}"), width).trim_end());
    }
    if !all.is_empty() {
        let failed = failures
            .iter()
            .map(|Failure { name, reason }| format!("{name} failed: {reason}"));
        let skipped = sweep.skipped.iter().map(Skipped::note);
        let notes: Vec<String> = failed.chain(skipped).collect();
        let path = sweep.folder.join(PAGE);
        write_output(&path, page(&all, &notes).as_bytes())?;
        print_line(format!("page: {}", path.display()));
    }
    if is_stopped || !failures.is_empty() {
        print_line("next: the same command with --resume trains the remaining variants");
    }
    Ok(())
}

/// The runs in the folder of a sweep. One that cannot be read has failed, and its error was printed.
fn runs(sweep: &Sweep) -> Vec<RunContent> {
    let runs = find(&sweep.folder).unwrap_or_default().into_iter();
    let runs = runs.filter_map(|(name, path)| RunContent::read(&name, &path, None).ok());
    runs.collect()
}

/// Prints a Markdown table of the variants of several configs: quality on test data, or else the best
/// validation, time per step and peak memory.
pub(super) fn report_all(sweeps: &[Sweep]) {
    let all: Vec<Vec<RunContent>> = sweeps.iter().map(runs).collect();
    print_line(format!("\n{}", markdown(sweeps, &all).trim_end()));
}

fn markdown(sweeps: &[Sweep], all: &[Vec<RunContent>]) -> String {
    let mut names: Vec<&str> = vec![];
    for variant in sweeps.iter().flat_map(|sweep| &sweep.variants) {
        if !names.contains(&variant.name.as_str()) {
            names.push(&variant.name);
        }
    }
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut header = vec!["variant".to_owned()];
    for sweep in sweeps {
        let folder = sweep
            .folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let config = folder.trim_end_matches("-sweep").replace('|', "\\|");
        header.extend([config, "time per step".to_owned(), "memory".to_owned()]);
    }
    let mut text = row(&header) + &row(&vec!["---".to_owned(); header.len()]);
    for name in names {
        let mut cells = vec![name.to_owned()];
        for runs in all {
            cells.extend(match runs.iter().find(|it| it.record.run == name) {
                Some(run) => {
                    let text = TextCells::new(&run.record);
                    [quality(run), text.step_time, text.memory]
                }
                None => ["-", "-", "-"].map(ToOwned::to_owned),
            });
        }
        text += &row(&cells);
    }
    text
}

/// The metric of a run on the test data, or its best validation; `-` before the first one.
fn quality(run: &RunContent) -> String {
    let Some(best) = run.record.best else {
        return "-".to_owned();
    };
    let test = last(run, TEST, best.metric);
    let value = metric_value(best.metric, test.unwrap_or(best.value));
    match run.record.state {
        State::Finished => format!("{} {value}", best.metric),
        state => format!("{} {value} ({})", best.metric, state.name()),
    }
}

/// Tokens per second, averaged over the logged intervals.
fn tokens_per_second(run: &RunContent) -> Option<f64> {
    let speeds = run
        .rows
        .iter()
        .filter_map(|row| row.values.get("tokens_per_second"));
    let speeds: Vec<f64> = speeds.copied().filter(|speed| speed.is_finite()).collect();
    (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64)
}

fn cells(content: &RunContent) -> [String; 5] {
    let run = &content.record;
    let best = run.best.map_or("-".to_owned(), |best| {
        let value = metric_value(best.metric, best.value);
        let test = last(content, TEST, best.metric);
        let test = test.map_or("-".to_owned(), |test| metric_value(best.metric, test));
        format!("{} {value}\ntest {test}", best.metric)
    });
    let speed = tokens_per_second(content).map_or("-".to_owned(), thousands);
    let text = TextCells::new(run);
    [
        format!("{}\n{}", run.run.replace(',', ",\n"), run.state.name()),
        best,
        format!("{}\n{}", text.time, text.step_time),
        format!("{}\n{speed}", text.memory),
        format!("{}\n{}", text.parameters, text.steps),
    ]
}
