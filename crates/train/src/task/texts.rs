//! The texts of the config's `[data]` section: train, valid and test splits.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use zoo_config::{Config, Data, Files, Format};
use zoo_data::tasks::{Generate, MarkedDocument, SequenceTask};
use zoo_data::{
    DataError, Dataset, Labelled, LabelledText, Pair, ParallelText, Splits, Splitter, plain_text,
};
use zoo_viz::units::count;

use super::Note;
use crate::{EvalSet, Result, TrainError};

pub(crate) trait Texts: Debug + Default + Sync {
    const UNIT: &'static str;
    /// The flags of `zoo eval` for other files.
    const FILES: &'static str;

    fn read(config: &Config, note: Note<'_>) -> Result<Splits<Self>>;

    /// Reads other files; None if they are for another task.
    fn read_files(config: &Config, eval_set: &EvalSet, note: Note<'_>) -> Result<Option<Self>>;

    /// Number of examples, or of characters of running text.
    fn size(&self) -> usize;

    /// The texts that the model reads.
    fn inputs(&self) -> Vec<&str>;

    /// An example, counted from 0: of running text, the next `context` characters.
    fn example(&self, index: usize, context: usize) -> Option<ExampleText>;
}

/// A text of the data, and the expected output, a translation or a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExampleText {
    pub(crate) text: String,
    pub(crate) reference: Option<String>,
}

/// Reads or generates the texts of a config, and reports their number.
pub(crate) fn read_texts<T: Texts>(config: &Config, note: Note<'_>) -> Result<Splits<T>> {
    let parts = T::read(config, note)?;
    let sizes = [
        (parts.train.size(), "train"),
        (parts.valid.size(), "valid"),
        (parts.test.size(), "test"),
    ];
    let sizes = sizes.into_iter().filter(|(size, _)| *size > 0);
    let sizes = sizes.map(|(size, split)| format!("{} {split}", count(size)));
    let sizes: Vec<String> = sizes.collect();
    note(&format!("{}: {}", T::UNIT, sizes.join(", ")));
    Ok(parts)
}

impl Texts for Vec<Pair> {
    const UNIT: &'static str = "pairs";
    const FILES: &'static str = "--source FILE with --target FILE";

    fn read(config: &Config, note: Note<'_>) -> Result<Splits<Self>> {
        let seed = config.run.seed;
        Ok(match &config.data {
            Data::Copy(data) => SequenceTask::Copy.generate(data, seed)?,
            Data::Reverse(data) => SequenceTask::Reverse.generate(data, seed)?,
            Data::Sort(data) => SequenceTask::Sort.generate(data, seed)?,
            Data::Dates(data) => data.generate(seed)?,
            Data::Recall(data) => data.generate(seed)?,
            Data::Phrases(data) => data.generate(seed)?,
            Data::Parallel(data) => parallel(data, seed, note)?,
            _ => return Err(other_data(config)),
        })
    }

    fn read_files(_: &Config, eval_set: &EvalSet, note: Note<'_>) -> Result<Option<Self>> {
        let EvalSet::Parallel(source, target) = eval_set else {
            return Ok(None);
        };
        let read = ParallelText::files(source, target).read()?;
        Ok(Some(examples(read, note)))
    }

    fn size(&self) -> usize {
        self.len()
    }

    fn inputs(&self) -> Vec<&str> {
        self.iter().map(|pair| pair.source.as_str()).collect()
    }

    fn example(&self, index: usize, _: usize) -> Option<ExampleText> {
        self.get(index).map(|pair| ExampleText {
            text: pair.source.clone(),
            reference: Some(pair.target.clone()),
        })
    }
}

impl Texts for Vec<Labelled> {
    const UNIT: &'static str = "documents";
    const FILES: &'static str = "--labelled FILE";

    fn read(config: &Config, note: Note<'_>) -> Result<Splits<Self>> {
        let seed = config.run.seed;
        match &config.data {
            Data::ListOps(data) => Ok(data.generate(seed)?),
            Data::Recall(data) => {
                let labelled = |pair: Pair| Labelled::new(pair.target, pair.source);
                let labelled = |pairs: Vec<Pair>| pairs.into_iter().map(labelled).collect();
                Ok(data.generate(seed)?.map(labelled))
            }
            Data::Documents(data) => {
                let labelled = |documents: Vec<MarkedDocument>| {
                    documents.iter().map(MarkedDocument::to_labelled).collect()
                };
                Ok(data.generate(seed)?.map(labelled))
            }
            Data::Labelled(data) => labelled(data, seed, note),
            _ => Err(other_data(config)),
        }
    }

    fn read_files(config: &Config, eval_set: &EvalSet, note: Note<'_>) -> Result<Option<Self>> {
        let EvalSet::Labelled(path) = eval_set else {
            return Ok(None);
        };
        let read = labelled_text(config, path).read()?;
        Ok(Some(examples(read, note)))
    }

    fn size(&self) -> usize {
        self.len()
    }

    fn inputs(&self) -> Vec<&str> {
        self.iter().map(|example| example.text.as_str()).collect()
    }

    fn example(&self, index: usize, _: usize) -> Option<ExampleText> {
        self.get(index).map(|example| ExampleText {
            text: example.text.clone(),
            reference: Some(example.label.clone()),
        })
    }
}

impl Texts for String {
    const UNIT: &'static str = "characters";
    const FILES: &'static str = "--text FILE";

