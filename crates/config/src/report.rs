//! Text on a terminal: errors with the line that they are about, wrapped and in colour.

use std::io::IsTerminal;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use zoo_spec::Printable;

use crate::ConfigError;
use crate::error::{Diagnostic, Source};

const MAX_WIDTH: usize = 100;

/// The examples of a command's help, with a heading as clap's.
#[macro_export]
macro_rules! examples {
    ($($line:literal),* $(,)?) => {
        concat!("\u{1b}[1m\u{1b}[4mExamples:\u{1b}[0m", $("\n  ", $line),*)
    };
}

/// How errors are formatted.
#[derive(Debug, Clone, Copy, Default)]
pub struct ErrorStyle {
    /// Columns of the terminal, at which text is wrapped.
    pub width: Option<usize>,
    /// Whether it is coloured.
    pub colour: bool,
}

impl ErrorStyle {
    /// The style for standard error. Pipes and files get plain, unwrapped text; `NO_COLOR` and
    /// `CLICOLOR` are respected.
    pub fn stderr() -> Self {
        let stderr = std::io::stderr();
        if !stderr.is_terminal() {
            return Self::default();
        }
        let size = terminal_size::terminal_size_of(&stderr);
        let width = size.map(|(width, _)| usize::from(width.0));
        Self {
            // Some terminals report a size of 0.
            width: width.map(|width| width.clamp(40, MAX_WIDTH)),
            colour: AutoStream::choice(&stderr) != ColorChoice::Never,
        }
    }

    /// An error with its help.
    pub fn format(&self, message: &str) -> String {
        let text = self.wrapped(&format!("error: {message}"));
        if !self.colour {
            return text;
        }
        let line = |line: &str| {
            let labels = [
                ("error: ", AnsiColor::BrightRed),
                ("  help: ", AnsiColor::BrightCyan),
            ];
            for (label, colour) in labels {
                if let Some(rest) = line.strip_prefix(label) {
                    let style = Style::new().bold().fg_color(Some(colour.into()));
                    return format!("{style}{label}{style:#}{rest}\n");
                }
            }
            format!("{line}\n")
        };
        text.lines().map(line).collect()
    }

    /// An error of a config: each problem with the line of the file or the flag, and a caret under
    /// the key or value.
    pub fn format_config(&self, error: &ConfigError) -> String {
        let Some(diagnostics) = error.diagnostics() else {
            return self.format(&error.to_string());
        };
        let last = diagnostics.list.len().saturating_sub(1);
        let each = diagnostics.list.iter().enumerate().map(|(i, diagnostic)| {
            let help = if i == last {
                &diagnostics.help[..]
            } else {
                &[]
            };
            self.snippet(diagnostic, help)
        });
        each.collect::<Vec<_>>().join("\n")
    }

    fn snippet(&self, diagnostic: &Diagnostic, help: &[String]) -> String {
        let Diagnostic { location, message } = diagnostic;
        // The lines after the first are notes, such as the known names.
        let mut lines = message.lines();
        let title = self.wrapped_after("error: ", lines.next().unwrap_or_default());
        let help = help.iter().map(|help| format!("help: {help}"));
        let notes: Vec<String> = lines
            .map(|line| line.trim().to_owned())
            .chain(help)
            .collect();
        let annotation = AnnotationKind::Primary.span(location.first_line());
        let mut snippet = Snippet::source(location.source.text()).annotation(annotation);
        if let Source::File { name, .. } = &*location.source {
            snippet = snippet.path(Printable(name).to_string());
        }
        let notes = notes.iter().map(|note| match note.split_once(": ") {
            Some(("help", help)) => (Level::HELP, self.wrapped_after("  = help: ", help)),
            Some(_) | None => (Level::NOTE, self.wrapped_after("  = note: ", note)),
        });
        let notes: Vec<_> = notes.collect();
        let mut group = Level::ERROR.primary_title(title.as_str()).element(snippet);
        for (level, note) in &notes {
            group = group.element(level.clone().message(note.as_str()));
        }
        let renderer = if self.colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let renderer = renderer.term_width(self.width.unwrap_or(MAX_WIDTH));
        format!("{}\n", renderer.render(&[group]))
    }

    fn wrapped(&self, text: &str) -> String {
        match self.width {
            Some(width) => wrap(text, width),
            None => format!("{text}\n"),
        }
    }

    /// Wraps a text that a label precedes.
    fn wrapped_after(&self, label: &str, text: &str) -> String {
        let Some(width) = self.width else {
            return text.to_owned();
        };
        let wrapped = wrap(text, width.saturating_sub(label.len()));
        let lines: Vec<&str> = wrapped.lines().map(str::trim).collect();
        lines.join("\n")
    }
}

