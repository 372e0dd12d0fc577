//! The report in a real browser. The tests are ignored if no browser is installed.
//!
//! The page remains in Cargo's temporary directory for tests.

use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_bench_core::case::Pass;
use zoo_bench_core::record::{CaseLine, Outcome, Results};
use zoo_bench_core::report;
use zoo_bench_core::test_utils::{as_model, failed_line, line, on_backend, run_info, skipped};
use zoo_spec::Mechanism;
use zoo_viz::browser;

fn main() {
    let arguments = Arguments::from_args();
    let browser = browser::find();
    let is_installed = browser.is_some();
    let trials = [(1400, "wide"), (400, "narrow")].map(|(width, name)| {
        let browser = browser.clone();
        Trial::test(
            format!("report_can_be_used_in_a_{name}_window"),
            move || works(&browser.ok_or("no chromium on the PATH")?, width, name),
        )
        // `cargo test -- --ignored` shows why it is ignored.
        .with_ignored_flag(!is_installed)
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

const LENGTHS: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// Every mechanism at five lengths, with times that resemble measured ones.
fn results() -> Results {
    let mut lines: Vec<CaseLine> = Vec::new();
    for (i, mechanism) in Mechanism::ALL.into_iter().enumerate() {
        let factor = 1.0 + (i * 7 % 11) as f64 / 4.0;
        let is_quadratic = mechanism.about().time.starts_with("n²");
        for pass in [Pass::Forward, Pass::Train] {
            for n in LENGTHS {
                if mechanism.name() == "additive" && n > 512 {
                    continue;
                }
                let length = n as f64;
                let cost = if is_quadratic {
                    3e-6 * length * length
                } else {
                    4e-3 * length
                };
                let ms = cost * factor * if pass == Pass::Train { 3.0 } else { 1.0 };
                let mut line = line(mechanism.name(), n, &[ms, 0.98 * ms, 1.03 * ms]);
                line.id.pass = pass;
                lines.push(line);
            }
        }
    }
    for n in LENGTHS {
        let ms = 2e-6 * (n * n) as f64;
        lines.push(on_backend("pytorch", line("sdpa", n, &[ms, ms])));
    }
    let slow = Outcome::TimedOut { seconds: 60.0 };
    lines.push(failed_line("linear", 8192, slow));
    // A model at one length has only a table, at two lengths also plots.
    for (name, n) in [("gpt-small", 64), ("gpt-small", 128), ("han-small", 128)] {
        lines.push(as_model(name, line("flash", n, &[n as f64])));
    }
    let reason = "too slow above length 512";
    Results {
        run: run_info(),
        cases: lines,
        skipped: LENGTHS[2..]
            .iter()
            .map(|&n| skipped("additive", n, reason))
            .collect(),
    }
}

/// Uses the controls of the page and records the results.
const VISITOR: &str = include_str!("visitor.js");

fn works(browser: &Path, width: u32, name: &str) -> Result<(), Failed> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder)?;
    let page = report::write(&folder, &results(), None)?;
    let html = std::fs::read_to_string(&page)?;
    let visited = folder.join("visited.html");
    let results = browser::visit(browser, &visited, &html, VISITOR, width)?;
    let columns = if width < 760 { 5 } else { 16 };
    // Grouped-query is the slowest at the last length. Hidden, it leaves multiplicative the slowest;
    // with the seven sparse mechanisms, eight lines are hidden. Then, only flash is shown.
    let expected = format!(
        "n = 4,096; grouped-query 176 ms; multiplicative 164 ms; 8; true; 1; 1; hidden; \
         4,096; lsh; 38; sliding-window; descending; additive; strided; false; 176 ms; TIMED OUT; \
         {width}; {columns}; true; true"
    );
    if results != expected {
        return Err(format!("got\n{results}\nexpected\n{expected}").into());
    }
    Ok(())
}
