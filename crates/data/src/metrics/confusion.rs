//! Which class is taken for which, and the scores that follow from it.

use std::cmp::Reverse;
use std::fmt;

use serde::Serialize;

use super::MetricError;
use super::accuracy::share;
use super::table::table;

/// Counts of examples by the class they are of and the class they were taken for. Prints
/// as two tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfusionMatrix {
    labels: Vec<String>,
    /// A row for each true class, a column for each predicted one.
    counts: Vec<Vec<usize>>,
}

/// How well a class is told from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClassScores {
    /// Of those taken for it, the share that is; `None` if nothing was.
    pub precision: Option<f64>,
    /// Of those that are, the share taken for it; `None` if there are none.
    pub recall: Option<f64>,
    /// The harmonic mean of both, zero where one is missing; `None` if the class neither
    /// came nor was predicted.
    pub f1: Option<f64>,
    /// Examples that are of it.
    pub support: usize,
}

impl ConfusionMatrix {
    /// A matrix of no examples yet.
    ///
    /// # Errors
    ///
    /// If two classes have the same name.
    pub fn new<S: Into<String>>(labels: impl IntoIterator<Item = S>) -> Result<Self, MetricError> {
        let labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        for (second, label) in labels.iter().enumerate() {
            if let Some(first) = labels[..second].iter().position(|other| other == label) {
                return Err(MetricError(format!(
                    "the class \"{label}\" is there twice, as number {first} and number {second}"
                )));
            }
        }
        let counts = vec![vec![0; labels.len()]; labels.len()];
        Ok(Self { labels, counts })
    }

    /// One more example, by the numbers of its class and of the one it was taken for.
    pub fn add(&mut self, truth: usize, predicted: usize) -> Result<(), MetricError> {
        self.known(truth)?;
        self.known(predicted)?;
        self.counts[truth][predicted] += 1;
        Ok(())
    }

    fn known(&self, class: usize) -> Result<(), MetricError> {
        let classes = self.labels.len();
        match class < classes {
            true => Ok(()),
            false => Err(MetricError(format!(
                "there is no class {class}: there are {classes}, counted from 0"
            ))),
        }
    }

    /// The names of the classes.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Examples that are of class `truth` and were taken for `predicted`.
    pub fn count(&self, truth: usize, predicted: usize) -> Result<usize, MetricError> {
        self.known(truth)?;
        self.known(predicted)?;
        Ok(self.counts[truth][predicted])
    }

    /// All examples.
    pub fn total(&self) -> usize {
        self.counts.iter().flatten().sum()
    }

    /// The share of examples that were taken for what they are; `None` if there are none.
    pub fn accuracy(&self) -> Option<f64> {
        share(self.right(), self.total())
    }

    fn right(&self) -> usize {
        (0..self.labels.len()).map(|at| self.counts[at][at]).sum()
    }

    /// The scores of one class.
    pub fn class(&self, class: usize) -> Result<ClassScores, MetricError> {
        self.known(class)?;
        let right = self.counts[class][class];
        let support = self.counts[class].iter().sum();
        let predicted: usize = self.counts.iter().map(|row| row[class]).sum();
        Ok(ClassScores {
            precision: share(right, predicted),
            recall: share(right, support),
            // The same as the harmonic mean, and defined where one of the two is not.
            f1: share(2 * right, support + predicted),
            support,
        })
    }

    fn classes(&self) -> impl Iterator<Item = ClassScores> {
        (0..self.labels.len()).filter_map(|at| self.class(at).ok())
    }

    /// The mean F1 of the classes that came or were predicted, each counting the same
    /// (scikit-learn's `f1_score(average="macro")`); `None` if there are none.
    pub fn macro_f1(&self) -> Option<f64> {
        let scores: Vec<f64> = self.classes().filter_map(|class| class.f1).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }
}

/// Above this, a table of all pairs is too wide for a terminal, and the most frequent
/// mistakes say more.
const MOST_COLUMNS: usize = 12;

impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent =
            |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.1}%", 100.0 * s));
        let scores = self.labels.iter().zip(self.classes());
        let scores = scores.map(|(label, class)| {
            vec![
                label.clone(),
                percent(class.precision),
                percent(class.recall),
                percent(class.f1),
                class.support.to_string(),
            ]
        });
        let names = ["class", "precision", "recall", "F1", "examples"];
        f.write_str(&table(names, scores))?;
        writeln!(
            f,
            "\naccuracy {} ({} of {}), macro-F1 {}\n",
            percent(self.accuracy()),
            self.right(),
            self.total(),
            percent(self.macro_f1())
        )?;
        f.write_str(&match self.labels.len() {
            0..=MOST_COLUMNS => self.all_pairs(),
            _ => self.most_frequent_mistakes(),
        })
    }
}

