//! `cargo xtask bench`: reports, skipped cases and interruption.

use zoo_bench_core::record::{FILE, Line, Results, Writer};
use zoo_bench_core::test_utils::{line, run_info};

use crate::Folder;

/// On the terminal, as JSON, in the results file and in the report.
#[cfg(unix)]
#[test]
fn skipped_cases_are_reported_with_a_reason() {
    let folder = Folder::new();
    let program = folder.script("zoo-bench", "exit 1");
    let skipped = "skipped: bigbird on decode-step, decode pass, sequence length 1,024 and 8,192: its \
                   global blocks at the end depend on the final length";
    for format in ["table", "markdown", "json"] {
        let selection = "--suite decode --mechanism flash,bigbird --rounds 1";
        let output = folder.run(&format!(
            "bench {selection} --format {format} --program {program} --out {format}"
        ));
        output.assert(1, "have wrong results or failed");
        if format == "json" {
            let cases: Vec<serde_json::Value> = serde_json::from_str(&output.stdout).expect("JSON");
            let is_skipped = |case: &&serde_json::Value| case["skipped"]["subject"] == "bigbird";
            assert_eq!(cases.iter().filter(is_skipped).count(), 2);
        } else {
            assert!(
                unwrapped(&output.stdout).contains(skipped),
                "{}",
                output.stdout
            );
        }
        let results = Results::read(folder.file_path(format).as_ref()).expect("readable");
        let lengths: Vec<usize> = results.skipped.iter().map(|case| case.n).collect();
        assert_eq!(lengths, [1024, 8192]);
        let page = folder.path().join(format).join("report.html");
        let page = std::fs::read_to_string(page).expect("a report");
        assert!(page.contains(skipped), "{page}");
        let report = folder.run(&format!("bench report {format}"));
        assert!(
            unwrapped(&report.stdout).contains(skipped),
            "{}",
            report.stdout
        );
    }
}

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Folder {
    /// Writes the results of a run with one case.
    fn write_run(&self, name: &str, milliseconds: &[f64]) {
        let folder = self.path().join(name);
        let case = Line::Case(line("standard", 256, milliseconds));
        std::fs::create_dir(&folder)
            .and_then(|()| Writer::create(&folder.join(FILE), &run_info()))
            .and_then(|mut writer| writer.write(&case))
            .expect("a new file");
    }
}

#[test]
fn compare_distinguishes_changes_from_noise() {
    let folder = Folder::new();
    folder.write_run("before", &[10.0, 10.1, 9.9]);
    folder.write_run("again", &[10.2, 10.1, 10.0]);
    folder.write_run("slower", &[15.0, 15.1, 14.9]);
    for (after, code, parts) in [
        ("again --fail-on-regression", 0, ["no change", "1.01"]),
        ("slower", 0, ["SLOWER", "1.50"]),
        ("slower --fail-on-regression", 1, ["SLOWER", "1.50"]),
    ] {
        let output = folder.run(&format!("bench compare before {after}"));
        for part in parts {
            output.assert(code, part);
        }
    }
}

/// A killed run has results, but no report.
#[test]
fn results_are_reported_and_never_overwritten() {
    let folder = Folder::new();
    folder.write_run("run", &[10.0, 10.1, 9.9]);
    let page = folder.path().join("run/report.html");
    assert!(!page.exists());
    let output = folder.run("bench report run --format markdown");
    output.assert(0, "10.0 ms");
    assert!(page.is_file());
    // One screen, or the full tables.
    let [screen, wide] = ["", "--wide"].map(|flag| folder.run(&format!("bench report run {flag}")));
    screen.assert(
        0,
        "tables:  cargo xtask bench report run --wide\nreport:  run/report.html",
    );
    assert!(
        screen
            .stdout
            .lines()
            .all(|line| line.chars().count() <= 100)
    );
    assert!(screen.stdout.contains("vs standard") && !screen.stdout.contains("GFLOP/s"));
    wide.assert(0, "% of matmul");
    let results = || std::fs::read(folder.path().join("run").join(FILE)).expect("results");
    let before = results();
    let output = folder.run("bench --out run --program /nowhere/zoo-bench");
    output.assert(1, "already contains results");
    assert_eq!(before, results());
    // A page of another program.
    let page = folder.path().join("other/report.html");
    std::fs::create_dir(folder.path().join("other")).expect("a new folder");
    std::fs::write(&page, "mine").expect("a new file");
    let output = folder.run("bench --out other --program /nowhere/zoo-bench");
    output.assert(
        1,
        "other already contains report.html\n  help: choose another --out",
    );
    assert_eq!(std::fs::read_to_string(&page).expect("readable"), "mine");
}

/// Even if the benchmark is killed: nothing else would stop a case that hangs.
#[cfg(target_os = "linux")]
#[test]
fn a_case_does_not_outlive_the_benchmark() {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    let folder = Folder::new();
    let pid_file = folder.file_path("pid");
    let script = format!("echo $$ > {pid_file}\nexec sleep 600");
    let program = folder.script("zoo-bench", &script);
    let command = format!("bench --mechanism flash --out out --program {program}");
    let mut bench = folder.xtask(&command).spawn().expect("a process");
    let wait = |failure: &str, condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(20), "{failure}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let id = || std::fs::read_to_string(&pid_file).unwrap_or_default();
    wait("no case was started", &|| id().ends_with('\n'));
    let child = PathBuf::from(format!("/proc/{}", id().trim()));
    assert!(child.exists());

    bench.kill().expect("killed");
    bench.wait().expect("an exit status");
    wait("the case is still running", &|| {
        // A zombie is still listed, but has no executable.
        std::fs::read_link(child.join("exe")).is_err()
    });
}
