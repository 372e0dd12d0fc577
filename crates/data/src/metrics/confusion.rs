//! Confusion matrix, and precision, recall and F1 of each class.

use std::cmp::Reverse;
use std::fmt;

use unicode_width::UnicodeWidthStr;

use super::MetricError;
use super::accuracy::{fraction, percent};

/// Counts of examples by true and predicted class. Displays as two tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    labels: Vec<String>,
    /// Rows are true classes, columns are predicted classes.
    counts: Vec<Vec<usize>>,
}

/// Precision, recall and F1 of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassScores {
    /// Fraction of the predictions of this class that are correct; `None` without predictions.
    pub precision: Option<f64>,
    /// Fraction of the examples of this class that are predicted correctly; `None` without
    /// examples.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall, zero if one is undefined; `None` if both are.
    pub f1: Option<f64>,
    /// Number of examples of this class.
    pub support: usize,
}

impl ConfusionMatrix {
    /// Creates an empty matrix.
    ///
    /// # Errors
    ///
    /// If a class name occurs twice.
    pub fn new<S: Into<String>>(labels: impl IntoIterator<Item = S>) -> Result<Self, MetricError> {
        let labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        for (second, label) in labels.iter().enumerate() {
            if let Some(first) = labels[..second].iter().position(|other| other == label) {
                return Err(MetricError(format!(
                    "duplicate class \"{label}\": index {first} and index {second}"
                )));
            }
        }
        let counts = vec![vec![0; labels.len()]; labels.len()];
        Ok(Self { labels, counts })
    }

    /// Adds an example by the indices of its true and predicted class.
    pub fn add(&mut self, truth: usize, predicted: usize) -> Result<(), MetricError> {
        self.check_class(truth)?;
        self.check_class(predicted)?;
        self.counts[truth][predicted] += 1;
        Ok(())
    }

    fn check_class(&self, class: usize) -> Result<(), MetricError> {
        let classes = self.labels.len();
        if class >= classes {
            return Err(MetricError(format!(
                "class {class} is out of range for {classes} classes"
            )));
        }
        Ok(())
    }

    /// Class names.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Number of examples of class `truth` predicted as `predicted`.
    pub fn count(&self, truth: usize, predicted: usize) -> Result<usize, MetricError> {
        self.check_class(truth)?;
        self.check_class(predicted)?;
        Ok(self.counts[truth][predicted])
    }

    /// Number of examples.
    pub fn total(&self) -> usize {
        self.counts.iter().flatten().sum()
    }

    /// Fraction of correct predictions; `None` without examples.
    pub fn accuracy(&self) -> Option<f64> {
        fraction(self.correct(), self.total())
    }

    fn correct(&self) -> usize {
        (0..self.labels.len()).map(|i| self.counts[i][i]).sum()
    }

    /// Scores of one class.
    pub fn class(&self, class: usize) -> Result<ClassScores, MetricError> {
        self.check_class(class)?;
        let correct = self.counts[class][class];
        let support = self.counts[class].iter().sum();
        let predicted: usize = self.counts.iter().map(|row| row[class]).sum();
        Ok(ClassScores {
            precision: fraction(correct, predicted),
            recall: fraction(correct, support),
            // Equals the harmonic mean, and is defined if precision or recall is not.
            f1: fraction(2 * correct, support + predicted),
            support,
        })
    }

    fn classes(&self) -> impl Iterator<Item = ClassScores> {
        (0..self.labels.len()).filter_map(|i| self.class(i).ok())
    }

    /// Unweighted mean F1 of all classes with examples or predictions (scikit-learn's
    /// `f1_score(average="macro")`); `None` without any.
    pub fn macro_f1(&self) -> Option<f64> {
        let scores: Vec<f64> = self.classes().filter_map(|class| class.f1).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }
}

/// With more classes, the full matrix is too wide for a terminal and the most frequent errors are
/// listed instead.
const MAX_COLUMNS: usize = 12;

impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scores = self.labels.iter().zip(self.classes());
        let scores = scores.map(|(label, class)| {
            let ratios = [class.precision, class.recall, class.f1];
            let [precision, recall, f1] = ratios.map(|ratio| percent(ratio, 1));
            let support = class.support.to_string();
            vec![label.clone(), precision, recall, f1, support]
        });
        let names = ["class", "precision", "recall", "F1", "examples"];
        f.write_str(&table(names, scores))?;
        writeln!(
            f,
            "\naccuracy {} ({} of {}), macro-F1 {}\n",
            percent(self.accuracy(), 1),
            self.correct(),
            self.total(),
            percent(self.macro_f1(), 1)
        )?;
        f.write_str(&match self.labels.len() {
            0..=MAX_COLUMNS => self.full_matrix(),
            _ => self.frequent_errors(),
        })
    }
}

