//! A model in a few lines: what it is made of, and how many numbers that are.

use std::fmt;

/// What a model is made of. Printed, it is a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The model and its sizes in a line.
    pub title: String,
    /// Its parts, in the order that numbers go through them.
    pub parts: Vec<Part>,
}

/// A part of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is called.
    pub name: String,
    /// Its sizes.
    pub sizes: String,
    /// Numbers it has learned; none of its own where it shares another's.
    pub parameters: usize,
}

impl Summary {
    /// A model without parts yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            parts: vec![],
        }
    }

    /// The same with one part more.
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

    /// Numbers that all parts have learned.
    pub fn parameters(&self) -> usize {
        self.parts.iter().map(|part| part.parameters).sum()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = grouped(self.parameters());
        let width = |text: fn(&Part) -> &str| {
            let widths = self.parts.iter().map(|part| text(part).chars().count());
            widths.max().unwrap_or(0)
        };
        let name = width(|part| &part.name).max("parameters".len());
        let sizes = width(|part| &part.sizes);
        writeln!(f, "{}", self.title)?;
        for part in &self.parts {
            let count = match part.parameters {
                0 => "-".to_owned(),
                count => grouped(count),
            };
            writeln!(
                f,
                "  {:name$}  {:sizes$}  {count:>width$}",
                part.name,
                part.sizes,
                width = total.len()
            )?;
        }
        write!(f, "  {:name$}  {:sizes$}  {total}", "parameters", "")
    }
}

/// Digits in groups of three.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
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
    fn a_table_that_lines_up() {
        let summary = Summary::new("a model")
            .with("embedding", "1000 x 512", 512_000)
            .with("head", "the embedding's", 0);
        let text = "a model
  embedding   1000 x 512       512,000
  head        the embedding's        -
  parameters                   512,000";
        assert_eq!(summary.to_string(), text);
        assert_eq!(summary.parameters(), 512_000);
    }
}
