//! The answer as one HTML page, and its plots as SVG files. Nothing is loaded
//! from anywhere: no script, no font, no style sheet.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zoo_viz::escape;
use zoo_viz::plot::Line;

use crate::findings::{Family, Series, families, findings};
use crate::plot::{Axis, svg};
use crate::pool::{Pooled, distinct, pool};
use crate::record::Results;
use crate::table::{LEGEND, Section, is_number, remarks, sections, skipped_lines};
use crate::units::bytes;

/// Writes `report.html` and the plots into `folder`, and returns the page's path.
///
/// # Errors
///
/// When the disk does not take it.
pub fn write(folder: &Path, results: &Results, baseline: Option<&[Pooled]>) -> io::Result<PathBuf> {
    let cases = pool(&results.cases);
    for family in families(&cases) {
        for (axis, word) in [(Axis::Time, "time"), (Axis::Memory, "memory")] {
            let path = folder.join(format!("{}-{word}.svg", family.title.replace(", ", "-")));
            replace(&path, &plot(&family, axis))?;
        }
    }
    let path = folder.join("report.html");
    replace(&path, &page(results, &cases, baseline))?;
    Ok(path)
}

/// Writes beside the file, then puts it in its place: nobody reads half a page.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    fs::rename(&partial, path)
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

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #666; --page: #fff; --line: #ddd; --best: #e3f2e6 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #9a9a9a; --page: #16181c; --line: #33363c; --best: #1f3a26 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1280px; margin: 2rem auto; padding: 0 1.2rem }
h1 { font-size: 1.6rem; margin: 0 0 .2rem } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem }
p, li { max-width: 75ch } .soft { color: var(--soft) } code { font-size: .92em }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1rem }
.scroll { overflow-x: auto } svg { width: 100%; height: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; white-space: nowrap }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: left }
th { color: var(--soft); font-weight: 600 } .number { text-align: right } .best { background: var(--best); font-weight: 600 }
tr.next td { border-top: 2px solid var(--line) }
";

fn page(results: &Results, cases: &[Pooled], baseline: Option<&[Pooled]>) -> String {
    let mut html = String::new();
    let run = &results.run;
    let machine = &run.machine;
    let memory = machine
        .memory_bytes
        .map_or("unknown memory".to_owned(), |size| bytes(size as f64));
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>Attention, compared</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Attention, compared</h1>\n\
         <p class=\"soft\">{started} &middot; {cpu}, {cores} cores ({features}), {memory}, {system} \
         &middot; {threads} threads &middot; Attention Zoo {version}, Burn {burn}{commit}<br>\
         <code>{command}</code></p>\n",
        started = escape(&run.started),
        cpu = escape(&machine.cpu),
        cores = machine.cores,
        features = escape(&machine.features.join(", ")),
        system = escape(&machine.system),
        threads = run.threads,
        version = escape(&run.version),
        burn = escape(&run.burn),
        commit = run
            .commit
            .as_ref()
            .map(|commit| format!(", commit {}", escape(commit)))
            .unwrap_or_default(),
        command = escape(&run.command.join(" ")),
    );
    let devices = cases.iter().filter_map(|case| case.device.as_ref());
    list(&mut html, "Devices", &distinct(devices));
    let families = families(cases);
    list(&mut html, "What it shows", &findings(&families));
    list(&mut html, "Cases without a time", &remarks(cases));
    list(
        &mut html,
        "Cases that were not run",
        &skipped_lines(&results.skipped),
    );
    for section in sections(cases, baseline) {
        let _ = writeln!(html, "<h2>{}</h2>", escape(&section.title));
        for family in families
            .iter()
            .filter(|family| family.section == section.title)
        {
            let _ = write!(
                html,
                "<div class=\"plots\">\n{}{}</div>\n",
                plot(family, Axis::Time),
                plot(family, Axis::Memory)
            );
        }
        table(&mut html, &section);
    }
    html.push_str("<h2>How to read this</h2>\n");
    for line in LEGEND.lines() {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escape(line));
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn list(html: &mut String, title: &str, items: &[impl AsRef<str>]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(html, "<h2>{title}</h2>\n<ul>");
    for item in items {
        let _ = writeln!(html, "<li>{}</li>", escape(item.as_ref()));
    }
    html.push_str("</ul>\n");
}

fn table(html: &mut String, section: &Section) {
    let class = |at: usize| {
        if is_number(section.header[at]) {
            "number"
        } else {
            ""
        }
    };
    html.push_str("<div class=\"scroll\"><table>\n<tr>");
    for (at, name) in section.header.iter().enumerate() {
        let _ = write!(html, "<th class=\"{}\">{}</th>", class(at), escape(name));
    }
    html.push_str("</tr>\n");
    let mut length = None;
    for row in &section.rows {
        let next = length.is_some_and(|length| length != &row[0].text);
        length = Some(&row[0].text);
        html.push_str(if next { "<tr class=\"next\">" } else { "<tr>" });
        for (at, cell) in row.iter().enumerate() {
            let best = if cell.best { " best" } else { "" };
            let _ = write!(
                html,
                "<td class=\"{}{best}\">{}</td>",
                class(at),
                escape(&cell.text)
            );
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{line, run_info, skipped};

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
        assert!(page.contains("a processor &lt;of&gt; some &amp; kind"));
        let named = "skipped: additive in layer at n = 2,048, forward: it takes &lt;too&gt; long";
        assert!(page.contains("Cases that were not run") && page.contains(named));
        assert!(page.contains("grows as n^1.00") && page.contains("<table>"));
    }
}
