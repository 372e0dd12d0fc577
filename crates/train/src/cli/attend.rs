//! `zoo attend`: attention weights as an HTML page or as a heatmap.

use std::convert::Infallible;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use zoo_viz::Theme;

use super::input::Input;
use super::{Command, RunArgs, check_output, print, print_error_line, renamed_part};
use crate::files::write_output;
use crate::task::ExampleText;
use crate::unknown::UnknownNotes;
use crate::{AttentionKind, AttentionRequest, Queries, Result, TrainError};

const PAGE: &str = "attention.html";

/// Visualise attention weights as an HTML page, SVG or PNG
///
/// The page is a single self-contained file: heatmaps of every layer and head, the alignment of a
/// seq2seq model, or the word and sentence weights of a HAN. It opens on the cross-attention and
/// the sharpest head, that with the lowest entropy. --svg and --png write one heatmap.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("input").required(true).args(["text", "file", "example"]))]
pub struct Attend {
    #[command(flatten)]
    run: RunArgs,

    /// Show the attention for this text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,

    /// Read the text, one or more lines, from a file; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Show the Nth example of the test set, counted from 1 (of the validation set, if there is no
    /// test set)
    #[arg(long, value_name = "N")]
    example: Option<usize>,

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

    /// Show only the queries at these positions, such as 1,5,100-120 [default: all, or evenly spaced
    /// ones of a text of thousands of tokens]
    #[arg(long, value_name = "LIST")]
    queries: Option<Queries>,

    /// Draw the heatmap of this layer, counted from 1 [default: that of the sharpest head]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,

    /// Draw the heatmap of this head, counted from 1 [default: the sharpest head]
    #[arg(long, value_name = "N")]
    head: Option<usize>,

    /// Write one heatmap as SVG (adapts to light and dark mode)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write one heatmap as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    /// Open the page in the browser
    #[arg(long)]
    open: bool,

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
        let inputs: Vec<&Path> = self.file.as_deref().into_iter().collect();
        for (flag, path) in [
            ("--to", &self.to),
            ("--svg", &self.svg),
            ("--png", &self.png),
        ] {
            check_output(flag, path.as_deref(), &inputs)?;
        }
        let trained = self.run.open()?;
        if self.example.is_some() {
            trained.check_has_data("--example", "give a text with --text")?;
        }
        let note = &mut |note: &str| print_error_line(note);
        let ExampleText { text, reference } = match (&self.text, self.example) {
            (Some(text), _) => ExampleText {
                text: text.clone(),
                reference: None,
            },
            (None, Some(number)) => trained.model.example(&trained.config, number, note)?,
            (None, None) => ExampleText {
                text: Input::open(self.file.as_deref())?.read_all()?,
                reference: None,
            },
        };
        // The newline at the end of a file is not part of the text.
        let text = text.trim_end_matches(['\n', '\r']);
        let (tokenizer, target_tokenizer) = trained.model.tokenizers();
        let mut unknown = UnknownNotes::default();
        unknown.report(tokenizer, &[text], note)?;
        if let (Some(tokenizer), Some(target)) = (target_tokenizer, &self.target) {
            unknown.report(tokenizer, &[target], note)?;
        }
        let maps = trained.attention(&AttentionRequest {
            text,
            target: self.target.as_deref(),
            reference: reference.as_deref(),
            kind: self.attention,
            queries: self.queries.unwrap_or_default(),
        })?;
        for line in &maps.selection {
            note(&format!("note: {line}"));
        }
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
        let mut page = None;
        if self.to.is_some() || self.open || !has_heatmap {
            let path = self.to.unwrap_or_else(|| trained.folder.file(PAGE));
            files.push((path.clone(), maps.page.to_html().into_bytes()));
            page = Some(path);
        }
        for (path, bytes) in files {
            write_output(&path, &bytes)?;
            print(out, &format!("{}\n", path.display()))?;
        }
        match page.filter(|_| self.open) {
            Some(page) => open_page(&page),
            None => Ok(()),
        }
    }
}

/// Time after which a browser is taken to be open.
const OPENING: Duration = Duration::from_secs(2);

/// Opens a page with the program that the system uses for it.
pub(super) fn open_page(page: &Path) -> Result<()> {
    let (program, arguments): (&str, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        // A window title has to come before the file.
        "windows" => ("cmd", &["/c", "start", ""]),
        _ => ("xdg-open", &[]),
    };
    let mut command = process::Command::new(program);
    command
        .args(arguments)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Ctrl-C must not close the browser.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    // On some systems, the program runs until the browser is closed.
    let status = command.spawn().and_then(|mut child| {
        let start = Instant::now();
        loop {
            match child.try_wait()? {
                None if start.elapsed() < OPENING => sleep(Duration::from_millis(20)),
                status => return Ok(status),
            }
        }
    });
    let reason = match status {
        Ok(None) => return Ok(()),
        Ok(Some(status)) if status.success() => return Ok(()),
        Ok(Some(status)) => format!("{program}: {status}"),
        Err(error) => format!("{program}: {error}"),
    };
    Err(TrainError::Refused(format!(
        "cannot open a browser: {reason}\n  help: open {} yourself",
        page.display()
    )))
}
