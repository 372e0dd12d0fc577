//! The page that compares runs: final values, curves and differences between the configs.

use std::fmt::Write;

use zoo_config::{Config, Metric};
use zoo_viz::units::count;
use zoo_viz::{Curves, escape};

use super::TextCells;
use super::record::RunContent;
use crate::report::format::metric_value;
use crate::run::{TEST, curve, plot};

/// The start of the page. Its content security policy forbids external resources.
const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark }
body { font: 15px system-ui, sans-serif; max-width: 1320px; margin: 1.5rem auto; padding: 0 1rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse }
th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #8884 }
td { font-variant-numeric: tabular-nums; white-space: nowrap }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: 1rem }
svg { overflow: visible }
</style>
"#;

/// One self-contained HTML page.
pub(super) fn page(runs: &[RunContent]) -> String {
    let title = format!("Comparison of {} runs", runs.len());
    let mut html = format!("{HEAD}<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n");
    let (header, rows) = final_values(runs);
    write_table(&mut html, &header, &rows);
    html.push_str("<h2>Curves</h2>\n<div class=\"plots\">\n");
    for curves in plots(runs) {
        let _ = writeln!(html, "<div>{}</div>", curves.to_svg());
    }
    html.push_str("</div>\n<h2>Config differences</h2>\n");
    let rows = differences(runs);
    if rows.is_empty() {
        html.push_str("<p>The configs are equal, except for run.name and run.output.</p>\n");
    } else {
        let names = runs.iter().map(|run| run.record.run.clone());
        let header: Vec<String> = std::iter::once("key".to_owned()).chain(names).collect();
        write_table(&mut html, &header, &rows);
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn write_table(html: &mut String, header: &[String], rows: &[Vec<String>]) {
    let row = |tag: &str, cells: &[String]| {
        let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escape(cell));
        format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
    };
    let rows: String = rows.iter().map(|cells| row("td", cells)).collect();
    let header = row("th", header);
    let _ = writeln!(
        html,
        "<div class=\"scroll\"><table>\n{header}{rows}</table></div>"
    );
}

/// The metrics of a split that at least one run has.
fn metrics<'a>(runs: &'a [RunContent], split: &'a str) -> impl Iterator<Item = Metric> + 'a {
    let has = move |metric: &Metric| runs.iter().any(|run| last(run, split, *metric).is_some());
    Metric::ALL.into_iter().filter(has)
}

fn last(run: &RunContent, split: &str, metric: Metric) -> Option<f64> {
    let mut rows = run.rows.iter().rev().filter(|row| row.part == split);
    rows.find_map(|row| row.values.get(metric.name()).copied())
}

/// One row for each run.
fn final_values(runs: &[RunContent]) -> (Vec<String>, Vec<Vec<String>>) {
    let splits = ["train", "valid", TEST];
    let columns = splits.map(|split| metrics(runs, split).map(move |metric| (split, metric)));
    let columns: Vec<(&str, Metric)> = columns.into_iter().flatten().collect();
    let names = columns.iter().map(|(split, metric)| match *split {
        TEST => format!("test {metric}"),
        split => format!("last {split} {metric}"),
    });
    let fixed = "run,model,attention,best,steps,time,parameters,state".split(',');
    let header = fixed.map(ToOwned::to_owned).chain(names).collect();
    let row = |run: &RunContent| {
        let record = &run.record;
        let text = TextCells::new(record);
        let best = match record.best {
            Some(best) => format!("{} at step {}", text.best, count(best.step)),
            None => text.best,
        };
        let mut cells = vec![
            record.run.clone(),
            record.model.to_owned(),
            record.mechanisms.join(", "),
            best,
            text.steps,
            text.time,
            text.parameters,
            record.state.name().to_owned(),
        ];
        cells.extend(columns.iter().map(|(split, metric)| {
            let value = last(run, split, *metric);
            value.map_or("-".to_owned(), |value| metric_value(*metric, value))
        }));
        cells
    };
    (header, runs.iter().map(row).collect())
}

/// One plot for each metric, with a curve for each run.
pub(crate) fn plots(runs: &[RunContent]) -> Vec<Curves> {
    let plot = |(name, split, metric): (&str, &str, Metric)| {
        let curves = runs
            .iter()
            .map(|run| curve(&run.rows, &run.record.run, split, metric));
        plot(&format!("{name} {metric}"), metric, curves.collect())
    };
    let training = metrics(runs, "train").map(|metric| ("training", "train", metric));
    let validation = metrics(runs, "valid").map(|metric| ("validation", "valid", metric));
    training.chain(validation).map(plot).collect()
}

/// Keys whose values differ, with the value in each run.
fn differences(runs: &[RunContent]) -> Vec<Vec<String>> {
    let all: Vec<_> = runs.iter().map(|run| settings(&run.config)).collect();
    let mut keys: Vec<&String> = vec![];
    for (key, _) in all.iter().flatten() {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let row = |key: &String| {
        let value = |settings: &Vec<(String, String)>| {
            let found = settings.iter().find(|(name, _)| name == key);
            found.map_or("-".to_owned(), |(_, value)| value.clone())
        };
        let values: Vec<String> = all.iter().map(value).collect();
        let differ = values.iter().any(|value| *value != values[0]);
        differ.then(|| [vec![key.clone()], values].concat())
    };
    let is_compared = |key: &&String| !["run.name", "run.output"].contains(&key.as_str());
    keys.into_iter()
        .filter(is_compared)
        .filter_map(row)
        .collect()
}

/// The keys of a config, such as `model.layers`, with their values as TOML.
fn settings(config: &Config) -> Vec<(String, String)> {
    let text = config.to_toml();
    let mut section = "";
    let mut settings = vec![];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((key, value)) = line.split_once(" = ") {
            settings.push((format!("{section}.{key}"), value.to_owned()));
        } else if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
    }
    settings
}
