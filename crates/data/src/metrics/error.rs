//! What cannot be scored, and why.

/// Output that cannot be held against what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// There is nothing to score.
    #[error("there is nothing to score: give at least one line of output and its reference")]
    Nothing,
    /// Lines of output and of references are not as many.
    #[error(
        "{hypotheses} lines of output against {references} of references: they are compared line \
         by line, and must be as many"
    )]
    Lines {
        /// Lines of output.
        hypotheses: usize,
        /// Lines of references.
        references: usize,
    },
    /// A line of output has no reference.
    #[error("line {line} of the output has no reference: give at least one, which may be empty")]
    NoReference {
        /// Which line, counted from 1.
        line: usize,
    },
    /// A setting of a measure is out of range.
    #[error("{field} must be {allowed}, got {got}")]
    Range {
        /// What it is called.
        field: &'static str,
        /// What it may be.
        allowed: &'static str,
        /// What it is.
        got: String,
    },
    /// A class is named twice, so that counts of the two could not be told apart.
    #[error("the class \"{label}\" is there twice, as number {first} and number {second}")]
    LabelTwice {
        /// Its name.
        label: String,
        /// Its first number, from 0.
        first: usize,
        /// Its second number.
        second: usize,
    },
    /// A class that is not there.
    #[error("there is no class {class}: there are {classes}, counted from 0")]
    NoSuchClass {
        /// Its number.
        class: usize,
        /// How many there are.
        classes: usize,
    },
}

impl MetricError {
    /// `field` must be at least 1, and is `got`.
    pub(super) fn at_least_1(field: &'static str, got: usize) -> Result<(), Self> {
        match got {
            0 => Err(Self::Range {
                field,
                allowed: "at least 1",
                got: "0".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
