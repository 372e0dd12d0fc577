//! The end of a sweep: a table, and a page of quality against cost.

use zoo_config::wrap;

use super::super::runs::compare::{last, page};
use super::super::runs::record::RunContent;
use super::super::runs::{by_quality, find, parameters, steps};
use super::super::terminal::{table, width};
use super::{Failure, Sweep};
use crate::Result;
use crate::files::write_output;
use crate::out::print_line;
use crate::report::format::{duration, metric_value, thousands};
use crate::run::TEST;

const PAGE: &str = "sweep.html";

/// Prints the results of the variants, the best first, and writes the page of all runs in the folder
/// of the sweep.
pub(super) fn report(sweep: &Sweep, failures: &[Failure], is_stopped: bool) -> Result<()> {
    let runs = find(&sweep.folder).unwrap_or_default().into_iter();
    // A run that cannot be read has failed, and its error was printed.
    let runs = runs.filter_map(|(name, path)| RunContent::read(&name, &path, None).ok());
    let mut all: Vec<RunContent> = runs.collect();
    all.sort_by(|a, b| by_quality(&a.record, &b.record));
    let is_variant = |run: &&RunContent| {
        let mut variants = sweep.variants.iter();
        variants.any(|variant| variant.name == run.record.run)
    };
    let rows: Vec<[String; 5]> = all.iter().filter(is_variant).map(cells).collect();
    let width = width();
    if !rows.is_empty() {
        let columns = [
            ("variant", None),
            ("best\ntest", Some(17)),
            ("time\ntokens/s", Some(9)),
            ("parameters\nsteps", Some(15)),
            ("state", Some(11)),
        ];
        print_line(table(columns, &rows, width).trim_end());
    }
    for Failure { name, reason } in failures {
        print_line(wrap(&format!("failed: {name}: {reason}"), width).trim_end());
    }
    if !all.is_empty() {
        let notes: Vec<String> = failures
            .iter()
            .map(|Failure { name, reason }| format!("{name} failed: {reason}"))
            .collect();
        let path = sweep.folder.join(PAGE);
        write_output(&path, page(&all, &notes).as_bytes())?;
        print_line(format!("page: {}", path.display()));
    }
    if is_stopped || !failures.is_empty() {
        print_line("next: the same command with --resume trains the remaining variants");
    }
    Ok(())
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
    [
        run.run.replace(',', ",\n"),
        best,
        format!("{}\n{speed}", duration(run.seconds)),
        format!("{}\n{}", parameters(run), steps(run)),
        run.state.name().to_owned(),
    ]
}
