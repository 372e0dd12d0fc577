//! What a person sees of earlier runs, of cases that are not run, and of a bench that ends.

use zoo_bench_core::for_tests::{line, run_info};
use zoo_bench_core::record::{FILE, Line, Results, Writer};

use crate::Folder;

/// On the terminal, as JSON, in the results file and in the report.
#[cfg(unix)]
#[test]
fn a_case_that_is_not_run_is_named_everywhere_with_the_reason() {
    let folder = Folder::new();
    let program = folder.script("zoo-bench", "exit 1");
    let named = "skipped: bigbird in decode-step at n = 1,024 and 8,192, decode: its global blocks \
                 at the end depend on the final length";
    for format in ["table", "markdown", "json"] {
        let choice = "--suite decode --mechanism flash,bigbird --rounds 1";
        let said = folder.says(&format!(
            "bench {choice} --format {format} --program {program} --out {format}"
        ));
        said.is(1, named);
        if format == "json" {
            let answer: Vec<serde_json::Value> =
                serde_json::from_str(&said.stdout).expect("it is JSON");
            let is_skipped = |case: &&serde_json::Value| case["skipped"]["subject"] == "bigbird";
            assert_eq!(answer.iter().filter(is_skipped).count(), 2);
        } else {
            assert!(said.stdout.contains(named), "{}", said.stdout);
        }
        let results = Results::read(folder.at(format).as_ref()).expect("readable");
        let lengths: Vec<usize> = results.skipped.iter().map(|case| case.n).collect();
        assert_eq!(lengths, [1024, 8192]);
        let page = folder.path().join(format).join("report.html");
        let page = std::fs::read_to_string(page).expect("it was written");
        assert!(page.contains(named), "{page}");
        // A report of the same results names them again.
        folder.says(&format!("bench report {format}")).is(0, named);
    }
}

impl Folder {
    /// Writes a run whose one case took these milliseconds.
    fn run(&self, name: &str, milliseconds: &[f64]) {
        let folder = self.path().join(name);
        let case = Line::Case(line("standard", 256, milliseconds));
        std::fs::create_dir(&folder)
            .and_then(|()| Writer::create(&folder.join(FILE), &run_info()))
            .and_then(|mut writer| writer.write(&case))
            .expect("a new file");
    }
}

#[test]
fn compare_tells_change_from_noise_and_fails_only_when_asked() {
    let folder = Folder::new();
    folder.run("before", &[10.0, 10.1, 9.9]);
    folder.run("again", &[10.2, 10.1, 10.0]);
    folder.run("slower", &[15.0, 15.1, 14.9]);
    for (after, code, says) in [
        ("again --fail-on-regression", 0, ["no change", "1.01"]),
        ("slower", 0, ["SLOWER", "1.50"]),
        ("slower --fail-on-regression", 1, ["SLOWER", "1.50"]),
    ] {
        let said = folder.says(&format!("bench compare before {after}"));
        for word in says {
            said.is(code, word);
        }
    }
}

/// As of a run that was killed: its results are there, and no report.
#[test]
fn a_run_is_shown_again_and_has_its_report_then() {
    let folder = Folder::new();
    folder.run("run", &[10.0, 10.1, 9.9]);
    let page = folder.path().join("run/report.html");
    assert!(!page.exists());
    let said = folder.says("bench report run --format markdown");
    said.is(0, "10.0 ms");
    assert!(page.is_file());
}

#[test]
fn results_are_never_overwritten() {
    let folder = Folder::new();
    folder.run("run", &[1.0]);
    let results = || std::fs::read(folder.path().join("run").join(FILE)).expect("it is there");
    let before = results();
    let said = folder.says("bench --out run --program /nowhere/zoo-bench");
    said.is(1, "holds results already");
    assert_eq!(before, results());
}

/// However the bench ends: nobody would stop a case that hangs.
#[cfg(target_os = "linux")]
#[test]
fn a_measuring_process_does_not_outlive_the_bench() {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    let folder = Folder::new();
    let told = folder.at("pid");
    let program = folder.script("zoo-bench", &format!("echo $$ > {told}\nexec sleep 600"));
    let command = format!("bench --mechanism flash --out out --program {program}");
    let mut bench = folder.xtask(&command).spawn().expect("it starts");
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let id = || std::fs::read_to_string(&told).unwrap_or_default();
    wait("no case was started", &|| id().ends_with('\n'));
    let child = PathBuf::from(format!("/proc/{}", id().trim()));
    assert!(child.exists());

    bench.kill().expect("it can be killed");
    bench.wait().expect("it ends");
    wait("the case goes on without the bench", &|| {
        // A process that nobody has asked about yet is still listed, but has no program.
        std::fs::read_link(child.join("exe")).is_err()
    });
}
