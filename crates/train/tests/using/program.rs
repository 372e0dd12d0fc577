//! The `zoo` program: standard streams and exit status.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::runs::*;

trials! {
    trials(Runs):
    every_command_has_help,
    completions_offer_names,
    dry_run_reports_sizes_and_writes_nothing,
    standard_input,
    #[cfg(unix)]
    unknown_words_are_reported_before_the_result,
    invalid_arguments_are_rejected,
    names_of_runs_have_suggestions,
    #[cfg(unix)]
    failing_output_does_not_panic,
}

fn zoo(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zoo"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Fails if the program has rejected its arguments and exited.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn every_command_has_help(_: &Runs) {
    let all = text(&zoo(&["--help"], "").stdout);
    let commands = "train eval translate classify generate attend average inspect new runs serve \
                    mechanisms completions";
    for command in commands.split(' ') {
        has(&all, format!("\n  {command} "));
        let output = zoo(&[command, "--help"], "");
        assert!(output.status.success(), "{command}");
        let help = text(&output.stdout);
        has(&help, "Usage: zoo");
        assert_examples_fit(&help);
    }
    assert_examples_fit(&all);
}

#[track_caller]
fn assert_examples_fit(help: &str) {
    let (_, examples) = help.split_once("Examples:\n").expect(help);
    let is_short = |line: &str| line.chars().count() <= 80;
    assert!(examples.lines().all(is_short), "{examples}");
}

fn completions_offer_names(_: &Runs) {
    for shell in ["bash", "zsh", "fish"] {
        let output = zoo(&["completions", shell], "");
        assert!(output.status.success(), "{shell}");
        let script = text(&output.stdout);
        // A backend, a model and a checkpoint.
        for name in ["dry-run", "tch-cuda", "seq2seq", "average"] {
            has(&script, name);
        }
    }
    if cfg!(unix) {
        let zoo = env!("CARGO_BIN_EXE_zoo");
        let script = format!(
            "eval \"$('{zoo}' completions bash)\"; COMP_WORDS=(zoo train a.toml --backend tch-); \
             COMP_CWORD=4; _zoo zoo tch- --backend; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(text(&output.stdout), "tch-cpu tch-cuda\n");
    }
}

fn dry_run_reports_sizes_and_writes_nothing(runs: &Runs) {
    for (kind, batch) in KINDS.into_iter().zip([20, 20, 4, 20, 10]) {
        let run = runs.arg(kind);
        let config = format!("{run}/config.toml");
        let dry_run = |more: &[&str]| {
            let output = zoo(&[&["train", &config, "--dry-run"], more].concat(), "");
            let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| text(it));
            assert!(output.status.success(), "{kind:?}: {stderr}");
            ends(&stdout, "\ndry run: no files were written\n");
            stdout
        };
        let other = runs.folder(kind).with_file_name("other");
        let stdout = dry_run(&["--name", "other", "--steps", "1234"]);
        for part in [
            " valid",
            "\nvocabulary: ",
            "\n  parameters ",
            "\nsteps: 1,234 (",
            &format!("\nfirst batch: [{batch}, "),
            "\nmemory: at least ",
            "\n  activations: ",
            &format!("\nrun folder: {}\n", other.display()),
        ] {
            has(&stdout, part);
        }
        assert!(!other.exists(), "{kind:?}");
        lacks(&stdout, "warning");
        // An existing run is not touched: training would write its lock and its log.
        let files = ["lock", "log.txt", "metrics.jsonl"];
        let read = || files.map(|name| std::fs::read(format!("{run}/{name}")).unwrap());
        let before = read();
        has(&dry_run(&[]), "\nwarning: ");
        dry_run(&["--overwrite"]);
        dry_run(&["--resume"]);
        assert_eq!(read(), before, "{kind:?}");
    }
    let config = format!("{}/config.toml", runs.arg(Kind::Transformer));
    let output = zoo(&["train", &config, "--dry-run"], "");
    has(
        &text(&output.stdout),
        "\nsteps: 6 (2.00 epochs), batches per step: 1\n",
    );
}

