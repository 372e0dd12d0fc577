//! What the config's `[data]` says to learn from, as texts in three parts.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use zoo_config::{Config, Data, Files, Format};
use zoo_data::tasks::{Arrangement, Generate, MarkedDocument};
use zoo_data::{
    DataError, Labelled, LabelledText, Pair, ParallelText, Parts, Read, Split, plain_text,
};

use super::Note;
use crate::{Result, Source, TrainError};

/// A part of the data as texts.
pub(crate) trait Texts: Debug + Default + Sync {
    /// What they are counted in.
    const UNIT: &'static str;
    /// The flags of `zoo eval` for texts of other files.
    const FILES: &'static str;

    /// Reads or generates the texts of a config.
    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Self>>;

    /// Reads texts of other files; nothing if they are for another task.
    fn read_files(config: &Config, source: &Source, note: Note<'_>) -> Result<Option<Self>>;

    /// How many examples or characters there are.
    fn size(&self) -> usize;
}

/// Reads or generates the texts of a config, and says how many there are.
pub(crate) fn read_texts<T: Texts>(config: &Config, note: Note<'_>) -> Result<Parts<T>> {
    let parts = T::read(config, note)?;
    let sizes = [
        (parts.train.size(), "to learn from"),
        (parts.valid.size(), "to validate with"),
        (parts.test.size(), "to test with"),
    ];
    let some = sizes.into_iter().filter(|(count, _)| *count > 0);
    let sizes: Vec<String> = some.map(|(count, to)| format!("{count} {to}")).collect();
    note(&format!("{}: {}", T::UNIT, sizes.join(", ")));
    Ok(parts)
}

impl Texts for Vec<Pair> {
    const UNIT: &'static str = "pairs";
    const FILES: &'static str = "--source FILE with --target FILE";

    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Self>> {
        let seed = config.run.seed;
        Ok(match &config.data {
            Data::Copy(data) => Arrangement::Copy.generate(data, seed)?,
            Data::Reverse(data) => Arrangement::Reverse.generate(data, seed)?,
            Data::Sort(data) => Arrangement::Sort.generate(data, seed)?,
            Data::Dates(data) => data.generate(seed)?,
            Data::Recall(data) => data.generate(seed)?,
            Data::Phrases(data) => data.generate(seed)?,
            Data::Parallel(data) => parallel(data, seed, note)?,
            _ => return Err(other_data(config)),
        })
    }

    fn read_files(_: &Config, source: &Source, note: Note<'_>) -> Result<Option<Self>> {
        match source {
            Source::Parallel(source, target) => {
                let read = ParallelText::files(source, target).read()?;
                Ok(Some(examples(read, note)))
            }
            _ => Ok(None),
        }
    }

    fn size(&self) -> usize {
        self.len()
    }
}

impl Texts for Vec<Labelled> {
    const UNIT: &'static str = "documents";
    const FILES: &'static str = "--labelled FILE";

    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Self>> {
        let seed = config.run.seed;
        match &config.data {
            Data::ListOps(data) => Ok(data.generate(seed)?),
            Data::Documents(data) => {
                let labelled = |part: Vec<MarkedDocument>| {
                    part.iter().map(MarkedDocument::to_labelled).collect()
                };
                Ok(data.generate(seed)?.map(labelled))
            }
            Data::Labelled(data) => labelled(data, seed, note),
            _ => Err(other_data(config)),
        }
    }

    fn read_files(config: &Config, source: &Source, note: Note<'_>) -> Result<Option<Self>> {
        match source {
            Source::Labelled(path) => {
                let read = labelled_text(config, path).read()?;
                Ok(Some(examples(read, note)))
            }
            _ => Ok(None),
        }
    }

    fn size(&self) -> usize {
        self.len()
    }
}

impl Texts for String {
    const UNIT: &'static str = "characters";
    const FILES: &'static str = "--text FILE";

    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Self>> {
        let Data::Plain(data) = &config.data else {
            return Err(other_data(config));
        };
        let files = (&data.train, &data.valid, &data.test);
        let split = split_of(data.valid_share, data.test_share, 0);
        let read = |path: &PathBuf| -> Result<String> {
            let text = plain_text(path)?;
            note(&format!("{}: {} characters", path.display(), text.size()));
            Ok(text)
        };
        parts(files, &split, read, |split, text| split.text(&text))
    }

