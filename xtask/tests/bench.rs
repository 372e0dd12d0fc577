//! What a person sees who asks the bench for something it does not have, or
//! compares two runs. Nothing is built here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zoo_bench_core::case::Pass;
use zoo_bench_core::record::{
    CaseId, CaseLine, FILE, Line, Measured, Outcome, Results, RunInfo, Writer,
};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("it starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_misspelt_name_gets_the_nearest() {
    for (flag, wrong, right) in [
        ("--mechanism", "standrad", "standard"),
        ("--problem", "bert-bsae", "bert-base"),
        ("--suite", "decoed", "decode"),
        ("--suite", "modles", "models"),
        ("--model", "transfromer", "transformer"),
        ("--model", "gpt-bsae", "gpt-base"),
        ("--dtype", "f61", "f16"),
    ] {
        let output = bench(&[flag, wrong]);
        assert!(!output.status.success());
        let hint = format!("did you mean {right}?");
        assert!(stderr(&output).contains(&hint), "{}", stderr(&output));
    }
    // clap's own words for closed lists.
    for (flag, wrong, right) in [
        ("--pass", "trian", "train"),
        ("--pass", "genrate", "generate"),
        ("--format", "markdwon", "markdown"),
        ("--vs", "pytroch", "pytorch"),
    ] {
        let output = bench(&[flag, wrong]);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(right), "{}", stderr(&output));
    }
}

#[test]
fn absurd_numbers_are_refused_at_once() {
    for (flag, wrong) in [
        ("--seq", "1000000000000"),
        ("--seq", "0"),
        ("--seq", "128,18446744073709551615"),
        ("--threads", "2305843009213693952"),
        ("--rounds", "1000000000000000000"),
        ("--timeout", "18446744073709551615"),
    ] {
        let output = bench(&[flag, wrong]);
        assert_eq!(output.status.code(), Some(2), "{flag} {wrong}");
        let said = stderr(&output);
        assert!(
            said.contains("it must be a whole number from 1 to"),
            "{said}"
        );
        assert!(said.contains(flag), "{said}");
    }
}