/// Wraps lines at spaces. Continuation lines start at the second column of a line with two columns,
/// else they are indented by two.
pub fn wrap(text: &str, width: usize) -> String {
    text.lines().map(|line| wrap_line(line, width)).collect()
}

fn wrap_line(line: &str, width: usize) -> String {
    let len = |text: &str| text.chars().count();
    let text = line.trim_start();
    let indent = match text.split_once("  ") {
        Some((_, second)) => len(line) - len(second.trim_start()),
        None => len(line) - len(text) + 2,
    };
    let mut rest = line.to_owned();
    let mut wrapped = String::new();
    while len(&rest) > width {
        let spaces = rest.char_indices().take(width + 1);
        let Some((at, _)) = spaces.filter(|(at, c)| *at > indent && *c == ' ').last() else {
            break;
        };
        wrapped += rest[..at].trim_end();
        wrapped.push('\n');
        rest = " ".repeat(indent) + rest[at..].trim_start();
    }
    wrapped + &rest + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Override};

    const TEXT: &str = "[data]\nkind = \"revrse\"\n\n[model]\nkind = \"transformer\"\nlayers = 0\n";

    #[test]
    fn a_caret_marks_the_key_or_value() {
        let flags = ["model.d_modle=8", "model.norm=[1, 2]"];
        let flags = flags.map(|flag| Override::set(flag).expect("a flag"));
        let error = Config::parse("a.toml", TEXT, &flags).expect_err("four problems");
        let text = ErrorStyle::default().format_config(&error);
        for part in [
            "error: data.kind: unknown value \"revrse\": did you mean reverse?\n \
             --> a.toml:2:8\n  |\n2 | kind = \"revrse\"\n  |        ^^^^^^^^\n  |\n  = note: known: copy, ",
            "\nerror: model.layers must be an integer from 1 to 4096, found 0\n",
            "\n6 | layers = 0\n  |          ^\n",
            "\n1 | --set model.d_modle=8\n  |       ^^^^^^^^^^^^^\n",
            "\n1 | --set model.norm=[1, 2]\n  |                  ^^^^^^\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let narrow = ErrorStyle {
            width: Some(60),
            colour: false,
        };
        let text = narrow.format_config(&error);
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        let coloured = ErrorStyle {
            width: None,
            colour: true,
        };
        let text = coloured.format_config(&error);
        assert!(text.contains("\u{1b}[1m"), "{text:?}");
    }

    #[test]
    fn spans_of_several_lines_and_odd_characters_are_shown() {
        let style = ErrorStyle {
            width: Some(80),
            colour: false,
        };
        let text =
            "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\nnorm = [\n1,\n2]\n";
        let error = Config::parse("a.toml", text, &[]).expect_err("a list");
        let shown = style.format_config(&error);
        assert!(shown.contains("\n5 | norm = [\n  |        ^\n"), "{shown}");
        for text in [
            "",
            "\u{feff}[",
            "a = \"好\u{1b}[2J\"",
            "[model]\nkind = \"好久\"\n",
        ] {
            let error = Config::parse("a.toml", text, &[]).expect_err(text);
            let shown = style.format_config(&error);
            assert!(
                shown.starts_with("error: ") && shown.contains('^'),
                "{shown}"
            );
            assert!(!shown.contains('\u{1b}'), "{shown:?}");
        }
    }

    #[test]
    fn other_errors_are_wrapped_and_coloured() {
        let message = "no run at runs/a\n  help: `zoo train CONFIG` creates one";
        let plain = ErrorStyle::default();
        assert_eq!(plain.format(message), format!("error: {message}\n"));
        let style = ErrorStyle {
            width: Some(25),
            colour: true,
        };
        let text = style.format(message);
        let expected = "\u{1b}[1m\u{1b}[91merror: \u{1b}[0mno run at runs/a\n\u{1b}[1m\u{1b}[96m  help: \
                        \u{1b}[0m`zoo train\n    CONFIG` creates one\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn continuation_lines_are_indented() {
        let text = "attention: a long line\n\n  time     O(n·w) and so on\n  https://long.example";
        let expected = "attention: a long\n  line\n\n  time     O(n·w)\n           and so\n           \
                        on\n  https://long.example\n";
        assert_eq!(wrap(text, 18), expected);
        assert_eq!(wrap("ab cd", 5), "ab cd\n");
    }
}
