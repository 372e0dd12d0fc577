//! Detection of changed data on resume. It does not depend on the device.

use std::path::Path;

use zoo_backend::OpenDevice;
use zoo_config::Config;
use zoo_train::{TrainError, TrainOptions, train};

use crate::support::*;

trials! {
    trials(OpenDevice):
    changed_rows_are_reported,
    the_changed_file_is_named,
    changed_plain_text_is_reported,
    checkpoints_without_a_fingerprint_resume_with_a_note,
}

/// A CSV file for a classifier.
fn rows(count: usize, label: impl Fn(usize) -> usize) -> String {
    let row = |i: usize| format!("{},{}\n", label(i), ["up up", "down"][i % 2]);
    "label,text\n".to_owned() + &(0..count).map(row).collect::<String>()
}

/// A small run and its config.
struct Run {
    folder: TempDir,
    config: Config,
}

impl Run {
    fn new(opened: &OpenDevice, folder: TempDir, data: &str, model: &str) -> Self {
        let sections = format!(
            "data = {data}\nmodel = {model}\ntraining.batch_size = 2\ntraining.steps = 7\n\
             training.checkpoint_every = 7\nvalidation.samples = 0"
        );
        let config = parse_config(opened.id, &folder, "small", &sections);
        let run = Self { folder, config };
        run.train();
        run
    }

    fn classifier(opened: &OpenDevice) -> Self {
        let folder = TempDir::new();
        let train = quoted(&folder.write("train.csv", rows(16, |i| i % 2)));
        let data = format!("{{ kind = \"labelled\", train = {train}, valid = {train} }}");
        let model = "{ kind = \"classifier\", d_model = 4, n_heads = 1, layers = 1 }";
        Self::new(opened, folder, &data, model)
    }

    fn train(&self) {
        train(&self.config, &quiet()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Resumes for two more steps. Returns the number of steps.
    fn resume(&self, accept_changed_data: bool) -> Result<usize, TrainError> {
        let mut config = self.config.clone();
        config.training.steps = Some(9);
        let options = TrainOptions {
            accept_changed_data,
            ..resume()
        };
        train(&config, &options).map(|output| output.steps)
    }

    /// Asserts that resuming fails with this message, that the run is not modified, and that
    /// `--accept-changed-data` accepts the new data permanently.
    fn assert_rejects(&self, key: &str, path: &Path, what: &str) {
        let error = self.resume(false).unwrap_err().to_string();
        let run = self.folder.join("runs/small");
        let expected = format!(
            "cannot resume {}: {key} = {} has changed since the checkpoint of step 7: \
             {what}\n  help: restore the data or start a new run; --accept-changed-data \
             resumes with the changed data",
            run.display(),
            path.display()
        );
        assert_eq!(error, expected);
        assert_eq!(self.resume(true).unwrap(), 9);
        let log = std::fs::read_to_string(run.join("log.txt")).unwrap();
        has(&log, "has changed (--accept-changed-data)");
        // The accepted data is the reference from now on.
        assert_eq!(self.resume(false).unwrap(), 9);
    }
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

fn changed_rows_are_reported(opened: &OpenDevice) {
    let other_label = rows(16, |i| usize::from(i % 2 == 1 && i != 5));
    // The run is at batch seven of eight, which no longer exists: this must not panic.
    let fewer = rows(6, |i| i % 2);
    for (rows, what) in [
        (other_label, "the labels of its 16 examples differ"),
        (fewer, "it had 16 examples, now 6"),
    ] {
        let run = Run::classifier(opened);
        let path = run.folder.write("train.csv", rows);
        run.assert_rejects("data.train", &path, what);
    }
}

fn the_changed_file_is_named(opened: &OpenDevice) {
    let folder = TempDir::new();
    let source = folder.write("train.a", "a b\n".repeat(16));
    let target = folder.write("train.b", "a b\n".repeat(16));
    let valid = folder.write("valid.tsv", "a b\tb a\n".repeat(16));
    let data = format!(
        "{{ kind = \"parallel\", train = [{}, {}], valid = {} }}",
        quoted(&source),
        quoted(&target),
        quoted(&valid)
    );
    let model = "{ kind = \"transformer\", d_model = 4, n_heads = 1, layers = 1 }";
    let run = Run::new(opened, folder, &data, model);
    run.folder.write("valid.tsv", "a b\tb b\n".repeat(16));
    let expected = "the target texts of its 16 examples differ";
    run.assert_rejects("data.valid", &valid, expected);
    std::fs::remove_dir_all(run.folder.join("runs")).unwrap();
    run.train();
    run.folder.write("train.b", "b a\n".repeat(16));
    run.assert_rejects("data.train", &target, expected);
}

fn changed_plain_text_is_reported(opened: &OpenDevice) {
    let folder = TempDir::new();
    let path = folder.write("text.txt", "to be or not to be. ".repeat(40));
    let data = format!("{{ kind = \"plain\", train = {} }}", quoted(&path));
    let model = "{ kind = \"gpt\", context = 8, d_model = 4, n_heads = 1, layers = 1 }";
    let run = Run::new(opened, folder, &data, model);
    run.folder
        .write("text.txt", "to be or ton to be. ".repeat(40));
    let expected = "the texts of its 720 tokens differ";
    run.assert_rejects("data.train", &path, expected);
}

fn checkpoints_without_a_fingerprint_resume_with_a_note(opened: &OpenDevice) {
    let run = Run::classifier(opened);
    let checkpoint = run.folder.join("runs/small/checkpoints/step-00000007");
    let path = checkpoint.join("state.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(state.as_object_mut().unwrap().remove("data").is_some());
    std::fs::write(&path, state.to_string()).unwrap();
    write_checksums(&checkpoint);
    // Fewer examples must not panic.
    run.folder.write("train.csv", rows(6, |i| i % 2));
    assert_eq!(run.resume(false).unwrap(), 9);
    let log = std::fs::read_to_string(run.folder.join("runs/small/log.txt")).unwrap();
    has(&log, "the data is not checked");
}
