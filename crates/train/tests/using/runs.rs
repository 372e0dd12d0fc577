//! A small run of every kind of model, trained once for all tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::{Args, Parser};
use zoo_backend::{Backend, OpenDevice};
use zoo_config::Config;
use zoo_train::cli::Command;
use zoo_train::{CheckpointChoice, TrainError, TrainOptions, TrainOutput, TrainedRun, train};

pub(crate) use crate::shared::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Transformer,
    Seq2Seq,
    Gpt,
    Classifier,
    Han,
}

pub(crate) const KINDS: [Kind; 5] = {
    use Kind::{Classifier, Gpt, Han, Seq2Seq, Transformer};
    [Transformer, Seq2Seq, Gpt, Classifier, Han]
};

/// Lazily trained runs.
#[derive(Clone)]
pub(crate) struct Runs(Arc<Inner>);

struct Inner {
    opened: OpenDevice,
    folder: TempDir,
    outputs: [OnceLock<TrainOutput>; 5],
}

impl Runs {
    pub(crate) fn new(opened: OpenDevice) -> Self {
        Self(Arc::new(Inner {
            opened,
            folder: TempDir::new(),
            outputs: Default::default(),
        }))
    }

    pub(crate) fn backend(&self) -> Backend {
        self.0.opened.id.backend
    }

    /// A path in the temporary folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        self.0.folder.write(name, text)
    }

    pub(crate) fn train_output(&self, kind: Kind) -> &TrainOutput {
        self.0.outputs[kind as usize].get_or_init(|| {
            let options = TrainOptions {
                quiet: true,
                ..TrainOptions::default()
            };
            train(&self.config(kind), &options).unwrap_or_else(|error| panic!("{error}"))
        })
    }

    pub(crate) fn folder(&self, kind: Kind) -> &Path {
        self.train_output(kind).folder.path()
    }

    pub(crate) fn open(&self, kind: Kind) -> TrainedRun {
        TrainedRun::open(self.folder(kind), CheckpointChoice::Best, None, &[]).unwrap()
    }

    /// The run folder as a command-line argument.
    pub(crate) fn arg(&self, kind: Kind) -> String {
        self.folder(kind).display().to_string()
    }

    /// The output of a command on a run.
    #[track_caller]
    pub(crate) fn run_ok<C: Command>(&self, kind: Kind, args: &[&str]) -> String {
        run_ok::<C>(&[&[self.arg(kind).as_str()], args].concat())
    }

    /// The error of a command on a run.
    #[track_caller]
    pub(crate) fn run_err<C: Command>(&self, kind: Kind, args: &[&str]) -> String {
        run_err::<C>(&[&[self.arg(kind).as_str()], args].concat())
    }

    /// Writes a file. Returns its path as a command-line argument.
    pub(crate) fn text_file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        self.write(name, text).display().to_string()
    }

    fn config(&self, kind: Kind) -> Config {
        // Few steps of small models, because steps are slow on a software adapter.
        let copy = "data = { kind = \"copy\", symbols = 4, min_length = 2, max_length = 4, \
                    train_size = 60, valid_size = 6, test_size = 6 }\ndecoding.max_length = 6\n\
                    training.batch_size = 20\n";
        let sections = match kind {
            // A context of six tokens, so that a text can be too long.
            Kind::Transformer => format!(
                "{copy}model = {{ kind = \"transformer\", d_model = 8, n_heads = 2, layers = 1, \
                 positions = {{ kind = \"learned\", max_positions = 6 }} }}\n\
                 training.steps = 6\ntraining.checkpoint_every = 2\ntraining.keep_checkpoints = 3\n\
                 validation.every = 2"
            ),
            Kind::Seq2Seq => format!(
                "{copy}model = {{ kind = \"seq2seq\", d_embedding = 8, d_hidden = 8 }}\n\
                 training.steps = 2"
            ),
            Kind::Gpt => {
                let text = "to be or not to be, that is the question. ".repeat(30);
                let path = self.text_file("text.txt", text);
                format!(
                    "data = {{ kind = \"plain\", train = {path:?}, test_fraction = 0.1 }}\n\
                     model = {{ kind = \"gpt\", d_model = 8, n_heads = 2, layers = 1, context = 16 }}\n\
                     training.batch_size = 4\ntraining.steps = 2"
                )
            }
            Kind::Classifier => "data = { kind = \"listops\", max_depth = 2, max_length = 12, \
                                 train_size = 60, valid_size = 6, test_size = 8 }\n\
                                 model = { kind = \"classifier\", d_model = 8, n_heads = 2, layers = 1, \
                                 pooling = \"attention\" }\n\
                                 training.batch_size = 20\ntraining.steps = 2"
                .to_owned(),
            Kind::Han => "data = { kind = \"documents\", classes = 2, min_sentences = 4, \
                          max_sentences = 5, min_words = 3, max_words = 5, train_size = 30, \
                          valid_size = 4, test_size = 4 }\n\
                          model = { kind = \"han\", d_embedding = 8, d_word = 4, d_sentence = 4 }\n\
                          training.batch_size = 10\ntraining.steps = 2"
                .to_owned(),
        };
        let name = format!("{kind:?}");
        parse_config(self.0.opened.id, &self.0.folder, &name, &sections)
    }
}

#[derive(Parser)]
struct Line<A: Args> {
    #[command(flatten)]
    arguments: A,
}

/// The result of a command and its output.
pub(crate) fn run<C: Command>(args: &[&str]) -> (Result<(), TrainError>, String) {
    let args = ["zoo"].iter().chain(args);
    let line = Line::<C>::try_parse_from(args).unwrap_or_else(|error| panic!("{error}"));
    let mut out = vec![];
    let result = line.arguments.run(&mut out);
    (result, String::from_utf8(out).unwrap())
}

/// The output of a command that succeeds.
#[track_caller]
pub(crate) fn run_ok<C: Command>(args: &[&str]) -> String {
    let (result, text) = run::<C>(args);
    result.unwrap_or_else(|error| panic!("{error}"));
    text
}

/// The error of a command that fails.
#[track_caller]
pub(crate) fn run_err<C: Command>(args: &[&str]) -> String {
    match run::<C>(args) {
        (Ok(()), text) => panic!("the command did not fail: {text}"),
        (Err(error), _) => error.to_string(),
    }
}
