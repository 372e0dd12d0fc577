//! The page that compares runs: final values, curves and differences between the configs.

use std::fmt::Write;

use zoo_config::{Config, Metric};
use zoo_viz::plot::{Axis, Line, Plot, Scale, Ticks};
use zoo_viz::units::{Unit, count};
use zoo_viz::{Curves, escape};

use super::TextCells;
use super::parameters;
use super::record::{RunContent, RunRecord};
use crate::report::format::{duration, metric_value};
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

/// One self-contained HTML page, with notes at its start.
pub(in crate::cli) fn page(runs: &[RunContent], notes: &[String]) -> String {
    let title = format!("Comparison of {} runs", runs.len());
    let mut html = format!("{HEAD}<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n");
    let (header, rows) = final_values(runs);
    write_table(&mut html, &header, &rows);
    for note in notes {
        let _ = writeln!(html, "<p>{}</p>", escape(note));
    }
    write_plots(
        &mut html,
        "Quality against cost",
        &quality_against_cost(runs),
    );
    let curves: Vec<String> = plots(runs).iter().map(Curves::to_svg).collect();
    write_plots(&mut html, "Curves", &curves);
    html.push_str("<h2>Config differences</h2>\n");
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

fn write_plots(html: &mut String, title: &str, plots: &[String]) {
    if plots.is_empty() {
        return;
    }
    let _ = writeln!(html, "<h2>{title}</h2>\n<div class=\"plots\">");
    for svg in plots {
        let _ = writeln!(html, "<div>{svg}</div>");
    }
    html.push_str("</div>\n");
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

pub(in crate::cli) fn last(run: &RunContent, split: &str, metric: Metric) -> Option<f64> {
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
    let fixed =
        "run,model,attention,best,steps,time,time per step,memory,parameters,state".split(',');
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
            text.step_time,
            text.memory,
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

/// The best value of each run against its training time, against its memory if that was measured, and
/// against its number of parameters if these differ.
fn quality_against_cost(runs: &[RunContent]) -> Vec<String> {
    let records: Vec<&RunRecord> = runs.iter().map(|run| &run.record).collect();
    let Some(metric) = records.iter().find_map(|run| Some(run.best?.metric)) else {
        return vec![];
    };
    let longest = records.iter().map(|run| run.seconds).fold(0.0, f64::max);
    let (unit, seconds) = match longest {
        longest if longest < 600.0 => ("seconds", 1.0),
        longest if longest < 36_000.0 => ("minutes", 60.0),
        _ => ("hours", 3600.0),
    };
    let time = |run: &RunRecord| Some(run.seconds / seconds);
    let mut plots = vec![cost_plot(
        &records,
        metric,
        &format!("training time in {unit}"),
        Unit::Number,
        time,
    )];
    if records.iter().any(|run| run.memory.is_some()) {
        let memory = |run: &RunRecord| run.memory;
        plots.push(cost_plot(
            &records,
            metric,
            "peak memory",
            Unit::Bytes,
            memory,
        ));
    }
    if records
        .iter()
        .any(|run| run.parameters != records[0].parameters)
    {
        let parameters = |run: &RunRecord| Some(run.parameters? as f64);
        plots.push(cost_plot(
            &records,
            metric,
            "parameters",
            Unit::Number,
            parameters,
        ));
    }
    plots
}

/// A short name for each run: its mechanisms if these distinguish the runs, else its name.
fn labels(runs: &[&RunRecord]) -> Vec<String> {
    let mechanisms: Vec<String> = runs.iter().map(|run| run.mechanisms.join(" + ")).collect();
    let is_distinct =
        |(i, name): (usize, &String)| !name.is_empty() && !mechanisms[..i].contains(name);
    if mechanisms.iter().enumerate().all(is_distinct) {
        return mechanisms;
    }
    runs.iter().map(|run| run.run.clone()).collect()
}

/// One labelled point for each run.
fn cost_plot(
    runs: &[&RunRecord],
    metric: Metric,
    cost: &str,
    unit: Unit,
    cost_of: impl Fn(&RunRecord) -> Option<f64>,
) -> String {
    let better = if metric.lower_is_better() {
        "lower"
    } else {
        "higher"
    };
    let y = Axis {
        title: String::new(),
        scale: Scale::Linear,
        ticks: Ticks::Decimal,
        unit: Unit::Number,
        margin: 0.08,
        include: None,
    };
    let x = Axis {
        title: cost.to_owned(),
        unit,
        include: Some(0.0),
        ..y.clone()
    };
    let labels = labels(runs);
    let line = |(i, run): (usize, &&RunRecord)| {
        let best = run.best.filter(|best| best.metric == metric)?;
        let (value, time) = (metric_value(metric, best.value), duration(run.seconds));
        Some(Line {
            name: run.run.clone(),
            note: format!(
                ", {metric} {value} in {time}, {} parameters",
                parameters(run)
            ),
            label: labels[i].clone(),
            colour: i,
            stroke: i,
            points: vec![(cost_of(run)?, best.value)],
            markers: true,
            ..Line::default()
        })
    };
    let plot = Plot {
        title: format!("best {metric} against {cost} ({better} is better)"),
        x,
        y,
        lines: runs.iter().enumerate().filter_map(line).collect(),
        empty_message: "no validation yet",
    };
    plot.to_svg()
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
