//! Report of a run: a self-contained HTML page, SVG plots and Markdown tables.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};
use zoo_spec::{Exactness, Mechanism};
use zoo_viz::plot::{Line, Plot};
use zoo_viz::{chart, sortable};

use crate::findings::{Family, Series, families, findings};
use crate::library::Library;
use crate::plot::{self, Axis};
use crate::pool::{distinct, group, pool};
use crate::pytorch::subject_of;
use crate::record::{CaseLine, Results};
use crate::screen;
use crate::summary::summary;
use crate::table::{Cell, Section, failures, is_numeric, legend, sections, skipped_lines};
use crate::units::bytes;

/// The page in the folder of a run.
pub const FILE: &str = "report.html";

/// Writes `report.html` and the plots into `folder`, and returns the path of the page.
pub fn write(folder: &Path, results: &Results, baseline: Option<&[CaseLine]>) -> Result<PathBuf> {
    let cases = pool(&results.cases);
    let families = families(&cases);
    let mut plotted = Vec::new();
    for family in &families {
        let plots = [Axis::Time, Axis::Memory].map(|axis| plot(family, axis));
        for (plot, axis) in plots.iter().zip(["time", "memory"]) {
            let name = format!("{}-{axis}.svg", family.title.replace(", ", "-"));
            write_atomically(&folder.join(name), &plot.to_svg())?;
        }
        plotted.push(json!({ "section": family.section, "charts": chart::charts(&plots) }));
    }
    let sections = sections(&cases, baseline);
    let memory = results.run.machine.memory_bytes;
    let devices = cases.iter().filter_map(|case| case.report.device.as_ref());
    let devices: Vec<String> = distinct(devices).into_iter().cloned().collect();
    let page = json!({
        "run": results.run,
        "memory": memory.map_or("unknown memory".to_owned(), |size| bytes(size as f64)),
        "summary": summary(&cases, &results.skipped),
        "findings": screen::findings(&cases),
        "lists": [
            ("Devices", devices),
            ("Failed cases", failures(&cases)),
            ("Skipped cases", skipped_lines(&results.skipped)),
            ("Scaling", findings(&families)),
        ],
        "sections": sections.iter().map(filterable).collect::<Vec<_>>(),
        "style": format!("{}{}", chart::STYLE, sortable::STYLE),
        "script": format!("{}{}", chart::SCRIPT, sortable::SCRIPT),
        "families": plotted,
        "legend": legend(&sections, "green"),
    });
    let path = folder.join(FILE);
    write_atomically(
        &path,
        &render("report.html", include_str!("report.html"), page)?,
    )?;
    Ok(path)
}

/// A section with the values of its first column, a length or a model, and the one whose rows are
/// shown first: the longest length, unless most mechanisms are too slow for it.
fn filterable(section: &Section) -> Value {
    let first = |row: &Vec<Cell>| row[0].text.clone();
    let groups = group(&section.rows, |row| first(row));
    let most = groups.iter().map(|(_, rows)| rows.len()).max();
    let mut longest = groups.iter().rev();
    let selected = longest.find(|(_, rows)| 2 * rows.len() > most.unwrap_or_default());
    let is_model = section.header[0] == "model";
    let mut value = json!(section);
    value["selected"] = match selected {
        Some((name, _)) if !is_model => json!(name),
        _ => json!(""),
    };
    value["groups"] = groups.into_iter().map(|(name, _)| name).collect();
    value
}

pub fn markdown(sections: &[Section]) -> Result<String> {
    render(
        "tables.md",
        include_str!("tables.md"),
        json!({ "sections": sections }),
    )
}

/// Renders a template. Values in an HTML file are escaped.
fn render(name: &str, template: &str, values: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.add_test("numeric_column", is_numeric);
    environment.add_test("narrow_column", is_narrow);
    let text = environment.render_named_str(name, template, Serde(values))?;
    Ok(text + "\n")
}

/// Writes a temporary file, then renames it, so that readers never see a partial file.
fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    Ok(fs::rename(&partial, path)?)
}

/// Columns that fit a narrow screen; the others can be shown there, too.
fn is_narrow(column: &str) -> bool {
    let columns = [
        "model",
        "n",
        "mechanism",
        "median",
        "memory",
        "vs flash",
        "vs baseline",
    ];
    columns.contains(&column)
}

/// The family of a mechanism in the legend of the plots.
fn mechanism_family(series: &Series) -> &'static str {
    if let Some(library) = series.library() {
        return library.title();
    }
    let Ok(mechanism) = series.subject.parse::<Mechanism>() else {
        return "others";
    };
    let about = mechanism.about();
    let is_quadratic = about.time.starts_with("n²");
    match (about.exactness, is_quadratic) {
        (Exactness::Exact, true) => "softmax over all keys",
        (Exactness::Exact, false) => "sparse softmax",
        (Exactness::Approximate | Exactness::Different, true) => "other scores, all keys",
        (Exactness::Approximate | Exactness::Different, false) => "hashing and linear",
    }
}

