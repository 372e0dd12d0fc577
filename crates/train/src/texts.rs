//! What the config's `[data]` says to learn from, as texts in three parts.

use std::path::{Path, PathBuf};

use zoo_config::{Config, Data, Direction, Files, Format, Phrases};
use zoo_data::tasks::{
    Arrangement, Counts, Dates, Documents, ListOps, PhraseDirection, Phrases as PhraseTask, Recall,
    Sequences,
};
use zoo_data::{
    DataError, Labelled, LabelledText, Pair, ParallelText, Parts, Read, Split, plain_text,
};

use crate::TrainError;

/// Texts in three parts.
#[derive(Debug, Clone)]
pub enum Texts {
    /// Texts, and what is to be made of them.
    Pairs(Parts<Vec<Pair>>),
    /// Texts, and their classes.
    Labelled(Parts<Vec<Labelled>>),
    /// Text that is to be gone on with.
    Plain(Parts<String>),
}

/// Texts, and what there is to say about them.
#[derive(Debug, Clone)]
pub struct TextsRead {
    /// The texts.
    pub texts: Texts,
    /// What was read, and what of it could not be used: lines to show.
    pub notes: Vec<String>,
}

/// Reads or makes up the texts of a config.
///
/// # Errors
///
/// [`TrainError::Data`] for files that are not there, not text, or not what they should be, and
/// for parts without examples.
pub fn read_texts(config: &Config) -> Result<TextsRead, TrainError> {
    let mut notes = vec![];
    let texts = read(config, &mut notes)?;
    let count = |part: usize, what: &str| match part {
        0 => None,
        count => Some(format!("{count} {what}")),
    };
    let [train, valid, test] = texts.sizes();
    let sizes = [
        count(train, "to learn from"),
        count(valid, "to validate with"),
        count(test, "to test with"),
    ];
    let unit = match &texts {
        Texts::Pairs(_) => "pairs",
        Texts::Labelled(_) => "documents",
        Texts::Plain(_) => "characters",
    };
    let sizes: Vec<String> = sizes.into_iter().flatten().collect();
    notes.push(format!("{unit}: {}", sizes.join(", ")));
    Ok(TextsRead { texts, notes })
}

impl Texts {
    /// How much there is to learn from, to validate and to test with: examples, or characters.
    pub fn sizes(&self) -> [usize; 3] {
        match self {
            Self::Pairs(parts) => [&parts.train, &parts.valid, &parts.test].map(Vec::len),
            Self::Labelled(parts) => [&parts.train, &parts.valid, &parts.test].map(Vec::len),
            Self::Plain(parts) => {
                [&parts.train, &parts.valid, &parts.test].map(|text| text.chars().count())
            }
        }
    }
}

fn read(config: &Config, notes: &mut Vec<String>) -> Result<Texts, TrainError> {
    let seed = config.run.seed;
    let sequences = |arrangement, data: &zoo_config::Sequences| {
        let counts = counts(data.train_size, data.valid_size, data.test_size);
        Sequences::new(arrangement)
            .with_symbols(data.symbols)
            .with_lengths(data.min_length, data.max_length)
            .generate(counts, seed)
    };
    Ok(match &config.data {
        Data::Copy(data) => Texts::Pairs(sequences(Arrangement::Copy, data)?),
        Data::Reverse(data) => Texts::Pairs(sequences(Arrangement::Reverse, data)?),
        Data::Sort(data) => Texts::Pairs(sequences(Arrangement::Sort, data)?),
        Data::Dates(data) => Texts::Pairs(
            Dates::new()
                .with_years(data.first_year, data.last_year)
                .generate(
                    counts(data.train_size, data.valid_size, data.test_size),
                    seed,
                )?,
        ),
        Data::Recall(data) => Texts::Pairs(
            Recall::new()
                .with_keys(data.min_keys, data.max_keys)
                .generate(
                    counts(data.train_size, data.valid_size, data.test_size),
                    seed,
                )?,
        ),
        Data::ListOps(data) => Texts::Labelled(
            ListOps::new()
                .with_depth(data.max_depth)
                .with_arguments(data.max_arguments)
                .with_lengths(data.min_length, data.max_length)
                .generate(
                    counts(data.train_size, data.valid_size, data.test_size),
                    seed,
                )?,
        ),
        Data::Documents(data) => {
            let parts = Documents::new()
                .with_classes(data.classes)
                .with_sentences(data.min_sentences, data.max_sentences)
                .with_words(data.min_words, data.max_words)
                .with_key_sentences(data.key_sentences)
                .with_decoys(data.decoys)
                .generate(
                    counts(data.train_size, data.valid_size, data.test_size),
                    seed,
                )?;
            let labelled = |part: Vec<zoo_data::tasks::MarkedDocument>| {
                part.iter().map(|marked| marked.to_labelled()).collect()
            };
            Texts::Labelled(Parts {
                train: labelled(parts.train),
                valid: labelled(parts.valid),
                test: labelled(parts.test),
            })
        }
        Data::Phrases(data) => Texts::Pairs(phrases(data, seed)?),
        Data::Parallel(data) => Texts::Pairs(parallel(data, seed, notes)?),
        Data::Labelled(data) => Texts::Labelled(labelled(data, seed, notes)?),
        Data::Plain(data) => Texts::Plain(plain(data, notes)?),
    })
}

