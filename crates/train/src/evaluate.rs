//! How good a run is at texts: its own that it has not learned from, or others.

use std::path::PathBuf;

use zoo_data::metrics::Bleu;

use crate::generate::generate_config;
use crate::judge::{Judge, Judgement};
use crate::task::{Ids, Note, Task, check_lengths, read_texts};
use crate::trained::TrainedTask;
use crate::{TrainError, Trained};

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DataPart {
    /// What the run learns from.
    #[value(skip)]
    Train,
    /// What the run was validated with.
    Valid,
    /// What nobody looked at while it was trained.
    Test,
}

impl DataPart {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Valid => "validation",
            Self::Test => "test",
        }
    }
}

/// The texts that a run is evaluated with.
#[derive(Debug, Clone)]
pub enum Source {
    /// A part of its own data; the test, or the validation where there is no test, if not given.
    Own(Option<DataPart>),
    /// Texts to translate, and what should become of them, line by line.
    Parallel(PathBuf, PathBuf),
    /// Texts with their classes.
    Labelled(PathBuf),
    /// Running text.
    Plain(PathBuf),
}

/// How good a run is at texts.
#[derive(Debug)]
pub struct Evaluated {
    /// How good it was.
    pub judgement: Judgement,
    /// What the texts are called.
    pub name: String,
    /// How many examples or characters there are.
    pub size: usize,
}

impl Trained {
    /// How good the model is at texts.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if there is nothing in that part, or these are no texts for this
    /// model; [`TrainError::TooLong`] and [`TrainError::Data`] for texts it cannot take.
    pub fn evaluate(
        &self,
        source: &Source,
        bleu: Bleu,
        samples: usize,
        note: Note<'_>,
    ) -> Result<Evaluated, TrainError> {
        let judge = Judge {
            generate: generate_config(&self.config).ok(),
            bleu,
            samples,
            device: self.opened.device.clone(),
        };
        self.model.evaluate(self, source, &judge, note)
    }
}

/// How good a model is at texts of its task.
pub(crate) fn evaluate<T: Task>(
    TrainedTask { task, model }: &TrainedTask<T>,
    trained: &Trained,
    source: &Source,
    judge: &Judge,
    note: Note<'_>,
) -> Result<Evaluated, TrainError> {
    let config = &trained.config;
    let (texts, part, name) = match source {
        Source::Own(part) => {
            let parts = read_texts::<T>(config, note)?;
            let part = part.unwrap_or(match T::size(&parts.test) {
                0 => DataPart::Valid,
                _ => DataPart::Test,
            });
            let texts = match part {
                DataPart::Train => parts.train,
                DataPart::Valid => parts.valid,
                DataPart::Test => parts.test,
            };
            (texts, part, format!("{} data", part.word()))
        }
        Source::Parallel(path, _) | Source::Labelled(path) | Source::Plain(path) => {
            let texts = T::read_files(config, source, note)?.ok_or_else(|| {
                TrainError::Refused(format!(
                    "a {} cannot be judged by such texts: it takes {}",
                    config.model.word(),
                    T::FILES
                ))
            })?;
            (texts, DataPart::Test, path.display().to_string())
        }
    };
    let size = T::size(&texts);
    if size == 0 {
        return Err(TrainError::Refused(format!(
            "the {} data has no examples: choose another --part, or give texts of your own",
            part.word()
        )));
    }
    let ids = task.encode(config, part, &texts, note)?;
    check_lengths(task, part, &ids)?;
    let examples = ids.examples(task.context(), None);
    let judgement = task.evaluate(model, &examples, &texts, judge)?;
    Ok(Evaluated {
        judgement,
        name,
        size,
    })
}
