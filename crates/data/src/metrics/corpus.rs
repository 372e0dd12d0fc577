//! Output against references, line by line, and the line that says how it was scored.

use super::MetricError;

/// A measure of output that is made of counts of its lines, as sacreBLEU's are.
pub trait CorpusMetric: Clone {
    /// The score and what it is made of.
    type Score;

    /// Whether the settings make sense.
    ///
    /// # Errors
    ///
    /// [`MetricError::Range`] with the one that does not.
    fn check(&self) -> Result<(), MetricError>;

    /// The counts of one line, of which there is the same number for every line: those of
    /// several lines are their sums.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize>;

    /// The settings as sacreBLEU's signature names them.
    fn settings(&self) -> Vec<(&'static str, String)>;

    /// The score of sums of counts.
    fn score(&self, counts: &[usize], signature: String) -> Self::Score;

    /// Counts of no lines yet.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check).
    fn counts(&self) -> Result<CorpusCounts<Self>, MetricError> {
        self.check()?;
        Ok(CorpusCounts {
            metric: self.clone(),
            counts: vec![],
            lines: 0,
            references: References::default(),
        })
    }

    /// The score of all lines together; `references` has one or more for each.
    ///
    /// # Errors
    ///
    /// If there are no lines, not as many of both, or one without a reference.
    fn corpus<H: AsRef<str>, R: AsRef<str>>(
        &self,
        hypotheses: &[H],
        references: &[Vec<R>],
    ) -> Result<Self::Score, MetricError> {
        if hypotheses.len() != references.len() {
            return Err(MetricError::Lines {
                hypotheses: hypotheses.len(),
                references: references.len(),
            });
        }
        let mut counts = self.counts()?;
        for (hypothesis, references) in hypotheses.iter().zip(references) {
            counts.add(hypothesis.as_ref(), references)?;
        }
        counts.score()
    }
}

/// What is known of the lines so far: all that a score is made of.
#[derive(Debug, Clone)]
pub struct CorpusCounts<M> {
    metric: M,
    counts: Vec<usize>,
    lines: usize,
    references: References,
}

impl<M: CorpusMetric> CorpusCounts<M> {
    /// One more line of output and its references.
    ///
    /// # Errors
    ///
    /// [`MetricError::NoReference`] if there is none.
    pub fn add<R: AsRef<str>>(
        &mut self,
        hypothesis: &str,
        references: &[R],
    ) -> Result<(), MetricError> {
        if references.is_empty() {
            return Err(MetricError::NoReference {
                line: self.lines + 1,
            });
        }
        let references: Vec<&str> = references.iter().map(AsRef::as_ref).collect();
        let counts = self.metric.count(hypothesis, &references);
        self.counts.resize(counts.len(), 0);
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        self.lines += 1;
        self.references.add(references.len());
        Ok(())
    }

    /// The score of all lines so far.
    ///
    /// # Errors
    ///
    /// [`MetricError::Nothing`] if there are none.
    pub fn score(&self) -> Result<M::Score, MetricError> {
        if self.lines == 0 {
            return Err(MetricError::Nothing);
        }
        let signature = signature(self.references, &self.metric.settings());
        Ok(self.metric.score(&self.counts, signature))
    }
}

/// How many references lines have: the same for each of them, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum References {
    /// No line was seen.
    #[default]
    Unknown,
    /// Each has as many.
    Each(usize),
    /// Some have more than others.
    Varying,
}

impl References {
    /// One more line, with `count` references.
    fn add(&mut self, count: usize) {
        *self = match *self {
            Self::Unknown => Self::Each(count),
            Self::Each(others) if others == count => *self,
            _ => Self::Varying,
        };
    }

    fn word(self) -> String {
        match self {
            Self::Unknown => "0".to_owned(),
            Self::Each(count) => count.to_string(),
            Self::Varying => "var".to_owned(),
        }
    }
}

/// `nrefs:1|case:mixed|...|version:zoo-data-0.1.0`: sacreBLEU's keys in its order. The
/// version is ours, so that nobody takes the number for one that sacreBLEU printed.
fn signature(references: References, settings: &[(&str, String)]) -> String {
    let mut parts = vec![format!("nrefs:{}", references.word())];
    parts.extend(settings.iter().map(|(key, value)| format!("{key}:{value}")));
    parts.push(concat!("version:zoo-data-", env!("CARGO_PKG_VERSION")).to_owned());
    parts.join("|")
}

#[cfg(test)]
mod tests {
    use super::super::{Bleu, Chrf, Smoothing};
    use super::*;

    const CAT: &str = "the cat sat on the mat";

    fn refuses_what_cannot_be_scored<M: CorpusMetric<Score: std::fmt::Debug>>(metric: &M) {
        let none: [&str; 0] = [];
        for (lines, references, why) in [
            (&none[..], vec![], "there is nothing to score"),
            (&[CAT][..], vec![], "1 lines of output against 0"),
            (
                &[CAT, CAT][..],
                vec![vec![CAT], vec![]],
                "line 2 of the output has no reference",
            ),
        ] {
            let said = metric.corpus(lines, &references).unwrap_err().to_string();
            assert!(said.starts_with(why), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_scored_says_why() {
        refuses_what_cannot_be_scored(&Bleu::default());
        refuses_what_cannot_be_scored(&Chrf::default());
    }

    #[test]
    fn settings_that_make_no_sense() {
        let bleu = Bleu::default();
        let chrf = Chrf::default();
        let order = Bleu {
            order: 0,
            ..bleu.clone()
        };
        let smoothing = Bleu {
            smoothing: Smoothing::Floor(0.0),
            ..bleu
        };
        let runs = Chrf {
            char_order: 0,
            ..chrf.clone()
        };
        let beta = Chrf { beta: 0, ..chrf };
        for (checked, why) in [
            (order.check(), "the order of BLEU must be at least 1, got 0"),
            (
                smoothing.check(),
                "the number of the smoothing must be above 0, got 0",
            ),
            (runs.check(), "the order of chrF must be at least 1, got 0"),
            (beta.check(), "the beta of chrF must be at least 1, got 0"),
        ] {
            assert_eq!(checked.unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn references_are_counted_or_vary() {
        let mut references = References::default();
        references.add(2);
        references.add(2);
        assert_eq!(references, References::Each(2));
        references.add(1);
        assert_eq!(references.word(), "var");
    }
}
