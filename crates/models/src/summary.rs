//! Summary of a model: its parts with their sizes and parameter counts.

use std::fmt;

/// Parts of a model; displayed as a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Name and main sizes of the model.
    pub title: String,
    /// Parts in forward order.
    pub parts: Vec<Part>,
}

/// A part of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name.
    pub name: String,
    /// Sizes.
    pub sizes: String,
    /// Number of trainable parameters; 0 if they are shared with another part.
    pub parameters: usize,
}

/// Longer sizes are continued on the next line, so that the table fits 80 columns.
const MAX_SIZES: usize = 44;

impl Summary {
    /// Creates a summary without parts.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            parts: vec![],
        }
    }

    /// Adds a part.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        sizes: impl Into<String>,
        parameters: usize,
    ) -> Self {
        self.parts.push(Part {
            name: name.into(),
            sizes: sizes.into(),
            parameters,
        });
        self
    }

    /// Total number of trainable parameters.
    pub fn parameters(&self) -> usize {
        self.parts.iter().map(|part| part.parameters).sum()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = grouped(self.parameters());
        let parts = self.parts.iter().map(|part| (part, lines(&part.sizes)));
        let parts: Vec<(&Part, Vec<String>)> = parts.collect();
        let len = |text: &str| text.chars().count();
        let names = parts.iter().map(|(part, _)| len(&part.name));
        let name = names.max().unwrap_or(0).max(len("parameters"));
        let sizes = parts.iter().flat_map(|(_, lines)| lines);
        let sizes = sizes.map(|line| len(line)).max().unwrap_or(0);
        writeln!(f, "{}", self.title)?;
        for (part, lines) in &parts {
            let count = match part.parameters {
                0 => "-".to_owned(),
                count => grouped(count),
            };
            let first = lines.first().map_or("", String::as_str);
            writeln!(
                f,
                "  {:name$}  {first:sizes$}  {count:>width$}",
                part.name,
                width = total.len()
            )?;
            for line in lines.iter().skip(1) {
                writeln!(f, "  {:name$}  {line}", "")?;
            }
        }
        write!(f, "  {:name$}  {:sizes$}  {total}", "parameters", "")
    }
}

/// Lines of whole words.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= MAX_SIZES => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Sizes of a matrix, or the name of the embedding that is used instead.
pub(crate) fn matrix_or_tied<M>(matrix: Option<&M>, sizes: [usize; 2], embedding: &str) -> String {
    match matrix {
        Some(_) => format!("{} x {}", sizes[0], sizes[1]),
        None => format!("tied to {embedding}"),
    }
}

/// A number with thousands separators.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let summary = Summary::new("a model")
            .with("embedding", "1000 x 512", 512_000)
            .with("output", "tied to embedding", 0);
        let text = "a model
  embedding   1000 x 512         512,000
  output      tied to embedding        -
  parameters                     512,000";
        assert_eq!(summary.to_string(), text);
        assert_eq!(summary.parameters(), 512_000);
        let long = "6 x 512, 8 heads, flash, cross-attention flash, relu 2048, pre-norm";
        let text = Summary::new("a model")
            .with("decoder", long, 123_456_789)
            .to_string();
        let expected = "a model
  decoder     6 x 512, 8 heads, flash, cross-attention  123,456,789
              flash, relu 2048, pre-norm
  parameters                                            123,456,789";
        assert_eq!(text, expected);
    }
}