impl ConfusionMatrix {
    fn all_pairs(&self) -> String {
        let names = ["true, across: taken for"].into_iter();
        let names = names.chain(self.labels.iter().map(String::as_str));
        let rows = self.labels.iter().zip(&self.counts);
        let rows = rows.map(|(label, counts)| {
            let counts = counts.iter().map(usize::to_string);
            [label.clone()].into_iter().chain(counts).collect()
        });
        table(names, rows)
    }

    fn most_frequent_mistakes(&self) -> String {
        let mut mistakes = Vec::new();
        for (truth, counts) in self.counts.iter().enumerate() {
            for (predicted, count) in counts.iter().enumerate() {
                if truth != predicted && *count > 0 {
                    mistakes.push((Reverse(*count), truth, predicted));
                }
            }
        }
        // Of equals, in the order of the classes.
        mistakes.sort_unstable();
        let rows = mistakes.into_iter().take(MOST_COLUMNS);
        let rows = rows.map(|(Reverse(count), truth, predicted)| {
            let [truth, predicted] = [truth, predicted].map(|class| self.labels[class].clone());
            vec![truth, predicted, count.to_string()]
        });
        table(["true", "taken for", "times"], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 of a (3 right, 1 taken for b), 2 of b (1 right, 1 taken for c), none of c or d.
    fn four() -> ConfusionMatrix {
        let mut matrix = ConfusionMatrix::new(["a", "b", "c", "d"]).unwrap();
        for (truth, predicted) in [(0, 0), (0, 0), (0, 0), (0, 1), (1, 1), (1, 2)] {
            matrix.add(truth, predicted).unwrap();
        }
        matrix
    }

    #[test]
    fn scores_by_hand() {
        let matrix = four();
        assert_eq!((matrix.total(), matrix.count(0, 0)), (6, Ok(3)));
        assert_eq!(matrix.accuracy(), Some(4.0 / 6.0));
        assert_eq!(
            matrix.class(0).unwrap(),
            ClassScores {
                precision: Some(1.0),
                recall: Some(0.75),
                f1: Some(6.0 / 7.0),
                support: 4
            }
        );
        // c was predicted but never came, d neither.
        let c = matrix.class(2).unwrap();
        assert_eq!((c.precision, c.recall, c.f1), (Some(0.0), None, Some(0.0)));
        assert_eq!(matrix.class(3).unwrap().f1, None);
        // a 6/7, b 1/2, c 0; d does not count.
        let expected = (6.0 / 7.0 + 0.5) / 3.0;
        assert!((matrix.macro_f1().unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn it_prints_as_tables() {
        let expected = "\
class  precision  recall     F1  examples
a         100.0%   75.0%  85.7%         4
b          50.0%   50.0%  50.0%         2
c           0.0%       -   0.0%         0
d              -       -      -         0

accuracy 66.7% (4 of 6), macro-F1 45.2%

true, across: taken for  a  b  c  d
a                        3  1  0  0
b                        0  1  1  0
c                        0  0  0  0
d                        0  0  0  0
";
        assert_eq!(four().to_string(), expected);
    }

    #[test]
    fn many_classes_print_their_mistakes() {
        let mut matrix = ConfusionMatrix::new((0..40).map(|at| format!("class {at}"))).unwrap();
        for (truth, predicted) in [(7, 9), (3, 3), (20, 1), (20, 1)] {
            matrix.add(truth, predicted).unwrap();
        }
        let printed = matrix.to_string();
        let mistakes = "\
true      taken for  times
class 20    class 1      2
class 7     class 9      1
";
        assert!(printed.ends_with(mistakes), "{printed}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let twice = ConfusionMatrix::new(["x", "y", "x"]).unwrap_err();
        let message = "the class \"x\" is there twice, as number 0 and number 2";
        assert_eq!(twice.to_string(), message);
        let error = four().add(1, 4).unwrap_err();
        let message = "there is no class 4: there are 4, counted from 0";
        assert_eq!(error.to_string(), message);
        let empty = ConfusionMatrix::new([] as [&str; 0]).unwrap();
        assert_eq!((empty.accuracy(), empty.macro_f1()), (None, None));
    }
}
