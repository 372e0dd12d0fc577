//! The answer as one HTML page, its plots as SVG files, and its tables in Markdown. Nothing is
//! loaded from anywhere: no script, no font, no style sheet.

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
use crate::table::{LEGEND, Section, is_number, remarks, sections, skipped_lines};
use crate::units::bytes;

/// Writes `report.html` and the plots into `folder`, and returns the page's path.
pub fn write(folder: &Path, results: &Results, baseline: Option<&[CaseLine]>) -> Result<PathBuf> {
    let cases = pool(&results.cases);
    let families = families(&cases);
    let mut drawn = Vec::new();
    for family in &families {
        let plots = [Axis::Time, Axis::Memory].map(|axis| plot(family, axis));
        for (plot, word) in plots.iter().zip(["time", "memory"]) {
            let name = format!("{}-{word}.svg", family.title.replace(", ", "-"));
            replace(&folder.join(name), plot)?;
        }
        drawn.push(json!({ "section": family.section, "plots": plots }));
    }
    let memory = results.run.machine.memory_bytes;
    let devices = cases.iter().filter_map(|case| case.report.device.as_ref());
    let devices: Vec<String> = distinct(devices).into_iter().cloned().collect();
    let page = json!({
        "run": results.run,
        "memory": memory.map_or("unknown memory".to_owned(), |size| bytes(size as f64)),
        "lists": [
            ("Devices", devices),
            ("What it shows", findings(&families)),
            ("Cases without a time", remarks(&cases)),
            ("Cases that were not run", skipped_lines(&results.skipped)),
        ],
        "sections": sections(&cases, baseline),
        "families": drawn,
        "legend": LEGEND.lines().collect::<Vec<_>>(),
    });
    let path = folder.join("report.html");
    replace(
        &path,
        &rendered("report.html", include_str!("report.html"), page)?,
    )?;
    Ok(path)
}

/// Tables in Markdown.
pub fn markdown(sections: &[Section]) -> Result<String> {
    rendered(
        "tables.md",
        include_str!("tables.md"),
        json!({ "sections": sections }),
    )
}

/// A template with these values. Those of an HTML file are escaped.
fn rendered(name: &str, template: &str, values: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.add_test("number_column", is_number);
    let text = environment.render_named_str(name, template, Serde(values))?;
    Ok(text + "\n")
}

/// Writes beside the file, then puts it in its place: nobody reads half a page.
fn replace(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    Ok(fs::rename(&partial, path)?)
}

fn plot(family: &Family, axis: Axis) -> String {
    let subjects = distinct(family.series.iter().map(|series| &series.subject));
    let backends = distinct(family.series.iter().map(|series| &series.backend));
    let place = |list: &[&String], word: &str| list.iter().position(|known| *known == word);
    let line = |series: &Series| Line {
        name: format!("{} {}", series.backend, series.subject),
        colour: place(&subjects, &series.subject).unwrap_or_default(),
        stroke: place(&backends, &series.backend).unwrap_or_default(),
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
    use crate::for_tests::{line, run_info, skipped};

    #[test]
    fn the_page_loads_nothing_and_shows_everything() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lines = [256, 512, 1024].map(|n| line("standard", n, &[n as f64 * 1e-2]));
        let skipped = skipped("additive", 2048, "it takes <too> long");
        let results = Results {
            run: run_info(),
            cases: lines.to_vec(),
            skipped: vec![skipped],
        };
        let path = write(folder.path(), &results, None).expect("the disk takes it");
        let page = fs::read_to_string(&path).expect("it was written");
        let plots = fs::read_dir(folder.path()).expect("the folder").count() - 1;
        assert_eq!(plots, 2, "time and memory");
        // The one address in it is the name of SVG's vocabulary, which nobody fetches.
        let addresses = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!addresses.contains("http") && !page.contains("<script"));
        for part in [
            "a processor &lt;of&gt; some &amp; kind",
            "Cases that were not run",
            "skipped: additive in layer at n = 2,048, forward: it takes &lt;too&gt; long",
            "grows as n^1.00",
            "<th class=\"number\">median</th>",
            "<td class=\"\">standard</td>",
            "<tr class=\"next\">",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
