//! The report in a real browser. The test is ignored if no browser is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_bench_core::record::{Outcome, Results};
use zoo_bench_core::report;
use zoo_bench_core::test_utils::{as_model, failed_line, line, on_backend, run_info};

fn main() {
    let arguments = Arguments::from_args();
    let browser = browser();
    let is_installed = browser.is_some();
    let name = "browser_renders_the_report_without_console_messages";
    let trial = Trial::test(name, move || {
        renders(&browser.ok_or("no chromium on the PATH")?)
    });
    // `cargo test -- --ignored` shows why it is ignored.
    let trials = vec![trial.with_ignored_flag(!is_installed)];
    libtest_mimic::run(&arguments, trials).exit();
}

fn browser() -> Option<PathBuf> {
    const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).flat_map(|folder| NAMES.map(|n| folder.join(n)));
    files.find(|file| file.is_file())
}

fn renders(browser: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let mut lines = Vec::new();
    for n in [256, 512, 1024, 2048] {
        let n_f = n as f64;
        lines.push(line("standard", n, &[1e-5 * n_f * n_f]));
        lines.push(line("linear", n, &[1e-2 * n_f]));
        lines.push(on_backend("pytorch", line("sdpa", n, &[5e-6 * n_f * n_f])));
    }
    let slow = Outcome::TimedOut { seconds: 60.0 };
    lines.push(failed_line("linear", 4096, slow));
    // A model at one length has only a table, at two lengths also plots.
    for (name, n) in [("gpt-small", 64), ("gpt-small", 128), ("han-small", 128)] {
        lines.push(as_model(name, line("flash", n, &[n as f64])));
    }
    let results = Results {
        run: run_info(),
        cases: lines,
        skipped: Vec::new(),
    };
    let page = report::write(folder, &results, None)?;

    let profile = folder.join("profile");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--log-level=0", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();

    // Console messages of the page are logged with this tag.
    assert!(!log.contains("CONSOLE"), "{log}");
    // Points and legend entries in two plots each: three lines of four lengths, a model of two.
    let expected = 2 * (12 + 3 + 2 + 1);
    assert_eq!(dom.matches("<circle").count(), expected, "{dom}\n{log}");
    for text in ["linear overtakes standard", "han-small"] {
        assert!(dom.contains(text), "{text} in {dom}\n{log}");
    }
    Ok(())
}
