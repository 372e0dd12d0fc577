//! What a person sees who asks the bench for something it does not have, or
//! compares two runs. Nothing is built here.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use zoo_bench_core::record::{FILE, Line, Results, RunInfo, Writer};

/// What the bench said, and how it ended.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Said {
    /// Whether stderr has the text; if not, it is shown.
    fn error_with(&self, text: &str) {
        assert!(self.stderr.contains(text), "{text} in {}", self.stderr);
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("bench").args(arguments);
    command
}

fn bench(arguments: &[&str]) -> Said {
    let output = command(arguments).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn what_cannot_be_asked_for_is_refused_at_once_with_a_hint() {
    let count = "it must be a whole number from 1 to";
    for (arguments, code, says) in [
        ("--mechanism standrad", 2, "did you mean standard?"),
        ("--problem bert-bsae", 1, "did you mean bert-base?"),
        ("--suite decoed", 2, "did you mean decode?"),
        ("--suite modles", 2, "did you mean models?"),
        ("--model transfromer", 2, "did you mean transformer?"),
        ("--model gpt-bsae", 2, "did you mean gpt-base?"),
        ("--dtype f61", 2, "did you mean f16?"),
        // clap's own words for closed lists.
        ("--pass trian", 2, "'train'"),
        ("--pass genrate", 2, "'generate'"),
        ("--format markdwon", 2, "'markdown'"),
        ("--vs pytroch", 2, "pytorch"),
        ("--quick --full", 2, "--full"),
        // Absurd numbers.
        ("--seq 1000000000000", 2, count),
        ("--seq 0", 2, count),
        ("--seq 128,18446744073709551615", 2, count),
        ("--threads 2305843009213693952", 2, count),
        ("--rounds 1000000000000000000", 2, count),
        ("--timeout 18446744073709551615", 2, count),
        // A problem of one length cannot be stretched.
        (
            "--problem bert-base --seq 512",
            1,
            "\"bert-base\" cannot be measured at n = 512",
        ),
        // Nothing is left over.
        (
            "--suite attention --pass generate",
            1,
            "suite attention has no generate case",
        ),
        (
            "--model han --mechanism flash",
            1,
            "its attention is additive",
        ),
        // What is no program, and no run.
        (
            "--program /nowhere/zoo-bench",
            1,
            "--program /nowhere/zoo-bench is no file",
        ),
        (
            "--program /nowhere/zoo-bench",
            1,
            "cargo build --release --package zoo-bench --features flex",
        ),
        ("compare /nowhere /nowhere", 1, "cannot read /nowhere"),
        ("report /nowhere", 1, "cannot read /nowhere"),
        ("--baseline /nowhere", 1, "cannot read /nowhere"),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let out = folder();
        let mut all = arguments.clone();
        if arguments[0] == "--program" {
            all.extend(["--out", text(out.path())]);
        }
        let said = bench(&all);
        assert_eq!(said.code, Some(code), "{arguments:?}");
        said.error_with(says);
        if says == count {
            said.error_with(arguments[0]);
        }
    }
}

#[test]
fn a_model_that_cannot_have_the_attention_is_left_out_with_a_word() {
    let folder = folder();
    let mut arguments = vec!["--suite", "models", "--mechanism", "linear"];
    arguments.extend(["--program", "/nowhere/zoo-bench"]);
    arguments.extend(["--out", text(folder.path())]);
    let said = bench(&arguments);
    said.error_with("skipped: linear in han-small at n = 128, train: its attention is additive");
    assert!(!said.stderr.contains("in gpt"), "{}", said.stderr);
}

/// A program in a folder.
#[cfg(unix)]
fn script(folder: &TempDir, lines: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;

    let program = folder.path().join("zoo-bench");
    std::fs::write(&program, format!("#!/bin/sh\n{lines}\n")).expect("the disk takes it");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is ours");
    program
}

/// On the terminal, as JSON, in the results file and in the report.
#[cfg(unix)]
#[test]
fn a_case_that_is_not_run_is_named_everywhere_with_the_reason() {
    let folder = folder();
    let program = script(&folder, "exit 1");
    let named = "skipped: bigbird in decode-step at n = 1,024 and 8,192, decode: it has no \
                 incremental decoding";
    for format in ["table", "markdown", "json"] {
        let out = folder.path().join(format);
        let mut arguments = vec!["--suite", "decode", "--mechanism", "flash,bigbird"];
        arguments.extend(["--rounds", "1", "--format", format]);
        arguments.extend(["--program", text(&program), "--out", text(&out)]);
        let said = bench(&arguments);
        said.error_with(named);
        match format {
            "json" => {
                let answer: Vec<serde_json::Value> =
                    serde_json::from_str(&said.stdout).expect("it is JSON");
                let skipped = answer
                    .iter()
                    .filter(|case| case["skipped"]["subject"] == "bigbird");
                assert_eq!(skipped.count(), 2);
            }
            _ => assert!(said.stdout.contains(named), "{}", said.stdout),
        }
        let results = Results::read(&out).expect("readable");
        let lengths: Vec<usize> = results.skipped.iter().map(|case| case.n).collect();
        assert_eq!(lengths, [1024, 8192]);
        let page = std::fs::read_to_string(out.join("report.html")).expect("it was written");
        assert!(page.contains(named), "{page}");
        // A report of the same results names them again.
        let again = bench(&["report", text(&out)]).stdout;
        assert!(again.contains(named), "{again}");
    }
}

#[test]
fn the_list_shows_everything_that_can_be_chosen() {
    let said = bench(&["--list"]);
    assert_eq!(said.code, Some(0));
    for word in [
        "tch-cuda",
        "decode",
        "standard",
        "llama-decode",
        "takes --seq",
        "bf16",
        "pytorch",
        "gpt-base",
        "train and generate",
    ] {
        assert!(said.stdout.contains(word), "{word} in {}", said.stdout);
    }
}

/// A folder with a run in it whose one case took these milliseconds.
fn run_of(milliseconds: &[f64]) -> TempDir {
    let folder = folder();
    let seconds: Vec<f64> = milliseconds.iter().map(|ms| ms / 1e3).collect();
    let case = serde_json::json!({
        "backend": "flex", "dtype": "f32", "problem": "layer", "n": 256, "pass": "forward",
        "subject": "standard", "round": 1, "work": 1e6, "minimum_bytes": 1, "device": null,
        "outcome": { "measured": { "seconds": seconds, "peak": null, "error": null } },
    });
    let case = serde_json::from_value(case).expect("a case");
    Writer::create(
        &folder.path().join(FILE),
        &RunInfo::here("now".to_owned(), 1),
    )
    .and_then(|mut writer| writer.write(&Line::Case(case)))
    .expect("a new file");
    folder
}

#[test]
fn compare_tells_change_from_noise_and_fails_only_when_asked() {
    let before = run_of(&[10.0, 10.1, 9.9]);
    let again = run_of(&[10.2, 10.1, 10.0]);
    let slower = run_of(&[15.0, 15.1, 14.9]);
    let strict = "--fail-on-regression";
    for (after, flags, code, says) in [
        (&again, &[strict][..], 0, ["no change", "1.01"]),
        (&slower, &[], 0, ["SLOWER", "1.50"]),
        (&slower, &[strict], 1, ["SLOWER", "1.50"]),
    ] {
        let arguments = ["compare", text(before.path()), text(after.path())];
        let said = bench(&[&arguments, flags].concat());
        assert_eq!(said.code, Some(code), "{}", said.stderr);
        for word in says {
            assert!(said.stdout.contains(word), "{word} in {}", said.stdout);
        }
    }
}

/// As of a run that was killed: its results are there, and no report.
#[test]
fn a_run_is_shown_again_and_has_its_report_then() {
    let run = run_of(&[10.0, 10.1, 9.9]);
    let page = run.path().join("report.html");
    assert!(!page.exists());
    let said = bench(&["report", text(run.path()), "--format", "markdown"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("10.0 ms"), "{}", said.stdout);
    assert!(page.is_file());
}

#[test]
fn results_are_never_overwritten() {
    let run = run_of(&[1.0]);
    let results = || std::fs::read(run.path().join(FILE)).expect("it is there");
    let before = results();
    let out = text(run.path());
    let said = bench(&["--out", out, "--program", "/nowhere/zoo-bench"]);
    assert_eq!(said.code, Some(1));
    said.error_with("holds results already");
    assert_eq!(before, results());
}

/// However the bench ends: nobody would stop a case that hangs.
#[cfg(target_os = "linux")]
#[test]
fn a_measuring_process_does_not_outlive_the_bench() {
    use std::time::{Duration, Instant};

    let folder = folder();
    let told = folder.path().join("pid");
    let program = script(
        &folder,
        &format!("echo $$ > {}\nexec sleep 600", told.display()),
    );
    let arguments = ["--mechanism", "flash", "--program", text(&program)];
    let mut bench = command(&arguments)
        .arg("--out")
        .arg(folder.path())
        .spawn()
        .expect("it starts");
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