    fn read_files(_: &Config, source: &Source, _: Note<'_>) -> Result<Option<Self>> {
        match source {
            Source::Plain(path) => Ok(Some(plain_text(path)?)),
            _ => Ok(None),
        }
    }

    fn size(&self) -> usize {
        self.chars().count()
    }
}

fn parallel(data: &zoo_config::Parallel, seed: u64, note: Note<'_>) -> Result<Parts<Vec<Pair>>> {
    let read = |files: &Files| -> Result<Vec<Pair>> {
        let text = match files {
            Files::Two([source, target]) => ParallelText::files(source, target),
            Files::One(path) => {
                // People count columns from one.
                let column = |given: Option<usize>, usual: usize| given.unwrap_or(usual) - 1;
                let [source, target] =
                    [column(data.source_column, 1), column(data.target_column, 2)];
                ParallelText::tsv_columns(path, source, target)
            }
        };
        let read = text.with_allowed_bad(data.allowed_bad).read()?;
        Ok(examples(read, note))
    };
    let files = (&data.train, &data.valid, &data.test);
    let split = split_of(data.valid_share, data.test_share, seed);
    parts(files, &split, read, |split, mut train| {
        train.truncate(data.max_examples.unwrap_or(usize::MAX));
        split.examples(train)
    })
}

fn labelled(
    data: &zoo_config::Labelled,
    seed: u64,
    note: Note<'_>,
) -> Result<Parts<Vec<Labelled>>> {
    let read = |path: &PathBuf| -> Result<Vec<Labelled>> {
        let text = labelled_file(data, format_of(data.format, path), path);
        let read = text.with_allowed_bad(data.allowed_bad).read()?;
        Ok(examples(read, note))
    };
    let files = (&data.train, &data.valid, &data.test);
    let split = split_of(data.valid_share, data.test_share, seed);
    parts(files, &split, read, |split, mut train| {
        if let Some(most) = data.max_examples.filter(|most| *most < train.len()) {
            // Files are often sorted by class: the first ones would all be of one.
            let share = 1.0 - most as f64 / train.len() as f64;
            train = Split::new(share, seed).labelled(train)?.train;
        }
        split.labelled(train)
    })
}

/// Another file of texts with their classes: in the format that its name says, or else in that
/// of the config's own, and in their fields.
fn labelled_text(config: &Config, path: &Path) -> LabelledText {
    let usual = zoo_config::Labelled::default();
    let data = match &config.data {
        Data::Labelled(data) => data,
        _ => &usual,
    };
    let format = match format_of(Format::Auto, path) {
        Format::Folders => format_of(data.format, path),
        said => said,
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

/// What a file is, by its name if nothing else is said.
fn format_of(format: Format, path: &Path) -> Format {
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

/// The examples of a file, of which a line is said.
fn examples<T>(read: Read<T>, note: Note<'_>) -> Vec<T> {
    note(&read.report.to_string());
    read.examples
}

/// Reads the files of the parts there are for themselves, and splits the others from the first.
fn parts<F, T>(
    (train, valid, test): (&F, &Option<F>, &Option<F>),
    split: &Split,
    mut read: impl FnMut(&F) -> Result<T>,
    cut: impl FnOnce(&Split, T) -> Result<Parts<T>, DataError>,
) -> Result<Parts<T>> {
    let train = read(train)?;
    let valid = valid.as_ref().map(&mut read).transpose()?;
    let test = test.as_ref().map(&mut read).transpose()?;
    let parts = cut(split, train)?;
    Ok(Parts {
        train: parts.train,
        valid: valid.unwrap_or(parts.valid),
        test: test.unwrap_or(parts.test),
    })
}

fn split_of(valid: Option<f64>, test: Option<f64>, seed: u64) -> Split {
    Split::new(valid.unwrap_or(0.0), seed).with_test(test.unwrap_or(0.0))
}

/// The error for data of another task: a config that was read has none.
fn other_data(config: &Config) -> TrainError {
    TrainError::Refused(format!(
        "a {} cannot be trained with data.kind = \"{}\"",
        config.model.word(),
        config.data.word()
    ))
}