#[test]
fn a_problem_of_one_length_cannot_be_stretched() {
    let output = bench(&["--problem", "bert-base", "--seq", "512"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("\"bert-base\" cannot be measured at n = 512"),
        "{said}"
    );
}

#[test]
fn quick_and_full_exclude_each_other_and_an_empty_choice_says_so() {
    assert_eq!(bench(&["--quick", "--full"]).status.code(), Some(2));
    let output = bench(&["--suite", "attention", "--pass", "generate"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("suite attention has no generate case"));
    let output = bench(&["--model", "han", "--mechanism", "flash"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("its attention is additive"), "{said}");
}

#[test]
fn a_model_that_cannot_have_the_attention_is_left_out_with_a_word() {
    let folder = std::env::temp_dir().join(format!("zoo-left-out-{}", std::process::id()));
    let mut arguments = vec!["--suite", "models", "--mechanism", "linear"];
    arguments.extend(["--program", "/nowhere/zoo-bench"]);
    arguments.extend(["--out", folder.to_str().expect("a plain path")]);
    let said = stderr(&bench(&arguments));
    std::fs::remove_dir_all(&folder).expect("the bench made it");
    assert!(
        said.contains("skipped: linear in han-small at n = 128, train: its attention is additive"),
        "{said}"
    );
    assert!(!said.contains("in gpt"), "{said}");
}

/// On the terminal, as JSON, in the results file and in the report.
#[cfg(unix)]
#[test]
fn a_case_that_is_not_run_is_named_everywhere_with_the_reason() {
    use std::os::unix::fs::PermissionsExt;

    let folder = std::env::temp_dir().join(format!("zoo-skipped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let program = folder.join("zoo-bench");
    std::fs::write(&program, "#!/bin/sh\nexit 1\n").expect("the disk takes it");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is ours");
    let named = "skipped: bigbird in decode-step at n = 1,024 and 8,192, decode: it has no \
                 incremental decoding";
    for format in ["table", "markdown", "json"] {
        let out = folder.join(format);
        let output = bench(&[
            "--suite",
            "decode",
            "--mechanism",
            "flash,bigbird",
            "--rounds",
            "1",
            "--format",
            format,
            "--program",
            program.to_str().expect("a plain path"),
            "--out",
            out.to_str().expect("a plain path"),
        ]);
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
        let answer = stdout(&output);
        match format {
            "json" => {
                let answer: Vec<serde_json::Value> =
                    serde_json::from_str(&answer).expect("it is JSON");
                let skipped = answer
                    .iter()
                    .filter(|case| case["skipped"]["subject"] == "bigbird");
                assert_eq!(skipped.count(), 2);
            }
            _ => assert!(answer.contains(named), "{answer}"),
        }
        let results = Results::read(&out).expect("readable");
        let lengths: Vec<usize> = results.skipped.iter().map(|case| case.n).collect();
        assert_eq!(lengths, [1024, 8192]);
        let page = std::fs::read_to_string(out.join("report.html")).expect("it was written");
        assert!(page.contains(named), "{page}");
        // A report of the same results names them again.
        let again = bench(&["report", out.to_str().expect("a plain path")]);
        assert!(stdout(&again).contains(named), "{}", stdout(&again));
    }
    std::fs::remove_dir_all(&folder).expect("it was created above");
}

#[test]
fn the_list_shows_everything_that_can_be_chosen() {
    let output = bench(&["--list"]);
    assert!(output.status.success());
    let said = stdout(&output);
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
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_way_to_build_one() {
    let output = bench(&["--program", "/nowhere/zoo-bench"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("--program /nowhere/zoo-bench is no file"),
        "{said}"
    );
    assert!(said.contains("cargo build --release --package zoo-bench --features flex"));
}

/// A folder with a run in it, removed at the end.
struct Run(PathBuf);

impl Run {
    /// A run whose one case took these milliseconds.
    fn new(name: &str, milliseconds: &[f64]) -> Self {
        let folder = std::env::temp_dir().join(format!("zoo-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let run = RunInfo::here("now".to_owned(), 1);
        let case = CaseLine {
            id: CaseId {
                backend: "flex".to_owned(),
                dtype: "f32".to_owned(),
                problem: "layer".to_owned(),
                n: 256,
                pass: Pass::Forward,
                subject: "standard".to_owned(),
            },
            round: 1,
            work: 1e6,
            minimum_bytes: 1,
            tokens: None,
            parameters: None,
            device: None,
            body: None,
            outcome: Outcome::Measured(Measured {
                seconds: milliseconds.iter().map(|ms| ms / 1e3).collect(),
                peak: None,
                error: None,
                checked: None,
            }),
        };
        Writer::create(&folder.join(FILE), &run)
            .and_then(|mut writer| writer.write(&Line::Case(case)))
            .expect("a new file");
        Self(folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn compare_tells_change_from_noise_and_fails_only_when_asked() {
    let before = Run::new("before", &[10.0, 10.1, 9.9]);
    let again = Run::new("again", &[10.2, 10.1, 10.0]);
    let slower = Run::new("slower", &[15.0, 15.1, 14.9]);

    let same = bench(&[
        "compare",
        before.path(),
        again.path(),
        "--fail-on-regression",
    ]);
    assert!(same.status.success(), "{}", stderr(&same));
    assert!(stdout(&same).contains("no change"), "{}", stdout(&same));

    let worse = bench(&["compare", before.path(), slower.path()]);
    assert!(worse.status.success());
    let said = stdout(&worse);
    assert!(said.contains("SLOWER") && said.contains("1.50"), "{said}");
    let strict = bench(&[
        "compare",
        before.path(),
        slower.path(),
        "--fail-on-regression",
    ]);
    assert_eq!(strict.status.code(), Some(1));
}

/// As of a run that was killed: its results are there, and no report.
#[test]
fn a_run_is_shown_again_and_has_its_report_then() {
    let run = Run::new("shown", &[10.0, 10.1, 9.9]);
    let page = Path::new(run.path()).join("report.html");
    assert!(!page.exists());
    let output = bench(&["report", run.path(), "--format", "markdown"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("10.0 ms"), "{}", stdout(&output));
    assert!(page.is_file());
}

#[test]
fn what_is_no_run_is_named() {
    for arguments in [
        vec!["compare", "/nowhere", "/nowhere"],
        vec!["report", "/nowhere"],
        vec!["--baseline", "/nowhere"],
    ] {
        let output = bench(&arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains("cannot read /nowhere"), "{said}");
    }
}

#[test]
fn results_are_never_overwritten() {
    let run = Run::new("kept", &[1.0]);
    let before = std::fs::read(Path::new(run.path()).join(FILE)).expect("it was written");
    let output = bench(&["--out", run.path(), "--program", "/nowhere/zoo-bench"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("holds results already"),
        "{}",
        stderr(&output)
    );
    let after = std::fs::read(Path::new(run.path()).join(FILE)).expect("it is still there");
    assert_eq!(before, after);
}

/// However the bench ends: nobody would stop a case that hangs.
#[cfg(target_os = "linux")]
#[test]
fn a_measuring_process_does_not_outlive_the_bench() {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    let folder = std::env::temp_dir().join(format!("zoo-orphan-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let (program, told) = (folder.join("hangs"), folder.join("pid"));
    let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", told.display());
    std::fs::write(&program, script).expect("a program that hangs");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("it can be run");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bench", "--mechanism", "flash", "--program"])
        .arg(&program)
        .arg("--out")
        .arg(&folder)
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
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
}
