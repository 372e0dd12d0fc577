//! Output files of commands.

use libtest_mimic::Trial;
use zoo_train::average;
use zoo_train::cli::attend::Attend;

use crate::runs::{Kind, Runs, run_ok};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    let mut trials = vec![runs.trial("outputs::run_folders_contain_only_known_files", every_file)];
    #[cfg(unix)]
    trials.push(runs.trial(
        "outputs::links_and_pipes_are_not_replaced",
        unix::every_flag,
    ));
    trials
}

/// `--overwrite` removes only known files.
fn every_file(runs: &Runs) {
    use Kind::{Classifier, Gpt, Han, Seq2Seq, Transformer};

    for kind in [Transformer, Seq2Seq, Gpt, Classifier, Han] {
        let output = runs.train_output(kind);
        let folder = &output.folder;
        average(folder, &[output.steps]).unwrap();
        assert_eq!(folder.foreign().unwrap(), None, "{kind:?}");
        assert!(folder.file("average.safetensors").is_file());
    }
    // The default output of `zoo attend`.
    let folder = &runs.train_output(Kind::Han).folder;
    let page = run_ok::<Attend>(&[&runs.arg(Kind::Han), "--text", "one two ."]);
    assert_eq!(
        page.trim_end(),
        folder.file("attention.html").display().to_string()
    );
    assert_eq!(folder.foreign().unwrap(), None);
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::path::Path;
    use std::process::Command;

    use zoo_train::cli::attend::Attend;
    use zoo_train::cli::eval::Eval;
    use zoo_train::cli::translate::Translate;

    use crate::runs::{Kind, Runs, run_ok};

    /// `--to`, `--hypotheses`, `--svg` and `--png`.
    pub(super) fn every_flag(runs: &Runs) {
        let run = runs.arg(Kind::Transformer);
        let lines = runs.write("outputs.txt", "a b\nc\n").display().to_string();
        let translate = |to: &str| {
            run_ok::<Translate>(&[&run, "--file", &lines, "--to", to]);
        };
        let eval = |to: &str| {
            run_ok::<Eval>(&[&run, "--hypotheses", to]);
        };
        let attend = |flag: &str, to: &str| {
            run_ok::<Attend>(&[&run, "--text", "a b", flag, to]);
        };
        type Write<'a> = (&'a str, &'a dyn Fn(&str));
        let commands: [Write<'_>; 5] = [
            ("translate", &translate),
            ("eval", &eval),
            ("page", &|to| attend("--to", to)),
            ("svg", &|to| attend("--svg", to)),
            ("png", &|to| attend("--png", to)),
        ];
        for (name, write) in commands {
            let path = |kind: &str| runs.file(&format!("outputs-{name}-{kind}"));
            let arg = |path: &Path| path.display().to_string();
            let [plain, target, link, null, pipe] =
                ["plain", "target", "link", "null", "pipe"].map(path);
            write(&arg(&plain));
            let expected = std::fs::read(&plain).unwrap();
            assert!(!expected.is_empty(), "{name}");

            std::fs::write(&target, "old").unwrap();
            symlink(&target, &link).unwrap();
            write(&arg(&link));
            assert!(link.is_symlink(), "{name}: the link is replaced");
            assert_eq!(std::fs::read(&target).unwrap(), expected, "{name}");

            // A link, because a bug would replace the device for the whole system.
            symlink("/dev/null", &null).unwrap();
            write(&arg(&null));
            assert!(
                null.is_symlink(),
                "{name}: the link to a device is replaced"
            );

            assert!(
                Command::new("mkfifo")
                    .arg(&pipe)
                    .status()
                    .unwrap()
                    .success()
            );
            // The timeout is for the case that nothing is written to the pipe.
            let mut reader = Command::new("timeout")
                .args(["60", "cat", &arg(&pipe)])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            write(&arg(&pipe));
            let is_pipe = std::fs::metadata(&pipe).unwrap().file_type().is_fifo();
            if !is_pipe {
                reader.kill().unwrap();
            }
            let read = reader.wait_with_output().unwrap();
            assert!(is_pipe, "{name}: the pipe is replaced");
            assert_eq!(read.stdout, expected, "{name}");
        }
    }
}