/// The lines of other libraries come last, those of PyTorch in the colours of the same mechanisms on
/// our backends.
fn plot(family: &Family, axis: Axis) -> Plot {
    let is_pytorch = |series: &Series| series.library() == Some(Library::PyTorch);
    let mut sorted: Vec<&Series> = family.series.iter().collect();
    sorted.sort_by_key(|series| {
        Library::ALL
            .iter()
            .position(|&it| Some(it) == series.library())
    });
    let subjects = distinct(sorted.iter().map(|series| &series.subject));
    let backends = distinct(sorted.iter().map(|series| &series.backend));
    let ours = sorted.iter().filter(|series| series.library().is_none());
    let ours = distinct(ours.map(|series| &series.backend));
    let colour = |series: &Series| {
        let is_same = |known: &str| {
            known == series.subject || is_pytorch(series) && subject_of(known) == series.subject
        };
        subjects.iter().position(|known| is_same(known))
    };
    let stroke = |series: &Series| backends.iter().position(|known| **known == series.backend);
    let line = |series: &&Series| Line {
        name: match &ours[..] {
            [only] if **only == series.backend => series.subject.clone(),
            _ => format!("{} {}", series.backend, series.subject),
        },
        group: mechanism_family(series).to_owned(),
        strong: ["flash", "standard"].contains(&series.subject.as_str()),
        colour: colour(series).unwrap_or_default(),
        stroke: stroke(series).unwrap_or_default(),
        points: match axis {
            Axis::Time => series.times.clone(),
            Axis::Memory => series.memory.clone(),
        },
        ..Line::default()
    };
    let lines: Vec<Line> = sorted.iter().map(line).collect();
    plot::plot(&family.title, axis, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burn;
    use crate::test_utils::{line, on_backend, run_info, skipped};

    #[test]
    fn page_is_self_contained_and_complete() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lines = [256, 512, 1024].map(|n| line("standard", n, &[n as f64 * 1e-2]));
        let skipped = skipped("additive", 2048, "<too> slow");
        let results = Results {
            run: run_info(),
            cases: lines.to_vec(),
            skipped: vec![skipped],
        };
        let path = write(folder.path(), &results, None).expect("writable");
        let page = fs::read_to_string(&path).expect("written");
        let plots = fs::read_dir(folder.path()).expect("the folder").count() - 1;
        assert_eq!(plots, 2, "time and memory");
        // The SVG namespace is not fetched.
        let urls = page.replace("http://www.w3.org/2000/svg", "");
        let urls = urls.replace("https://github.com/leeoniya/uPlot", "");
        assert!(!urls.contains("://") && urls.contains("default-src 'none'"));
        for part in [
            "CPU &lt;model&gt; &amp; more",
            "Skipped cases",
            "skipped: additive on layer, forward pass, sequence length 2,048: &lt;too&gt; slow",
            "grows as n^1.00",
            "<th class=\"number\" data-bar>median</th>",
            "<td class=\"\">standard</td>",
            "<option selected>1,024</option>",
            "softmax over all keys",
            "n: sequence length (number of keys)",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn libraries_come_last_and_pytorch_has_our_colours() {
        let lines = [256, 512].map(|n| {
            let pytorch = ["sdpa", "linear", "plain"];
            let pytorch = pytorch.map(|name| on_backend("pytorch", line(name, n, &[1.0])));
            let others = [burn::SUBJECT, "linear", "flash"].map(|name| line(name, n, &[1.0]));
            [&pytorch[..], &others[..]].concat()
        });
        let families = families(&pool(&lines.concat()));
        let plot = plot(&families[0], Axis::Time);
        let style = |line: &Line| (line.name.clone(), line.colour, line.stroke);
        let styles: Vec<_> = plot.lines.iter().map(style).collect();
        let expected = [
            ("linear", 0, 0),
            ("flash", 1, 0),
            ("pytorch sdpa", 1, 1),
            ("pytorch linear", 0, 1),
            ("pytorch plain", 3, 1),
            ("burn-attention", 4, 0),
        ];
        assert_eq!(
            styles,
            expected.map(|(name, colour, stroke)| (name.to_owned(), colour, stroke))
        );
        let groups: Vec<&str> = plot.lines.iter().map(|line| line.group.as_str()).collect();
        assert_eq!(groups[2..], ["PyTorch", "PyTorch", "PyTorch", "Burn"]);
    }
}
