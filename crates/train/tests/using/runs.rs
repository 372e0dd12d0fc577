//! A small run of every kind of model, trained once and used by all tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::{Args, Parser};
use libtest_mimic::Trial;
use zoo_backend::{Backend, Opened};
use zoo_config::Config;
use zoo_train::cli::Command;
use zoo_train::{Finished, TrainError, TrainOptions, train};

use crate::shared::Folder;

/// A model of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Transformer,
    Seq2Seq,
    Gpt,
    Classifier,
    Han,
}

/// Runs that are trained when they are first asked for.
#[derive(Clone)]
pub(crate) struct Runs(Arc<Inner>);

struct Inner {
    opened: Opened,
    folder: Folder,
    trained: [OnceLock<Finished>; 5],
}

impl Runs {
    pub(crate) fn new(opened: Opened) -> Self {
        Self(Arc::new(Inner {
            opened,
            folder: Folder::new(),
            trained: Default::default(),
        }))
    }

    /// What they are trained on.
    pub(crate) fn backend(&self) -> Backend {
        self.0.opened.word.backend
    }

    /// A test with these runs.
    pub(crate) fn trial(&self, name: &str, test: fn(&Self)) -> Trial {
        let runs = self.clone();
        Trial::test(name, move || {
            test(&runs);
            Ok(())
        })
    }

    /// A file of a test's own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    /// The same with something in it.
    pub(crate) fn written(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        self.0.folder.write(name, text)
    }

    /// What came of the training.
    pub(crate) fn finished(&self, kind: Kind) -> &Finished {
        self.0.trained[kind as usize].get_or_init(|| {
            let options = TrainOptions {
                quiet: true,
                ..TrainOptions::default()
            };
            train(&self.config(kind), &options).unwrap_or_else(|error| panic!("{error}"))
        })
    }

    /// Where the run is.
    pub(crate) fn run(&self, kind: Kind) -> &Path {
        self.finished(kind).folder.path()
    }

    /// The same as an argument.
    pub(crate) fn word(&self, kind: Kind) -> String {
        self.run(kind).display().to_string()
    }

    /// What a command printed, used with a run.
    #[track_caller]
    pub(crate) fn printed<C: Command>(&self, kind: Kind, words: &[&str]) -> String {
        printed::<C>(&[&[self.word(kind).as_str()], words].concat())
    }

    /// What a command was refused with, used with a run.
    #[track_caller]
    pub(crate) fn refused<C: Command>(&self, kind: Kind, words: &[&str]) -> String {
        refused::<C>(&[&[self.word(kind).as_str()], words].concat())
    }

    /// A file of a test's own with something in it, as an argument.
    pub(crate) fn given(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        self.written(name, text).display().to_string()
    }

    fn config(&self, kind: Kind) -> Config {
        // Few steps of small models: on a software adapter each takes its time.
        let copy = "data = { kind = \"copy\", symbols = 4, min_length = 2, max_length = 4, \
                    train_size = 60, valid_size = 6, test_size = 6 }\ndecoding.max_length = 6\n\
                    training.batch_size = 20\n";
        let sections = match kind {
            // It has places for six tokens, so that a text can be too long.
            Kind::Transformer => format!(
                "{copy}model = {{ kind = \"transformer\", d_model = 8, heads = 2, layers = 1, \
                 positions = {{ kind = \"learned\", longest = 6 }} }}\n\
                 training.steps = 6\ntraining.checkpoint_every = 2\ntraining.keep = 3\n\
                 validation.every = 2"
            ),
            Kind::Seq2Seq => format!(
                "{copy}model = {{ kind = \"seq2seq\", d_embedding = 8, d_hidden = 8 }}\n\
                 training.steps = 2"
            ),
            Kind::Gpt => {
                let text = "to be or not to be, that is the question. ".repeat(30);
                let path = self.written("text.txt", text);
                format!(
                    "data = {{ kind = \"plain\", train = {:?}, test_share = 0.1 }}\n\
                     model = {{ kind = \"gpt\", d_model = 8, heads = 2, layers = 1, context = 16 }}\n\
                     training.batch_size = 4\ntraining.steps = 2",
                    path.display().to_string()
                )
            }
            Kind::Classifier => "data = { kind = \"listops\", max_depth = 2, max_length = 12, \
                                 train_size = 60, valid_size = 6, test_size = 8 }\n\
                                 model = { kind = \"classifier\", d_model = 8, heads = 2, layers = 1, \
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
        let text = format!(
            "run.output = {:?}\nrun.name = \"{kind:?}\"\nbackend.word = \"{}\"\n{sections}\n",
            self.file("runs").display().to_string(),
            self.0.opened.word
        );
        Config::parse("small.toml", &text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

#[derive(Parser)]
struct Line<A: Args> {
    #[command(flatten)]
    arguments: A,
}

/// What a command does with these words, and what it printed until then.
pub(crate) fn run<C: Command>(words: &[&str]) -> (Result<(), TrainError>, String) {
    let words = ["zoo"].iter().chain(words);
    let line = Line::<C>::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    let mut out = vec![];
    let done = line.arguments.run(&mut out);
    (done, String::from_utf8(out).unwrap())
}

/// What a command printed.
#[track_caller]
pub(crate) fn printed<C: Command>(words: &[&str]) -> String {
    let (done, text) = run::<C>(words);
    done.unwrap_or_else(|error| panic!("{error}"));
    text
}

/// What a command was refused with.
#[track_caller]
pub(crate) fn refused<C: Command>(words: &[&str]) -> String {
    match run::<C>(words) {
        (Ok(()), text) => panic!("it was not refused: {text}"),
        (Err(error), _) => error.to_string(),
    }
}