fn standard_input(runs: &Runs) {
    let run = runs.arg(Kind::Transformer);
    let output = zoo(&["translate", &run], "a b\n\nc\n");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| text(it));
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
    // No prompt without a terminal. Drivers may print messages of their own.
    for part in ["Ctrl-D", "> ", "vocabulary"] {
        lacks(&stderr, part);
    }
    // An unknown word of a file is reported once.
    let input = "a zwölf\nb\nzwölf zwölf a\n";
    let output = zoo(&["translate", &run, "--batch", "1"], input);
    let stderr = text(&output.stderr);
    let expected = "note: 1 word is not in the vocabulary and becomes <unk>: \"zwölf\"\n";
    assert_eq!(stderr.matches(expected).count(), 1, "{stderr}");
    assert_eq!(stderr.matches("vocabulary").count(), 1, "{stderr}");
    // Translations without an end.
    let min_length = ["--set", "decoding.min_length=2"];
    let args = [
        &["translate", run.as_str(), "--max-length", "2"],
        &min_length[..],
    ]
    .concat();
    let stderr = text(&zoo(&args, "a b\n\nc\n").stderr);
    let expected = "note: 2 lines were cut at max_length 2 (--max-length N allows more)\n";
    assert_eq!(stderr.matches(expected).count(), 1, "{stderr}");
    let run = runs.arg(Kind::Classifier);
    let output = zoo(&["classify", &run, "--top", "1"], "[ MAX 1 2 ]\n");
    assert_eq!(text(&output.stdout).split('\t').count(), 2);
}

/// Each command with its input, the words of its notes, and a part of its output.
#[cfg(unix)]
fn unknown_words_are_reported_before_the_result(runs: &Runs) {
    let [page, source] = ["unknown.html", "unknown.txt"].map(|name| runs.file(name));
    std::fs::write(&source, "a flerb\nb\n").unwrap();
    let attend = format!("--text 'a flerb' --target 'Zug b' --to {}", page.display());
    let eval = format!("--source {0} --target {0}", source.display());
    let listops = "[MAX flerb 2 ]";
    for (command, kind, args, input, unknown, result) in [
        (
            "translate",
            Kind::Transformer,
            "--scores",
            "flerb Zug",
            "\"flerb\", \"Zug\"",
            "\t",
        ),
        (
            "classify",
            Kind::Classifier,
            "",
            listops,
            "\"flerb\"",
            "\t0.",
        ),
        (
            "classify",
            Kind::Classifier,
            "--json",
            listops,
            "\"flerb\"",
            "\"unknown\":[\"flerb\"]",
        ),
        (
            "attend",
            Kind::Transformer,
            &attend,
            "",
            "\"flerb\"",
            "unknown.html",
        ),
        (
            "attend",
            Kind::Transformer,
            &attend,
            "",
            "\"Zug\"",
            "unknown.html",
        ),
        (
            "generate",
            Kind::Gpt,
            "--prompt 'to be ü' --max-length 1",
            "",
            "\"ü\"",
            "to be <unk>",
        ),
        ("eval", Kind::Transformer, &eval, "", "\"flerb\"", "BLEU"),
    ] {
        let zoo = env!("CARGO_BIN_EXE_zoo");
        let run = runs.arg(kind);
        let script = format!("echo '{input}' | {zoo} {command} {run} {args} 2>&1");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let output = text(&output.stdout);
        let note = output.find(&format!("<unk>: {unknown}\n"));
        let note = note.unwrap_or_else(|| panic!("{script}: no note about {unknown}: {output}"));
        let result = output
            .find(result)
            .unwrap_or_else(|| panic!("{script}: {output}"));
        assert!(note < result, "{script}: {output}");
    }
}