    fn read(config: &Config, note: Note<'_>) -> Result<Splits<Self>> {
        let Data::Plain(data) = &config.data else {
            return Err(other_data(config));
        };
        let files = (&data.train, &data.valid, &data.test);
        let split = new_split(data.valid_fraction, data.test_fraction, 0);
        let read = |path: &PathBuf| -> Result<String> {
            let text = plain_text(path)?;
            note(&format!(
                "{}: {} characters",
                path.display(),
                count(text.size())
            ));
            Ok(text)
        };
        parts(files, &split, read, |split, text| split.text(&text))
    }

    fn read_files(_: &Config, eval_set: &EvalSet, _: Note<'_>) -> Result<Option<Self>> {
        match eval_set {
            EvalSet::Plain(path) => Ok(Some(plain_text(path)?)),
            _ => Ok(None),
        }
    }

    fn size(&self) -> usize {
        self.chars().count()
    }

    fn inputs(&self) -> Vec<&str> {
        vec![self]
    }

    fn example(&self, index: usize, context: usize) -> Option<ExampleText> {
        let window = self.chars().skip(index.checked_mul(context)?).take(context);
        let text: String = window.collect();
        (!text.is_empty()).then_some(ExampleText {
            text,
            reference: None,
        })
    }
}

fn parallel(data: &zoo_config::Parallel, seed: u64, note: Note<'_>) -> Result<Splits<Vec<Pair>>> {
    let read = |files: &Files| -> Result<Vec<Pair>> {
        let text = match files {
            Files::Two([source, target]) => ParallelText::files(source, target),
            Files::One(path) => {
                // Columns of the config are counted from 1.
                let column = |column: Option<usize>, default: usize| column.unwrap_or(default) - 1;
                let [source, target] =
                    [column(data.source_column, 1), column(data.target_column, 2)];
                ParallelText::tsv_columns(path, source, target)
            }
        };
        let read = text.with_max_malformed(data.max_malformed).read()?;
        Ok(examples(read, note))
    };
    let files = (&data.train, &data.valid, &data.test);
    let split = new_split(data.valid_fraction, data.test_fraction, seed);
    parts(files, &split, read, |split, mut train| {
        train.truncate(data.max_examples.unwrap_or(usize::MAX));
        split.examples(train)
    })
}

fn labelled(
    data: &zoo_config::Labelled,
    seed: u64,
    note: Note<'_>,
) -> Result<Splits<Vec<Labelled>>> {
    let read = |path: &PathBuf| -> Result<Vec<Labelled>> {
        let text = labelled_file(data, resolve_format(data.format, path), path);
        let read = text.with_max_malformed(data.max_malformed).read()?;
        Ok(examples(read, note))
    };
    let files = (&data.train, &data.valid, &data.test);
    let split = new_split(data.valid_fraction, data.test_fraction, seed);
    parts(files, &split, read, |split, mut train| {
        if let Some(max) = data.max_examples.filter(|max| *max < train.len()) {
            // A stratified sample, because files are often sorted by class.
            let fraction = 1.0 - max as f64 / train.len() as f64;
            train = Splitter::new(fraction, seed).labelled(train)?.train;
        }
        split.labelled(train)
    })
}

/// A file of labelled texts, in the format of its name, or else of the config.
fn labelled_text(config: &Config, path: &Path) -> LabelledText {
    let default = zoo_config::Labelled::default();
    let data = match &config.data {
        Data::Labelled(data) => data,
        _ => &default,
    };
    let format = match resolve_format(Format::Auto, path) {
        Format::Folders => resolve_format(data.format, path),
        format => format,
    };
    labelled_file(data, format, path)
}

fn labelled_file(data: &zoo_config::Labelled, format: Format, path: &Path) -> LabelledText {
    let [label, text] = [data.label_field.as_str(), data.text_field.as_str()];
    match format {
        Format::Csv => LabelledText::csv(path, label, text),
        Format::JsonLines => LabelledText::json_lines(path, label, text),
        Format::Folders => LabelledText::folders(path),
        Format::Tsv | Format::Auto => LabelledText::tsv(path),
    }
}

/// The format of a file; `Auto` is resolved by its name.
fn resolve_format(format: Format, path: &Path) -> Format {
    if format != Format::Auto {
        return format;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name).to_lowercase();
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => Format::Csv,
        Some("jsonl" | "ndjson") => Format::JsonLines,
        Some("tsv" | "txt") => Format::Tsv,
        _ => Format::Folders,
    }
}

fn examples<T>(read: Dataset<T>, note: Note<'_>) -> Vec<T> {
    note(&read.report.to_string());
    read.examples
}

/// Reads the files of the splits; splits without a file are taken from the training data.
fn parts<F, T>(
    (train, valid, test): (&F, &Option<F>, &Option<F>),
    split: &Splitter,
    mut read: impl FnMut(&F) -> Result<T>,
    split_train: impl FnOnce(&Splitter, T) -> Result<Splits<T>, DataError>,
) -> Result<Splits<T>> {
    let train = read(train)?;
    let valid = valid.as_ref().map(&mut read).transpose()?;
    let test = test.as_ref().map(&mut read).transpose()?;
    let parts = split_train(split, train)?;
    Ok(Splits {
        train: parts.train,
        valid: valid.unwrap_or(parts.valid),
        test: test.unwrap_or(parts.test),
    })
}

fn new_split(valid: Option<f64>, test: Option<f64>, seed: u64) -> Splitter {
    Splitter::new(valid.unwrap_or(0.0), seed).with_test(test.unwrap_or(0.0))
}

/// The error for data of another task, which a validated config cannot have.
fn other_data(config: &Config) -> TrainError {
    TrainError::Refused(format!(
        "a {} cannot be trained with data.kind = \"{}\"",
        config.model.name(),
        config.data.name()
    ))
}
