//! `zoo-hub`: a data set of the hub as files that training reads.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use zoo_hub::section::section;
use zoo_hub::write::{refuse_existing, write};
use zoo_hub::{Choice, Form, Import, choose};
use zoo_spec::printable_text;

/// Brings a data set of the Hugging Face hub into files that training reads
///
/// Python loads it, with packages that are installed into the cache the first time. Without
/// --text, --source and --target every field is written, as JSON lines.
#[derive(Parser)]
#[command(name = "zoo-hub", bin_name = "zoo-hub")]
struct Arguments {
    /// What the hub calls it, as stanfordnlp/imdb, or a folder with files of its own
    name: String,

    /// Which subset of it
    #[arg(long, value_name = "NAME")]
    subset: Option<String>,

    /// The folder for train, valid and test
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,

    /// Which split becomes what, as valid=validation_matched; test= leaves one out
    #[arg(long, value_name = "PART=NAME")]
    split: Vec<Choice>,

    /// Write pairs: the field of the text
    #[arg(
        long,
        value_name = "FIELD",
        requires = "target",
        conflicts_with = "text"
    )]
    source: Option<String>,

    /// Write pairs: the field of its translation
    #[arg(long, value_name = "FIELD", requires = "source")]
    target: Option<String>,

    /// Write running text: its field; with --label, texts and their classes
    #[arg(long, value_name = "FIELD")]
    text: Option<String>,

    /// The field of the class
    #[arg(long, value_name = "FIELD", requires = "text")]
    label: Option<String>,

    /// Replace files that are there
    #[arg(long)]
    overwrite: bool,

    /// Where data sets and Python's packages are kept; attention-zoo/hub in the user's cache
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
}

impl Arguments {
    fn run(self) -> Result<()> {
        let form = self.form();
        if !self.overwrite {
            refuse_existing(&self.to, &form)?;
        }
        let cache = match self.cache {
            Some(folder) => folder,
            None => usual_cache()?,
        };
        let import = Import {
            name: self.name,
            subset: self.subset,
            // Python is told of it, and may be elsewhere.
            cache: std::path::absolute(&cache).unwrap_or(cache),
        };
        let database = import.run()?;
        let splits = choose(&self.split, &database.splits()?)?;
        let written = write(&database, &splits, &form, &self.to)?;
        for file in &written {
            eprintln!("{}", file.summary());
        }
        eprintln!("from the database {}\n", database.path().display());
        print!("{}", section(&form, &written));
        Ok(())
    }

    fn form(&self) -> Form {
        let owned = |text: &Option<String>| text.clone().unwrap_or_default();
        match (&self.source, &self.text, &self.label) {
            (Some(_), _, _) => Form::Pairs {
                source: owned(&self.source),
                target: owned(&self.target),
            },
            (None, Some(_), Some(_)) => Form::Labelled {
                label: owned(&self.label),
                text: owned(&self.text),
            },
            (None, Some(_), None) => Form::Text {
                text: owned(&self.text),
            },
            (None, None, _) => Form::Fields,
        }
    }
}

/// The project's own folder: other programs' data sets are not ours to remove.
fn usual_cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home = std::env::home_dir()
                .context("neither XDG_CACHE_HOME nor HOME says where caches go; name a --cache")?;
            let caches = if cfg!(target_os = "macos") {
                "Library/Caches"
            } else {
                ".cache"
            };
            home.join(caches)
        }
    };
    Ok(base.join("attention-zoo").join("hub"))
}

fn main() -> ExitCode {
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", printable_text(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
