//! The `zoo` program itself: what goes in, what comes out, and how it ends.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use libtest_mimic::Trial;

use crate::runs::{Kind, Runs};
use crate::shared::{ends, has, lacks};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("program::every_command_helps", helps),
        runs.trial("program::lines_go_through_it", lines_go_through),
        runs.trial("program::a_mistake_ends_it_in_words", mistakes),
        #[cfg(unix)]
        runs.trial("program::output_that_fails_is_no_panic", failing_output),
    ]
}

fn zoo(words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zoo"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that has refused its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn helps(_: &Runs) {
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

fn lines_go_through(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let output = zoo(&["translate", &run], "a b\n\nc\n");
    let [said, complained] = [&output.stdout, &output.stderr].map(|it| text(it));
    assert!(output.status.success(), "{complained}");
    assert_eq!(said.lines().count(), 3, "{said}");
    // Nobody is asked who cannot see it. Drivers may have something to say of their own.
    assert!(
        !complained.contains("Ctrl-D") && !complained.contains("> "),
        "{complained}"
    );
    lacks(&complained, "unknown");
    let output = zoo(
        &["translate", &run, "--batch", "1"],
        "a zwölf\nb\nzwölf zwölf a\n",
    );
    let complained = text(&output.stderr);
    let expected = "3 of 6 tokens, in 2 of 3 lines, are unknown to the tokenizer";
    assert_eq!(complained.matches(expected).count(), 1, "{complained}");
    let run = runs.word(Kind::Classifier);
    let output = zoo(&["classify", &run, "--top", "1"], "[ MAX 1 2 ]\n");
    assert_eq!(text(&output.stdout).split('\t').count(), 2);
}

fn mistakes(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    for (words, input, part) in [
        (
            vec!["translate", &run],
            "",
            "there is nothing in standard input",
        ),
        (
            vec!["translate", &run, "--checkpoint", "bst"],
            "",
            "expected best, last, average or the number of a step",
        ),
        (
            vec!["translate", &run, "--set", "decoding.max_lenght=3"],
            "a\n",
            "did you mean max_length?",
        ),
        (
            vec!["generate", &run],
            "",
            "is a transformer, which cannot generate",
        ),
        (vec!["attend", &run], "", "<--text <TEXT>|--file <FILE>>"),
        (vec!["new", "gtp"], "", "did you mean gpt?"),
    ] {
        let output = zoo(&words, input);
        let complained = text(&output.stderr);
        assert!(!output.status.success(), "{words:?}");
        assert!(complained.contains(part), "{words:?}: {complained}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

/// As in a shell: the streams are redirected, or closed by who reads them.
#[cfg(unix)]
fn failing_output(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let zoo = env!("CARGO_BIN_EXE_zoo");
    let shell = |command: &str| {
        // The status of `zoo`, also where it stands before others in a pipe.
        let script = format!("exec 3>&1; ( {command} ) ");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let [said, complained] = [&output.stdout, &output.stderr].map(|it| text(it));
        assert!(!complained.contains("panicked"), "{command}: {complained}");
        (said, complained)
    };
    let config = format!("{run}/config.toml");
    let commands = [
        format!("{zoo} new gpt"),
        format!("{zoo} train {config} --print-config"),
        format!("{zoo} inspect {run}"),
        format!("echo a b | {zoo} translate {run}"),
    ];
    for command in &commands {
        // Nobody reads any more: quiet, as other programs are.
        let (said, complained) = shell(&format!("( sleep 0.2; {command}; echo $? >&3 ) | true"));
        assert_eq!(said, "0\n", "{command}: {complained}");
        // A Vulkan driver prints errors of its own.
        assert!(
            !complained.contains("standard output"),
            "{command}: {complained}"
        );
    }
    if !cfg!(target_os = "linux") {
        return;
    }
    for command in &commands {
        let (said, complained) = shell(&format!("{command} > /dev/full; echo $?"));
        assert_eq!(said, "1\n", "{command}: {complained}");
        let expected = "error: standard output cannot be written: ";
        assert!(complained.contains(expected), "{command}: {complained}");
    }
    // What is told beside the result may be lost, the result may not.
    let (said, _) = shell(&format!(
        "echo a zwölf | {zoo} translate {run} 2> /dev/full; echo $?"
    ));
    ends(&said, "\n0\n");
    let (said, _) = shell(&format!("{zoo} eval {run} 2> /dev/full; echo $?"));
    ends(&said, "\n0\n");
    let (said, _) = shell(&format!(
        "{zoo} inspect {run}/nothing 2> /dev/full; echo $?"
    ));
    assert_eq!(said, "1\n");
}