fn invalid_arguments_are_rejected(runs: &Runs) {
    let run = runs.arg(Kind::Transformer);
    let rejected = |command: &str, args: &str, expected: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        let args = [&[command, run.as_str()], &args[..]].concat();
        let output = zoo(&args, "");
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    };
    rejected("translate", "", "standard input is empty");
    let expected = "expected best, last, average or a step";
    rejected("translate", "--checkpoint bst", expected);
    let misspelled = "--set decoding.max_lenght=3";
    rejected("translate", misspelled, "did you mean max_length?");
    let expected = "is a transformer, which does not support `zoo generate`";
    rejected("generate", "", expected);
    rejected("attend", "", "<--text <TEXT>|--file <FILE>|--example <N>>");
    let expected = "--part has been renamed to --attention";
    rejected("attend", "--text a --part cross", expected);
    let expected = "--part has been renamed to --split";
    rejected("eval", "--part test", expected);
}

fn names_of_runs_have_suggestions(runs: &Runs) {
    let folder = runs.file("by-name");
    copy_folder(runs.folder(Kind::Transformer), &folder.join("runs/rev"));
    for config in ["rev.toml", "new.toml"] {
        std::fs::copy(folder.join("runs/rev/config.toml"), folder.join(config)).unwrap();
    }
    let run = Path::new("runs").join("rev").display().to_string();
    let config = format!("{run}/config.toml");
    let suggestion = format!("\n  help: did you mean {run}?\n");
    for (command, path, message, help) in [
        (
            "eval",
            "rev",
            "no run at rev (no config.toml)",
            suggestion.as_str(),
        ),
        ("eval", "rve", "no run at rve (no config.toml)", &suggestion),
        ("inspect", "rev", "rev does not exist", &suggestion),
        (
            "translate",
            "rev.toml",
            "rev.toml is a config, not a run",
            &suggestion,
        ),
        (
            "translate",
            &config,
            "config.toml is a config, not a run",
            &suggestion,
        ),
        (
            "translate",
            "new.toml",
            "new.toml is a config, not a run",
            "\n  help: `zoo train new.toml` creates a run\n",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_zoo"))
            .args([command, path])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success(), "{command} {path}");
        has(&text(&output.stderr), format!("{message}{help}"));
    }
}

/// Standard streams that are closed or on a full disk.
#[cfg(unix)]
fn failing_output_does_not_panic(runs: &Runs) {
    let run = runs.arg(Kind::Transformer);
    let zoo = env!("CARGO_BIN_EXE_zoo");
    let shell = |command: &str| {
        // Descriptor 3 returns the exit status of `zoo` from within a pipe.
        let script = format!("exec 3>&1; ( {command} ) ");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| text(it));
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
        (stdout, stderr)
    };
    let config = format!("{run}/config.toml");
    let commands = [
        format!("{zoo} new gpt"),
        format!("{zoo} train {config} --print-config"),
        format!("{zoo} train {config} --dry-run"),
        format!("{zoo} inspect {run}"),
        format!("echo a b | {zoo} translate {run}"),
    ];
    for command in &commands {
        // A closed pipe is not an error, as in other programs.
        let (stdout, stderr) = shell(&format!("( sleep 0.2; {command}; echo $? >&3 ) | true"));
        assert_eq!(stdout, "0\n", "{command}: {stderr}");
        // A Vulkan driver prints errors of its own.
        assert!(!stderr.contains("standard output"), "{command}: {stderr}");
    }
    if !cfg!(target_os = "linux") {
        return;
    }
    for command in &commands {
        let (stdout, stderr) = shell(&format!("{command} > /dev/full; echo $?"));
        assert_eq!(stdout, "1\n", "{command}: {stderr}");
        let expected = "error: standard output cannot be written: ";
        assert!(stderr.contains(expected), "{command}: {stderr}");
    }
    // Notes may be lost, the result may not.
    let without_notes = |command: &str| shell(&format!("{command} 2> /dev/full; echo $?")).0;
    let translated = without_notes(&format!("echo a zwölf | {zoo} translate {run}"));
    ends(&translated, "\n0\n");
    ends(&without_notes(&format!("{zoo} eval {run}")), "\n0\n");
    let missing = without_notes(&format!("{zoo} inspect {run}/nothing"));
    assert_eq!(missing, "1\n");
}
