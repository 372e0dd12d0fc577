//! `zoo train --sweep`: the variants of a config.

use std::path::Path;
use std::process::{Command, Output};

use zoo_backend::OpenDevice;

use crate::support::*;

trials! {
    trials(OpenDevice):
    variants_are_trained_compared_and_skipped,
    finished_variants_are_skipped,
    a_variant_of_another_process_is_not_deleted,
    a_failing_variant_does_not_stop_the_rest,
    errors_come_before_anything_runs,
    #[cfg(unix)]
    an_interrupted_sweep_is_resumed,
    #[cfg(unix)]
    printed_commands_train_the_variants,
}

const STEPS: &str = "training.steps = 4";

/// A folder with a config file.
pub(crate) fn config_file(opened: &OpenDevice) -> TempDir {
    config_file_with(opened, &[STEPS, "training.checkpoint_every = 2"])
}

fn config_file_with(opened: &OpenDevice, changes: &[&str]) -> TempDir {
    let folder = TempDir::new();
    let text = config_text(opened, &folder, changes);
    folder.write("small.toml", text);
    folder
}

pub(crate) fn sweep(folder: &TempDir, arguments: &[&str]) -> Output {
    zoo_train(&folder.join("small.toml"), arguments)
}

/// The names of the runs.
pub(crate) fn runs(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn variants_are_trained_compared_and_skipped(opened: &OpenDevice) {
    let folder = config_file(opened);
    // A key of a swept table, after and before the sweep of the table.
    let arguments = [
        "--set",
        "model.encoder_attention.window=3",
        "--sweep",
        "model.encoder_attention=sliding-window,{ kind = \"longformer\", global = 2 }",
        "--sweep",
        "model.layers=1,2",
    ];
    let output = sweep(&folder, &arguments);
    assert_success(&output);
    let names = [
        "encoder_attention=kind-longformer-global-2,layers=1",
        "encoder_attention=kind-longformer-global-2,layers=2",
        "encoder_attention=sliding-window,layers=1",
        "encoder_attention=sliding-window,layers=2",
    ];
    let all = folder.join("runs/small-sweep");
    assert_eq!(runs(&all), names);
    for (name, attention, layers) in [
        (
            names[1],
            "{ kind = \"longformer\", window = 3, global = 2 }",
            2,
        ),
        (names[2], "{ kind = \"sliding-window\", window = 3 }", 1),
    ] {
        let config = std::fs::read_to_string(all.join(name).join("config.toml")).unwrap();
        has(&config, format!("\nencoder_attention = {attention}\n"));
        has(&config, format!("\nlayers = {layers}\n"));
    }
    let text = String::from_utf8(output.stdout).unwrap();
    has(&text, format!("variant 4 of 4: {}\n", names[1]));
    let (_, end) = text.rsplit_once('╞').unwrap();
    assert_eq!(end.matches("finished").count(), 4, "{text}");
    assert_eq!(end.matches("test ").count(), 4, "{text}");
    assert!(
        end.lines()
            .all(|line| line.chars().count() <= 80 || line.contains("page"))
    );
    let page = std::fs::read_to_string(all.join("sweep.html")).unwrap();
    for part in [
        "Quality against cost",
        "against training time",
        "against parameters",
    ] {
        has(&page, part);
    }
    assert!(names.iter().all(|name| page.contains(name)));

    // Nothing is overwritten, and finished variants are not trained again.
    has(
        &failure_text(&sweep(&folder, &arguments)),
        "layers=1 already exists\n  help: --resume",
    );
    let log = all.join(names[0]).join("log.txt");
    let before = std::fs::read(&log).unwrap();
    let output = sweep(&folder, &[&arguments[..], &["--resume"]].concat());
    assert_success(&output);
    has(
        &output_text(&output),
        format!("variant 1 of 4: {} (finished)\n", names[2]),
    );
    assert_eq!(std::fs::read(&log).unwrap(), before);
    // More steps continue it.
    let output = sweep(
        &folder,
        &[&arguments[..], &["--resume", "--steps", "6"]].concat(),
    );
    assert_success(&output);
    assert_eq!(
        output_text(&output)
            .matches("resuming after step 4")
            .count(),
        4
    );
}

/// By the steps or epochs of the config, and the end that the run has recorded.
fn finished_variants_are_skipped(opened: &OpenDevice) {
    let one = ["--sweep", "model.layers=1"];
    let resume = |folder: &TempDir, more: &[&str]| {
        let output = sweep(folder, &[&one[..], &["--resume"], more].concat());
        assert_success(&output);
        output_text(&output)
    };
    let skipped = "variant 1 of 1: layers=1 (finished)\n";
    // Early stopping.
    let changes = [
        "training.steps = 50",
        "validation.every = 1",
        "validation.metric = \"loss\"",
        "validation.patience = 2",
        "optimizer.learning_rate = 3.0",
        "schedule.warmup = 0",
    ];
    let folder = config_file_with(opened, &changes);
    let run = folder.join("runs/small-sweep/layers=1");
    let output = sweep(&folder, &one);
    assert_success(&output);
    lacks(&output_text(&output), "50 steps in");
    let before = std::fs::read(run.join("log.txt")).unwrap();
    has(&resume(&folder, &[]), skipped);
    assert_eq!(std::fs::read(run.join("log.txt")).unwrap(), before);
    // Epochs: each has ten steps.
    let folder = config_file_with(opened, &["training.epochs = 1"]);
    let run = folder.join("runs/small-sweep/layers=1");
    assert_success(&sweep(&folder, &one));
    has(&resume(&folder, &[]), skipped);
    let more = ["--set", "training.epochs=2"];
    has(&resume(&folder, &more), "resuming after step 10\n");
    for more in [&more[..], &[], &["--steps", "20"]] {
        has(&resume(&folder, more), skipped);
    }
    // It was killed in the final test.
    let path = run.join("run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(metadata["finished"].take().is_string(), "{text}");
    std::fs::write(&path, metadata.to_string()).unwrap();
    std::fs::remove_file(run.join("result.json")).unwrap();
    has(&resume(&folder, &more), "resuming after step 20\n");
    assert!(run.join("result.json").is_file());
    has(&resume(&folder, &more), skipped);
}

/// A run without a checkpoint is deleted only if no process holds its lock.
fn a_variant_of_another_process_is_not_deleted(opened: &OpenDevice) {
    let folder = config_file(opened);
    let arguments = ["--sweep", "model.layers=1"];
    assert_success(&sweep(&folder, &arguments));
    let run = folder.join("runs/small-sweep/layers=1");
    std::fs::remove_dir_all(run.join("checkpoints")).unwrap();
    std::fs::remove_file(run.join("best.json")).unwrap();
    let before = std::fs::read(run.join("log.txt")).unwrap();
    let resume = |more: &[&str]| sweep(&folder, &[&arguments[..], &["--resume"], more].concat());
    let lock = std::fs::File::options().write(true).open(run.join("lock"));
    let lock = lock.unwrap();
    lock.lock().unwrap();
    has(&failure_text(&resume(&[])), "failed: layers=1:");
    assert_eq!(std::fs::read(run.join("log.txt")).unwrap(), before);
    drop(lock);
    let output = resume(&["--print-commands"]);
    assert_success(&output);
    ends(&output_text(&output), " --overwrite\n");
    let output = resume(&[]);
    assert_success(&output);
    has(&output_text(&output), "4 steps in");
}

fn a_failing_variant_does_not_stop_the_rest(opened: &OpenDevice) {
    let folder = config_file(opened);
    // The first variant has too few positions for the data, which only the run finds out.
    let positions = "model.positions={ kind = \"learned\", max_positions = 2 },alibi";
    let output = sweep(&folder, &["--sweep", positions]);
    assert_eq!(output.status.code(), Some(1));
    let text = output_text(&output);
    let failed = "failed: positions=kind-learned-max_positions-2: ";
    for part in [
        failed,
        "positions=alibi ",
        "finished",
        "next: the same command with --resume",
    ] {
        has(&text, part);
    }
    let all = folder.join("runs/small-sweep");
    assert_eq!(runs(&all), ["positions=alibi"]);
    let page = std::fs::read_to_string(all.join("sweep.html")).unwrap();
    has(&page, "<p>positions=kind-learned-max_positions-2 failed: ");
}

fn errors_come_before_anything_runs(opened: &OpenDevice) {
    let folder = config_file(opened);
    for (arguments, expected) in [
        (
            // A key of the file that the second value does not support.
            &[
                "--sweep",
                "model.encoder_attention=flash,lsh",
                "--set",
                "model.n_heads_kv=1",
            ][..],
            "lsh uses its queries as keys",
        ),
        (
            &["--sweep", "model.layers=1,0"],
            "\n1 | --sweep model.layers=1,0\n  |                        ^\n",
        ),
        (
            &["--sweep", "training.steps=2,3", "--steps", "3"],
            "training.steps is also set by --steps 3",
        ),
        (
            &[
                "--sweep",
                "model.layers=1,2",
                "--print-commands",
                "--set",
                "run.output=a\nb",
            ],
            "run.output=a\\nb/small-sweep cannot be printed",
        ),
    ] {
        has(&failure_text(&sweep(&folder, arguments)), expected);
        assert!(!folder.join("runs").exists(), "{arguments:?}");
    }
    // A folder of another program in the place of the last variant.
    folder.write("runs/small-sweep/layers=2/notes.txt", "mine");
    let arguments = ["--sweep", "model.layers=1,2", "--resume"];
    has(
        &failure_text(&sweep(&folder, &arguments)),
        "was not created by zoo",
    );
    assert_eq!(runs(&folder.join("runs/small-sweep")), ["layers=2"]);
    // Sizes of every variant, and no files.
    let output = sweep(&folder, &["--sweep", "model.layers=1,3", "--dry-run"]);
    assert_success(&output);
    let text = output_text(&output);
    assert_eq!(
        text.matches("dry run: no files were written").count(),
        2,
        "{text}"
    );
    assert_eq!(runs(&folder.join("runs/small-sweep")), ["layers=2"]);
}

/// The signal reaches only the process of the sweep, as from a job scheduler.
#[cfg(unix)]
fn an_interrupted_sweep_is_resumed(opened: &OpenDevice) {
    let changes = ["training.steps = 400", "validation.every = 400"];
    let sweep = ["--sweep", "model.layers=1,2"];
    let mut running = Running::start(opened, &changes, |path| {
        let mut command =
            crate::signals::default_signals(zoo(
                &[&["train", path, "--plain"], &sweep[..]].concat()
            ));
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        command
    });
    let all = running.folder.join("runs/small-sweep");
    running.wait_for(|_| {
        let metrics = std::fs::metadata(all.join("layers=1/metrics.jsonl"));
        metrics.is_ok_and(|file| file.len() > 0)
    });
    running.signal("TERM");
    assert_eq!(running.exit_code(), Some(143));
    assert_eq!(runs(&all), ["layers=1"]);
    let output = running.rerun(&[&sweep[..], &["--resume"]].concat());
    assert_success(&output);
    has(&output_text(&output), "resuming after step");
    assert_eq!(runs(&all), ["layers=1", "layers=2"]);
    assert_eq!(output_text(&output).matches("400 steps in").count(), 2);
}

/// By GNU parallel where it is installed, else by a shell, line by line.
#[cfg(unix)]
fn printed_commands_train_the_variants(opened: &OpenDevice) {
    let folder = config_file(opened);
    let arguments = [
        "--sweep",
        "model.encoder_attention='flash',{ kind = \"sliding-window\", window = 2 }",
        "--name",
        "it's",
    ];
    let print = |more: &[&str]| {
        let output = sweep(
            &folder,
            &[&arguments[..], &["--print-commands"], more].concat(),
        );
        assert_success(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = print(&[]);
    assert_eq!(commands.lines().count(), 2, "{commands}");
    assert!(!folder.join("runs").exists());
    let file = folder.write("commands.txt", &commands);
    // The `parallel` of moreutils does not read commands from its input.
    let version = Command::new("parallel").arg("--version").output();
    let has_parallel = version.is_ok_and(|output| output_text(&output).contains("GNU parallel"));
    let mut command = Command::new(if has_parallel { "parallel" } else { "sh" });
    command
        .stdin(std::fs::File::open(file).unwrap())
        .env("RAYON_NUM_THREADS", "1");
    let output = command.output().unwrap();
    assert_success(&output);
    let all = folder.join("runs/it's-sweep");
    let expected = [
        "encoder_attention=flash",
        "encoder_attention=kind-sliding-window-window-2",
    ];
    assert_eq!(runs(&all), expected);
    let listed = zoo(&["runs", all.to_str().unwrap(), "--json"])
        .output()
        .unwrap();
    assert_success(&listed);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    for (run, (name, mechanism)) in listed
        .as_array()
        .unwrap()
        .iter()
        .zip(expected.iter().zip(["flash", "sliding-window"]))
    {
        assert_eq!(run["run"], **name);
        assert_eq!(run["mechanisms"][0], mechanism);
        assert_eq!(run["state"], "finished");
    }
    // Nothing is left to do; the table and the page come without training.
    assert_eq!(print(&["--resume"]), "");
    let output = sweep(&folder, &[&arguments[..], &["--resume"]].concat());
    assert_success(&output);
    has(&output_text(&output), "sweep.html");
    // A variant that is gone is trained again, an unfinished one is continued.
    std::fs::remove_dir_all(all.join(expected[0])).unwrap();
    let commands = print(&["--resume", "--steps", "6"]);
    let flags: Vec<bool> = commands
        .lines()
        .map(|line| line.ends_with(" --resume"))
        .collect();
    assert_eq!(flags, [false, true], "{commands}");
    // Only a variant that is continued accepts changed data.
    let accepting = print(&["--resume", "--steps", "6", "--accept-changed-data"]);
    let expected = commands.replace(" --resume\n", " --resume --accept-changed-data\n");
    assert_eq!(accepting, expected);
    // A dry run describes both.
    let output = sweep(
        &folder,
        &[&arguments[..], &["--resume", "--dry-run", "--steps", "6"]].concat(),
    );
    assert_success(&output);
    let text = output_text(&output);
    assert_eq!(text.matches("dry run: no files were written").count(), 2);
    assert!(!all.join("encoder_attention=flash").exists());
}
