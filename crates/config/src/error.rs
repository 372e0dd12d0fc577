//! Errors of a config, with their locations.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use zoo_spec::Printable;

/// A config that cannot be used. The message says what is wrong, where, and what to do.
///
/// It has one line for each problem; [`ErrorStyle::format_config`](crate::ErrorStyle::format_config)
/// also shows the lines of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read, or a template does not exist.
    #[error("{0}")]
    InvalidInput(String),
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(Diagnostics),
    /// One or more invalid keys or values, a malformed flag, or missing data files.
    #[error("{0}")]
    Diagnostics(Diagnostics),
    /// The run needs more memory than there is.
    #[error("{0}")]
    Memory(String),
}

impl ConfigError {
    pub(crate) fn diagnostics(&self) -> Option<&Diagnostics> {
        match self {
            Self::Syntax(diagnostics) | Self::Diagnostics(diagnostics) => Some(diagnostics),
            Self::InvalidInput(_) | Self::Memory(_) => None,
        }
    }

    /// The problems, without their locations and help.
    pub fn reasons(&self) -> Vec<String> {
        match self.diagnostics() {
            Some(Diagnostics { list, .. }) => list.iter().map(|it| it.message.clone()).collect(),
            None => vec![self.to_string()],
        }
    }

    /// The errors of variants of a config, each with the name of the variant, of `count` variants in
    /// all. The same problem is reported once. One that only some variants have names the first,
    /// unless its location is the value that distinguishes them. An error that is not about a key
    /// comes alone.
    pub fn merge(errors: Vec<(String, Self)>, count: usize) -> Option<Self> {
        let mut merged = Diagnostics::default();
        let mut found: Vec<(usize, String)> = vec![];
        for (variant, error) in errors {
            let Self::Diagnostics(Diagnostics { list, help }) = error else {
                return Some(error);
            };
            for diagnostic in list {
                match merged.list.iter().position(|it| *it == diagnostic) {
                    Some(i) => found[i].0 += 1,
                    None => {
                        merged.list.push(diagnostic);
                        found.push((1, variant.clone()));
                    }
                }
            }
            for help in help {
                if !merged.help.contains(&help) {
                    merged.help.push(help);
                }
            }
        }
        for (diagnostic, (times, variant)) in merged.list.iter_mut().zip(found) {
            let is_swept = diagnostic.location.source.text().starts_with("--sweep ");
            if times < count && !is_swept {
                diagnostic.message += &format!("\n  variant: {}", Printable(&variant));
            }
        }
        (!merged.list.is_empty()).then_some(Self::Diagnostics(merged))
    }
}

/// Invalid keys and values, each with its location.
#[derive(Debug, Default)]
pub struct Diagnostics {
    pub(crate) list: Vec<Diagnostic>,
    /// What to do about all of them.
    pub(crate) help: Vec<String>,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Diagnostic { location, message }) in self.list.iter().enumerate() {
            let separator = if i > 0 { "\n" } else { "" };
            write!(f, "{separator}{location}: {message}")?;
        }
        self.help
            .iter()
            .try_for_each(|help| write!(f, "\n  help: {help}"))
    }
}

/// An invalid key or value.
#[derive(Debug, PartialEq)]
pub(crate) struct Diagnostic {
    pub(crate) location: Location,
    /// The full key, what is wrong with it, and what is allowed.
    pub(crate) message: String,
}

/// What a location is in.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    File {
        name: String,
        text: String,
    },
    /// A command-line flag.
    Flag(String),
}

impl Source {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::File { text, .. } | Self::Flag(text) => text,
        }
    }
}

/// Where a key or value was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) source: Arc<Source>,
    start: usize,
    end: usize,
}

impl Location {
    pub(crate) fn new(source: &Arc<Source>, span: Range<usize>) -> Self {
        let text = source.text();
        let boundary = |at: usize| text.floor_char_boundary(at.min(text.len()));
        let start = boundary(span.start);
        Self {
            source: Arc::clone(source),
            start,
            end: boundary(span.end).max(start),
        }
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.start..self.end
    }

    pub(crate) fn text(&self) -> &str {
        &self.source.text()[self.span()]
    }

    /// The part of the span on its first line.
    pub(crate) fn first_line(&self) -> Range<usize> {
        let line = self.text().lines().next().unwrap_or_default();
        self.start..self.start + line.len()
    }

    /// Line and column, counted from 1.
    pub(crate) fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text()[..self.start];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[line_start..].chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.source {
            Source::File { name, .. } => {
                let (line, column) = self.line_and_column();
                write!(f, "{}:{line}:{column}", Printable(name))
            }
            Source::Flag(flag) => Printable(flag).fmt(f),
        }
    }
}

/// The message for a value of the wrong type or out of range.
pub(crate) fn invalid_value(key: &str, allowed: &str, found: &str) -> String {
    format!("{key} must be {allowed}, found {}", Printable(found))
}

pub(crate) fn syntax_error(location: &Location, why: &str) -> ConfigError {
    let message = format!("invalid TOML: {}", Printable(why));
    ConfigError::Syntax(Diagnostics {
        list: vec![Diagnostic {
            location: location.clone(),
            message,
        }],
        help: vec![],
    })
}
