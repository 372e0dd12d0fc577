//! A run is resumed with the data it was trained with.
//!
//! That is decided before anything is computed, so it is tested on flex alone.

use std::path::Path;

use zoo_backend::Opened;
use zoo_config::Config;
use zoo_train::{TrainError, TrainOptions, train};

use crate::shared::has;
use crate::support::{Folder, config_of, quiet, resume, seal, trials};

trials! {
    trials:
    changed_rows_are_named,
    the_changed_one_of_several_files_is_named,
    changed_running_text_is_named,
    an_older_checkpoint_resumes_with_a_note,
}

/// Rows of a classifier's CSV file.
fn rows(count: usize, label_of: impl Fn(usize) -> usize) -> String {
    let row = |at: usize| format!("{},{}\n", label_of(at), ["up up", "down"][at % 2]);
    "label,text\n".to_owned() + &(0..count).map(row).collect::<String>()
}

/// A small run of these data.
struct Run {
    folder: Folder,
    config: Config,
}

impl Run {
    fn new(opened: &Opened, folder: Folder, data: &str, model: &str) -> Self {
        let sections = format!(
            "data = {data}\nmodel = {model}\ntraining.batch_size = 2\ntraining.steps = 7\n\
             training.checkpoint_every = 7\nvalidation.samples = 0"
        );
        let config = config_of(opened, &folder, "small", &sections);
        let run = Self { folder, config };
        run.train();
        run
    }

    fn classifier(opened: &Opened) -> Self {
        let folder = Folder::new();
        let train = folder.write("train.csv", rows(16, |at| at % 2));
        let data = format!(
            "{{ kind = \"labelled\", train = {}, valid = {} }}",
            quoted(&train),
            quoted(&train)
        );
        Self::new(
            opened,
            folder,
            &data,
            "{ kind = \"classifier\", d_model = 4, heads = 1, layers = 1 }",
        )
    }

    fn train(&self) {
        train(&self.config, &quiet()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Resumes for two more steps. Returns the error, if there is one.
    fn resume(&self, accept_changed_data: bool) -> Result<usize, TrainError> {
        let mut config = self.config.clone();
        config.training.steps = Some(9);
        let options = TrainOptions {
            accept_changed_data,
            ..resume()
        };
        train(&config, &options).map(|finished| finished.steps)
    }

    /// That a change is refused, in these words, that nothing of the run is lost by it, and that
    /// it can be accepted, once.
    fn refuses(&self, source: &str, what: &str) {
        let error = self.resume(false).unwrap_err().to_string();
        let run = self.folder.join("runs/small");
        let expected = format!(
            "{} was trained with other data: {source} has changed since the checkpoint of step 7: \
             {what}\n  do: restore it, or begin a new run; --accept-changed-data resumes with it \
             as it is now",
            run.display()
        );
        assert_eq!(error, expected);
        assert_eq!(self.resume(true).unwrap(), 9);
        let log = std::fs::read_to_string(run.join("log.txt")).unwrap();
        has(&log, "has changed, which is accepted");
        // What was accepted is what it is trained with now.
        assert_eq!(self.resume(false).unwrap(), 9);
    }
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

fn changed_rows_are_named(opened: &Opened) {
    let other_label = rows(16, |at| usize::from(at % 2 == 1 && at != 5));
    // The run has made seven of the eight batches of an epoch: no panic either.
    let fewer = rows(6, |at| at % 2);
    for (rows, what) in [
        (other_label, "the labels of its 16 examples differ"),
        (fewer, "it had 16 examples, and has 6"),
    ] {
        let run = Run::classifier(opened);
        let path = run.folder.write("train.csv", rows);
        run.refuses(&format!("data.train = {}", path.display()), what);
    }
}

fn the_changed_one_of_several_files_is_named(opened: &Opened) {
    let folder = Folder::new();
    let [source, target, valid] = ["train.a", "train.b", "valid.tsv"].map(|name| {
        let line = match name {
            "valid.tsv" => "a b\tb a\n",
            _ => "a b\n",
        };
        folder.write(name, line.repeat(16))
    });
    let data = format!(
        "{{ kind = \"parallel\", train = [{}, {}], valid = {} }}",
        quoted(&source),
        quoted(&target),
        quoted(&valid)
    );
    let model = "{ kind = \"transformer\", d_model = 4, heads = 1, layers = 1 }";
    let run = Run::new(opened, folder, &data, model);
    run.folder.write("valid.tsv", "a b\tb b\n".repeat(16));
    run.refuses(
        &format!("data.valid = {}", valid.display()),
        "the target texts of its 16 examples differ",
    );
    std::fs::remove_dir_all(run.folder.join("runs")).unwrap();
    run.train();
    run.folder.write("train.b", "b a\n".repeat(16));
    run.refuses(
        &format!("data.train = {}", target.display()),
        "the target texts of its 16 examples differ",
    );
}

fn changed_running_text_is_named(opened: &Opened) {
    let folder = Folder::new();
    let path = folder.write("text.txt", "to be or not to be. ".repeat(40));
    let data = format!("{{ kind = \"plain\", train = {} }}", quoted(&path));
    let model = "{ kind = \"gpt\", context = 8, d_model = 4, heads = 1, layers = 1 }";
    let run = Run::new(opened, folder, &data, model);
    run.folder
        .write("text.txt", "to be or ton to be. ".repeat(40));
    let expected = "the texts of its 720 tokens differ";
    run.refuses(&format!("data.train = {}", path.display()), expected);
}

fn an_older_checkpoint_resumes_with_a_note(opened: &Opened) {
    let run = Run::classifier(opened);
    let checkpoint = run.folder.join("runs/small/checkpoints/step-00000007");
    let path = checkpoint.join("state.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(state.as_object_mut().unwrap().remove("data").is_some());
    std::fs::write(&path, state.to_string()).unwrap();
    seal(&checkpoint);
    // As a run of that version would: fewer examples are no panic either.
    run.folder.write("train.csv", rows(6, |at| at % 2));
    assert_eq!(run.resume(false).unwrap(), 9);
    let log = std::fs::read_to_string(run.folder.join("runs/small/log.txt")).unwrap();
    has(&log, "the data is not checked");
}