fn counts(train: usize, valid: usize, test: usize) -> Counts {
    Counts::new(train, valid).with_test(test)
}

fn phrases(data: &Phrases, seed: u64) -> Result<Parts<Vec<Pair>>, TrainError> {
    let direction = match data.direction {
        Direction::ChineseToEnglish => PhraseDirection::ChineseToEnglish,
        Direction::EnglishToChinese => PhraseDirection::EnglishToChinese,
    };
    let parts = PhraseTask::new()
        .with_direction(direction)
        .with_held_out(data.valid_share)
        .generate(seed)?;
    // So small a set is also there to be learned by heart: then it is asked for itself.
    Ok(match parts.valid.is_empty() {
        true => Parts {
            valid: parts.train.clone(),
            ..parts
        },
        false => parts,
    })
}

fn parallel(
    data: &zoo_config::Parallel,
    seed: u64,
    notes: &mut Vec<String>,
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
        taken(text.with_allowed_bad(data.allowed_bad).read()?, notes)
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
    notes: &mut Vec<String>,
) -> Result<Parts<Vec<Labelled>>, TrainError> {
    let mut read = |path: &PathBuf| -> Result<Vec<Labelled>, TrainError> {
        let text = labelled_file(data, format_of(data.format, path), path);
        taken(text.with_allowed_bad(data.allowed_bad).read()?, notes)
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
pub(crate) fn labelled_text(config: &Config, path: &Path) -> LabelledText {
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

fn plain(data: &zoo_config::Plain, notes: &mut Vec<String>) -> Result<Parts<String>, TrainError> {
    let mut read = |path: &PathBuf| -> Result<String, TrainError> {
        let text = plain_text(path)?;
        notes.push(format!(
            "{}: {} characters",
            path.display(),
            text.chars().count()
        ));
        Ok(text)
    };
    let train = read(&data.train)?;
    let valid = data.valid.as_ref().map(&mut read).transpose()?;
    let test = data.test.as_ref().map(&mut read).transpose()?;
    let split = split_of(data.valid_share, data.test_share, 0);
    let parts = split.text(&train)?;
    Ok(Parts {
        train: parts.train,
        valid: valid.unwrap_or(parts.valid),
        test: test.unwrap_or(parts.test),
    })
}

fn taken<T>(read: Read<T>, notes: &mut Vec<String>) -> Result<Vec<T>, TrainError> {
    notes.push(read.report.to_string());
    Ok(read.examples)
}

fn split_of(valid: Option<f64>, test: Option<f64>, seed: u64) -> Split {
    Split::new(valid.unwrap_or(0.0), seed).with_test(test.unwrap_or(0.0))
}

/// What is given as a part is that part; the rest is split.
fn joined<T>(
    split: Split,
    train: Vec<T>,
    valid: Option<Vec<T>>,
    test: Option<Vec<T>>,
    cut: impl FnOnce(&Split, Vec<T>) -> Result<Parts<Vec<T>>, DataError>,
) -> Result<Parts<Vec<T>>, TrainError> {
    let parts = cut(&split, train)?;
    Ok(Parts {
        train: parts.train,
        valid: valid.unwrap_or(parts.valid),
        test: test.unwrap_or(parts.test),
    })
}