impl ConfusionMatrix {
    fn full_matrix(&self) -> String {
        let names = ["true \\ predicted"].into_iter();
        let names = names.chain(self.labels.iter().map(String::as_str));
        let rows = self.labels.iter().zip(&self.counts);
        let rows = rows.map(|(label, counts)| {
            let counts = counts.iter().map(usize::to_string);
            [label.clone()].into_iter().chain(counts).collect()
        });
        table(names, rows)
    }

    fn frequent_errors(&self) -> String {
        let mut errors = Vec::new();
        for (truth, counts) in self.counts.iter().enumerate() {
            for (predicted, count) in counts.iter().enumerate() {
                if truth != predicted && *count > 0 {
                    errors.push((Reverse(*count), truth, predicted));
                }
            }
        }
        // Ties are in class order.
        errors.sort_unstable();
        let rows = errors.into_iter().take(MAX_COLUMNS);
        let rows = rows.map(|(Reverse(count), truth, predicted)| {
            let [truth, predicted] = [truth, predicted].map(|class| self.labels[class].clone());
            vec![truth, predicted, count.to_string()]
        });
        table(["true", "predicted", "count"], rows)
    }
}

/// Formats a header and rows. The first column is left-aligned, the others are right-aligned.
fn table<'a>(
    names: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut all: Vec<Vec<String>> = vec![names.into_iter().map(str::to_owned).collect()];
    all.extend(rows);
    let widest = |i: usize| all.iter().map(|row| row[i].width()).max().unwrap_or(0);
    let widest: Vec<usize> = (0..all[0].len()).map(widest).collect();
    let mut lines = String::new();
    for row in &all {
        let mut line = String::new();
        for (i, (cell, widest)) in row.iter().zip(&widest).enumerate() {
            let padding = " ".repeat(widest - cell.width());
            line += &match i {
                0 => format!("{cell}{padding}"),
                _ => format!("  {padding}{cell}"),
            };
        }
        lines += line.trim_end();
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 examples of a (3 correct, 1 predicted as b), 2 of b (1 correct, 1 predicted as c), none of
    /// c or d.
    fn four_classes() -> ConfusionMatrix {
        let mut matrix = ConfusionMatrix::new(["a", "b", "c", "d"]).unwrap();
        for (truth, predicted) in [(0, 0), (0, 0), (0, 0), (0, 1), (1, 1), (1, 2)] {
            matrix.add(truth, predicted).unwrap();
        }
        matrix
    }

    #[test]
    fn hand_computed_scores() {
        let matrix = four_classes();
        assert_eq!((matrix.total(), matrix.count(0, 0)), (6, Ok(3)));
        assert_eq!(matrix.accuracy(), Some(4.0 / 6.0));
        let a = matrix.class(0).unwrap();
        assert_eq!((a.precision, a.recall), (Some(1.0), Some(0.75)));
        assert_eq!((a.f1, a.support), (Some(6.0 / 7.0), 4));
        // c has a prediction but no example, d has neither.
        let c = matrix.class(2).unwrap();
        assert_eq!((c.precision, c.recall, c.f1), (Some(0.0), None, Some(0.0)));
        assert_eq!(matrix.class(3).unwrap().f1, None);
        // a 6/7, b 1/2, c 0; d does not count.
        let expected = (6.0 / 7.0 + 0.5) / 3.0;
        assert!((matrix.macro_f1().unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn display_as_tables() {
        let expected = "\
class  precision  recall     F1  examples
a         100.0%   75.0%  85.7%         4
b          50.0%   50.0%  50.0%         2
c           0.0%       -   0.0%         0
d              -       -      -         0

accuracy 66.7% (4 of 6), macro-F1 45.2%

true \\ predicted  a  b  c  d
a                 3  1  0  0
b                 0  1  1  0
c                 0  0  0  0
d                 0  0  0  0
";
        assert_eq!(four_classes().to_string(), expected);
    }

    #[test]
    fn many_classes_display_frequent_errors() {
        // Columns are aligned by the displayed width of a label.
        let label = |i| match i {
            7 => "好久".to_owned(),
            9 => "e\u{301}".to_owned(),
            _ => format!("class {i}"),
        };
        let mut matrix = ConfusionMatrix::new((0..40).map(label)).unwrap();
        for (truth, predicted) in [(7, 9), (3, 3), (20, 1), (20, 1)] {
            matrix.add(truth, predicted).unwrap();
        }
        let printed = matrix.to_string();
        let errors = "\
true      predicted  count
class 20    class 1      2
好久              e\u{301}      1
";
        assert!(printed.ends_with(errors), "{printed}");
    }

    #[test]
    fn invalid_classes_are_rejected() {
        let twice = ConfusionMatrix::new(["x", "y", "x"]).unwrap_err();
        let message = "duplicate class \"x\": index 0 and index 2";
        assert_eq!(twice.to_string(), message);
        let error = four_classes().add(1, 4).unwrap_err();
        let message = "class 4 is out of range for 4 classes";
        assert_eq!(error.to_string(), message);
        let empty = ConfusionMatrix::new([] as [&str; 0]).unwrap();
        assert_eq!((empty.accuracy(), empty.macro_f1()), (None, None));
    }
}
