//! What the config's `[data]` says to learn from, as texts in three parts.

use std::path::{Path, PathBuf};

use zoo_config::{Config, Data, Files, Format};
use zoo_data::tasks::{Arrangement, Generate, MarkedDocument};
use zoo_data::{
    DataError, Labelled, LabelledText, Pair, ParallelText, Parts, Read, Split, plain_text,
};

use super::{Note, Task, other_data};
use crate::TrainError;

/// Reads or generates the texts of a config, and says how many there are.
pub(crate) fn read_texts<T: Task>(
    config: &Config,
    note: Note<'_>,
) -> Result<Parts<T::Texts>, TrainError> {
    let parts = T::read(config, note)?;
    let sizes = [
        (T::size(&parts.train), "to learn from"),
        (T::size(&parts.valid), "to validate with"),
        (T::size(&parts.test), "to test with"),
    ];
    let some = sizes.into_iter().filter(|(count, _)| *count > 0);
    let sizes: Vec<String> = some.map(|(count, to)| format!("{count} {to}")).collect();
    note(&format!("{}: {}", T::UNIT, sizes.join(", ")));
    Ok(parts)
}

/// Texts, and what is to be made of them.
pub(super) fn read_pairs(config: &Config, note: Note<'_>) -> Result<Parts<Vec<Pair>>, TrainError> {
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

/// Texts, and their classes.
pub(super) fn read_labelled(
    config: &Config,
    note: Note<'_>,
) -> Result<Parts<Vec<Labelled>>, TrainError> {
    let seed = config.run.seed;
    match &config.data {
        Data::ListOps(data) => Ok(data.generate(seed)?),
        Data::Documents(data) => {
            let labelled =
                |part: Vec<MarkedDocument>| part.iter().map(MarkedDocument::to_labelled).collect();
            Ok(data.generate(seed)?.map(labelled))
        }
        Data::Labelled(data) => labelled(data, seed, note),
        _ => Err(other_data(config)),
    }
}

/// Text that is to be continued.
pub(super) fn read_plain(config: &Config, note: Note<'_>) -> Result<Parts<String>, TrainError> {
    let Data::Plain(data) = &config.data else {
        return Err(other_data(config));
    };
    let mut read = |path: &PathBuf| -> Result<String, TrainError> {
        let text = plain_text(path)?;
        let count = text.chars().count();
        note(&format!("{}: {count} characters", path.display()));
        Ok(text)
    };
    let train = read(&data.train)?;
    let valid = data.valid.as_ref().map(&mut read).transpose()?;
    let test = data.test.as_ref().map(&mut read).transpose()?;
    let split = split_of(data.valid_share, data.test_share, 0);
    joined(split, train, valid, test, |split, text| split.text(&text))
}

fn parallel(
    data: &zoo_config::Parallel,
    seed: u64,
    note: Note<'_>,
) -> Result<Parts<Vec<Pair>>, TrainError> {
    let mut read = |files: &Files| -> Result<Vec<Pair>, TrainError> {
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
        taken(text.with_allowed_bad(data.allowed_bad).read()?, note)
    };
    let mut train = read(&data.train)?;
    let valid = data.valid.as_ref().map(&mut read).transpose()?;
    let test = data.test.as_ref().map(&mut read).transpose()?;
    train.truncate(data.max_examples.unwrap_or(usize::MAX));
    let split = split_of(data.valid_share, data.test_share, seed);
    joined(split, train, valid, test, Split::examples)
}

fn labelled(
    data: &zoo_config::Labelled,
    seed: u64,
    note: Note<'_>,
) -> Result<Parts<Vec<Labelled>>, TrainError> {
    let mut read = |path: &PathBuf| -> Result<Vec<Labelled>, TrainError> {
        let text = labelled_file(data, format_of(data.format, path), path);
        taken(text.with_allowed_bad(data.allowed_bad).read()?, note)
    };
    let mut train = read(&data.train)?;
    let valid = data.valid.as_ref().map(&mut read).transpose()?;
    let test = data.test.as_ref().map(&mut read).transpose()?;
    if let Some(most) = data.max_examples.filter(|most| *most < train.len()) {
        // Files are often sorted by class: the first ones would all be of one.
        let share = 1.0 - most as f64 / train.len() as f64;
        train = Split::new(share, seed).labelled(train)?.train;
    }
    let split = split_of(data.valid_share, data.test_share, seed);
    joined(split, train, valid, test, Split::labelled)
}

/// Another file of texts with their classes: in the format that its name says, or else in that
/// of the config's own, and in their fields.
pub(super) fn labelled_text(config: &Config, path: &Path) -> LabelledText {
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

/// What was read, of which a line is said.
pub(super) fn taken<T>(read: Read<T>, note: Note<'_>) -> Result<Vec<T>, TrainError> {
    note(&read.report.to_string());
    Ok(read.examples)
}

fn split_of(valid: Option<f64>, test: Option<f64>, seed: u64) -> Split {
    Split::new(valid.unwrap_or(0.0), seed).with_test(test.unwrap_or(0.0))
}

/// What is given as a part is that part; the rest is split.
fn joined<T>(
    split: Split,
    train: T,
    valid: Option<T>,
    test: Option<T>,
    cut: impl FnOnce(&Split, T) -> Result<Parts<T>, DataError>,
) -> Result<Parts<T>, TrainError> {
    let parts = cut(&split, train)?;
    Ok(Parts {
        train: parts.train,
        valid: valid.unwrap_or(parts.valid),
        test: test.unwrap_or(parts.test),
    })
}
