//! Output files of commands.

use zoo_train::average;
use zoo_train::cli::attend::Attend;

use crate::runs::*;

trials! {
    trials(Runs):
    run_folders_contain_only_known_files,
    #[cfg(unix)]
    links_and_pipes_are_not_replaced,
}

/// `--overwrite` removes only known files.
fn run_folders_contain_only_known_files(runs: &Runs) {
    for kind in KINDS {
        let output = runs.train_output(kind);
        let folder = &output.folder;
        average(folder, &[output.steps]).unwrap();
        assert_eq!(folder.foreign().unwrap(), None, "{kind:?}");
        assert!(folder.file("average.safetensors").is_file());
    }
    // The default output of `zoo attend`.
    let folder = &runs.train_output(Kind::Han).folder;
    let page = runs.run_ok::<Attend>(Kind::Han, &["--text", "one two ."]);
    let expected = folder.file("attention.html").display().to_string();
    assert_eq!(page.trim_end(), expected);
    assert_eq!(folder.foreign().unwrap(), None);
}

/// `--to`, `--hypotheses`, `--svg` and `--png`.
#[cfg(unix)]
fn links_and_pipes_are_not_replaced(runs: &Runs) {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::path::Path;
    use std::process::{Command, Stdio};

    use zoo_train::cli::eval::Eval;
    use zoo_train::cli::translate::Translate;

    let lines = runs.text_file("outputs.txt", "a b\nc\n");
    let run = |name: &str, to: &str| match name {
        "translate" => runs.run_ok::<Translate>(Kind::Transformer, &["--file", &lines, "--to", to]),
        "eval" => runs.run_ok::<Eval>(Kind::Transformer, &["--hypotheses", to]),
        flag => runs.run_ok::<Attend>(Kind::Transformer, &["--text", "a b", flag, to]),
    };
    for name in ["translate", "eval", "--to", "--svg", "--png"] {
        let path = |kind: &str| runs.file(&format!("outputs{name}-{kind}"));
        let write = |path: &Path| drop(run(name, path.to_str().unwrap()));
        let [plain, target, link, null, pipe] =
            ["plain", "target", "link", "null", "pipe"].map(path);
        write(&plain);
        let expected = std::fs::read(&plain).unwrap();
        assert!(!expected.is_empty(), "{name}");

        std::fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        write(&link);
        assert!(link.is_symlink(), "{name}: the link is replaced");
        assert_eq!(std::fs::read(&target).unwrap(), expected, "{name}");

        // A link, because a bug would replace the device for the whole system.
        symlink("/dev/null", &null).unwrap();
        write(&null);
        assert!(null.is_symlink(), "{name}: a link to a device is replaced");

        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        // The timeout is for the case that nothing is written to the pipe.
        let mut reader = Command::new("timeout");
        let reader = reader.args(["60", "cat"]).arg(&pipe).stdout(Stdio::piped());
        let mut reader = reader.spawn().unwrap();
        write(&pipe);
        let is_pipe = std::fs::metadata(&pipe).unwrap().file_type().is_fifo();
        if !is_pipe {
            reader.kill().unwrap();
        }
        let read = reader.wait_with_output().unwrap();
        assert!(is_pipe, "{name}: the pipe is replaced");
        assert_eq!(read.stdout, expected, "{name}");
    }
}
