//! `zoo attend`: a page of where a model looks.

use std::io::Write;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use zoo_viz::Theme;

use super::input::Input;
use super::{Command, Using, print};
use crate::files::write_output;
use crate::{Result, Side, TrainError};

/// The page, where nobody says what it is called.
const PAGE: &str = "attention.html";

/// Draws where the model looks in a text
///
/// The page is one file that needs nothing else: heat maps of every layer and head, or the
/// alignment of a seq2seq model, or the words and sentences of a HAN's document. --svg and --png
/// write one heat map.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("given").required(true).args(["text", "file"]))]
pub struct Attend {
    #[command(flatten)]
    using: Using,

    /// The text that is read
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,

    /// A file with the text, of one line or several; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// What is made of it; what the model writes by itself, if not given
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,

    /// The page; attention.html in the run's folder, if no picture is asked for either
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// One attention of a transformer alone; pictures are of cross-attention, if not given
    #[arg(long, value_enum)]
    part: Option<Side>,

    /// The layer of the picture, counted from 1; the first, if not given
    #[arg(long, value_name = "N")]
    layer: Option<usize>,

    /// The head of the picture, counted from 1; the first, if not given
    #[arg(long, value_name = "N")]
    head: Option<usize>,

    /// Writes one heat map as an SVG, for light and dark pages
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Writes one heat map as a PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// The PNG is for a dark page
    #[arg(long, requires = "png")]
    dark: bool,
}

impl Command for Attend {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let trained = self.using.open()?;
        let text = match (&self.text, &self.file) {
            (Some(text), _) => text.clone(),
            (None, file) => Input::open(file.as_deref())?.whole()?,
        };
        // The end of a file's last line is no part of its text.
        let text = text.trim_end_matches(['\n', '\r']);
        let attention = trained.attend(text, self.target.as_deref(), self.part)?;
        let wants_picture = self.svg.is_some() || self.png.is_some();
        if !wants_picture && (self.layer.is_some() || self.head.is_some()) {
            return Err(TrainError::Refused(
                "--layer and --head choose a picture: say where to by --svg or --png; the page has \
                 all of them"
                    .to_owned(),
            ));
        }
        // All is made before anything is written.
        let mut files: Vec<(PathBuf, Vec<u8>)> = vec![];
        if let Some(path) = &self.svg {
            let heat = attention.heat(self.layer, self.head)?;
            files.push((path.clone(), heat.to_svg().into_bytes()));
        }
        if let Some(path) = &self.png {
            let theme = match self.dark {
                true => Theme::Dark,
                false => Theme::Light,
            };
            let heat = attention.heat(self.layer, self.head)?;
            files.push((path.clone(), heat.to_png(theme)?));
        }
        let page = match (&self.to, wants_picture) {
            (Some(path), _) => Some(path.clone()),
            (None, false) => Some(trained.folder.file(PAGE)),
            (None, true) => None,
        };
        if let Some(path) = page {
            files.push((path, attention.page.to_html().into_bytes()));
        }
        for (path, bytes) in files {
            write_output(&path, &bytes)?;
            print(out, &format!("{}\n", path.display()))?;
        }
        Ok(())
    }
}
