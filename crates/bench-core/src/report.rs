//! Report of a run: a self-contained HTML page without scripts, SVG plots and Markdown tables.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};
use zoo_viz::plot::Line;

use crate::findings::{Family, Series, families, findings};
use crate::plot::{Axis, svg};
use crate::pool::{distinct, pool};
use crate::record::{CaseLine, Results};
use crate::table::{LEGEND, Section, failures, is_numeric, sections, skipped_lines};
use crate::units::bytes;

/// Writes `report.html` and the plots into `folder`, and returns the path of the page.
pub fn write(folder: &Path, results: &Results, baseline: Option<&[CaseLine]>) -> Result<PathBuf> {
    let cases = pool(&results.cases);
    let families = families(&cases);
    let mut plotted = Vec::new();
    for family in &families {
        let plots = [Axis::Time, Axis::Memory].map(|axis| plot(family, axis));
        for (plot, axis) in plots.iter().zip(["time", "memory"]) {
            let name = format!("{}-{axis}.svg", family.title.replace(", ", "-"));
            write_atomically(&folder.join(name), plot)?;
        }
        plotted.push(json!({ "section": family.section, "plots": plots }));
    }
    let memory = results.run.machine.memory_bytes;
    let devices = cases.iter().filter_map(|case| case.report.device.as_ref());
    let devices: Vec<String> = distinct(devices).into_iter().cloned().collect();
    let page = json!({
        "run": results.run,
        "memory": memory.map_or("unknown memory".to_owned(), |size| bytes(size as f64)),
        "lists": [
            ("Devices", devices),
            ("Findings", findings(&families)),
            ("Failed cases", failures(&cases)),
            ("Skipped cases", skipped_lines(&results.skipped)),
        ],
        "sections": sections(&cases, baseline),
        "families": plotted,
        "legend": LEGEND.lines().collect::<Vec<_>>(),
    });
    let path = folder.join("report.html");
    write_atomically(
        &path,
        &render("report.html", include_str!("report.html"), page)?,
    )?;
    Ok(path)
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
    let text = environment.render_named_str(name, template, Serde(values))?;
    Ok(text + "\n")
}

/// Writes a temporary file, then renames it, so that readers never see a partial file.
fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    Ok(fs::rename(&partial, path)?)
}

fn plot(family: &Family, axis: Axis) -> String {
    let subjects = distinct(family.series.iter().map(|series| &series.subject));
    let backends = distinct(family.series.iter().map(|series| &series.backend));
    let index = |list: &[&String], name: &str| list.iter().position(|known| *known == name);
    let line = |series: &Series| Line {
        name: format!("{} {}", series.backend, series.subject),
        colour: index(&subjects, &series.subject).unwrap_or_default(),
        stroke: index(&backends, &series.backend).unwrap_or_default(),
        points: match axis {
            Axis::Time => series.times.clone(),
            Axis::Memory => series.memory.clone(),
        },
        ..Line::default()
    };
    let lines: Vec<Line> = family.series.iter().map(line).collect();
    svg(&family.title, axis, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_utils::{line, run_info, skipped};

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
        assert!(!urls.contains("http") && !page.contains("<script"));
        for part in [
            "CPU &lt;model&gt; &amp; more",
            "Skipped cases",
            "skipped: additive on layer, forward pass, sequence length 2,048: &lt;too&gt; slow",
            "grows as n^1.00",
            "<th class=\"number\">median</th>",
            "<td class=\"\">standard</td>",
            "<tr class=\"next\">",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
