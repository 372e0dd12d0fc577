//! `zoo attend`: attention weights as an HTML page or as a heatmap.

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use zoo_viz::Theme;

use super::input::Input;
use super::{Command, RunArgs, print, print_error_line, renamed_part};
use crate::files::write_output;
use crate::unknown::UnknownNotes;
use crate::{AttentionKind, Result, TrainError};

const PAGE: &str = "attention.html";

/// Visualise attention weights as an HTML page, SVG or PNG
///
/// The page is a single self-contained file: heatmaps of every layer and head, the alignment of a
/// seq2seq model, or the word and sentence weights of a HAN. --svg and --png write one heatmap.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("input").required(true).args(["text", "file"]))]
pub struct Attend {
    #[command(flatten)]
    run: RunArgs,

    /// Show the attention for this text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,

    /// Read the text, one or more lines, from a file; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Use this target text, for a sequence-to-sequence model [default: the model's output]
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,

    /// Write the page to a file [default: attention.html in the run folder, unless --svg or --png
    /// is given]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// Show only this attention of a transformer [default: all; cross for --svg and --png]
    #[arg(long, value_enum, value_name = "ATTENTION")]
    attention: Option<AttentionKind>,

    #[arg(long = "part", hide = true, value_parser = renamed_part("--attention"))]
    _part: Option<Infallible>,

    /// Draw the heatmap of this layer, counted from 1 [default: 1]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,

    /// Draw the heatmap of this head, counted from 1 [default: 1]
    #[arg(long, value_name = "N")]
    head: Option<usize>,

    /// Write one heatmap as SVG (adapts to light and dark mode)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write one heatmap as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// Use dark colours for the PNG
    #[arg(long, requires = "png")]
    dark: bool,
}

impl Command for Attend {
    fn run(self, out: &mut dyn Write) -> Result<()> {
        let has_heatmap = self.svg.is_some() || self.png.is_some();
        if !has_heatmap && (self.layer.is_some() || self.head.is_some()) {
            return Err(TrainError::Refused(
                "--layer and --head select a heatmap; the page shows all of them\n  help: add \
                 --svg or --png"
                    .to_owned(),
            ));
        }
        let trained = self.run.open()?;
        let text = match (&self.text, &self.file) {
            (Some(text), _) => text.clone(),
            (None, file) => Input::open(file.as_deref())?.read_all()?,
        };
        // The newline at the end of a file is not part of the text.
        let text = text.trim_end_matches(['\n', '\r']);
        let note = &mut |note: &str| print_error_line(note);
        let (tokenizer, target_tokenizer) = trained.model.tokenizers();
        let mut unknown = UnknownNotes::default();
        unknown.report(tokenizer, &[text], note)?;
        if let (Some(tokenizer), Some(target)) = (target_tokenizer, &self.target) {
            unknown.report(tokenizer, &[target], note)?;
        }
        let maps = trained.attention_maps(text, self.target.as_deref(), self.attention)?;
        // Everything is rendered before anything is written.
        let mut files: Vec<(PathBuf, Vec<u8>)> = vec![];
        if let Some(path) = self.svg {
            let heatmap = maps.heatmap(self.layer, self.head)?;
            files.push((path, heatmap.to_svg().into_bytes()));
        }
        if let Some(path) = self.png {
            let theme = if self.dark { Theme::Dark } else { Theme::Light };
            let heatmap = maps.heatmap(self.layer, self.head)?;
            files.push((path, heatmap.to_png(theme)?));
        }
        if self.to.is_some() || !has_heatmap {
            let path = self.to.unwrap_or_else(|| trained.folder.file(PAGE));
            files.push((path, maps.page.to_html().into_bytes()));
        }
        for (path, bytes) in files {
            write_output(&path, &bytes)?;
            print(out, &format!("{}\n", path.display()))?;
        }
        Ok(())
    }
}
