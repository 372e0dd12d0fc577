//! The `zoo` program: standard streams and exit status.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use libtest_mimic::Trial;

use crate::runs::{Kind, Runs};
use crate::shared::{ends, has, lacks};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("program::every_command_has_help", help),
        runs.trial("program::standard_input", standard_input),
        runs.trial("program::invalid_arguments_are_rejected", invalid_arguments),
        #[cfg(unix)]
        runs.trial("program::failing_output_does_not_panic", failing_output),
    ]
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

fn help(_: &Runs) {
    let all = text(&zoo(&["--help"], "").stdout);
    for command in [
        "train",
        "eval",
        "translate",
        "classify",
        "generate",
        "attend",
        "average",
        "inspect",
        "new",
    ] {
        has(&all, format!("\n  {command} "));
        let output = zoo(&[command, "--help"], "");
        assert!(output.status.success(), "{command}");
        assert!(text(&output.stdout).contains("Usage: zoo"), "{command}");
    }
}

fn standard_input(runs: &Runs) {
    let run = runs.arg(Kind::Transformer);
    let output = zoo(&["translate", &run], "a b\n\nc\n");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| text(it));
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
    // No prompt without a terminal. Drivers may print messages of their own.
    assert!(
        !stderr.contains("Ctrl-D") && !stderr.contains("> "),
        "{stderr}"
    );
    lacks(&stderr, "vocabulary");
    let output = zoo(
        &["translate", &run, "--batch", "1"],
        "a zwölf\nb\nzwölf zwölf a\n",
    );
    let stderr = text(&output.stderr);
    let expected = "3 of 6 tokens, in 2 of 3 lines, are not in the vocabulary";
    assert_eq!(stderr.matches(expected).count(), 1, "{stderr}");
    let run = runs.arg(Kind::Classifier);
    let output = zoo(&["classify", &run, "--top", "1"], "[ MAX 1 2 ]\n");
    assert_eq!(text(&output.stdout).split('\t').count(), 2);
}

fn invalid_arguments(runs: &Runs) {
    let run = runs.arg(Kind::Transformer);
    for (args, input, part) in [
        (vec!["translate", &run], "", "standard input is empty"),
        (
            vec!["translate", &run, "--checkpoint", "bst"],
            "",
            "expected best, last, average or a step",
        ),
        (
            vec!["translate", &run, "--set", "decoding.max_lenght=3"],
            "a\n",
            "did you mean max_length?",
        ),
        (
            vec!["generate", &run],
            "",
            "is a transformer, which does not support `zoo generate`",
        ),
        (vec!["attend", &run], "", "<--text <TEXT>|--file <FILE>>"),
        (vec!["new", "gtp"], "", "did you mean gpt?"),
    ] {
        let output = zoo(&args, input);
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

/// Standard streams that are closed or on a full disk.
#[cfg(unix)]
fn failing_output(runs: &Runs) {
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
    let (stdout, _) = shell(&format!(
        "echo a zwölf | {zoo} translate {run} 2> /dev/full; echo $?"
    ));
    ends(&stdout, "\n0\n");
    let (stdout, _) = shell(&format!("{zoo} eval {run} 2> /dev/full; echo $?"));
    ends(&stdout, "\n0\n");
    let (stdout, _) = shell(&format!(
        "{zoo} inspect {run}/nothing 2> /dev/full; echo $?"
    ));
    assert_eq!(stdout, "1\n");
}
