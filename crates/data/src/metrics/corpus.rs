//! Corpus-level metrics: counts that are summed over lines.

use super::MetricError;

/// A corpus-level metric computed from counts that are summed over lines, as in sacreBLEU.
pub trait CorpusMetric: Clone {
    /// The score and its components.
    type Score;

    /// Counts of one line. All lines have the same number of counts, and those of several lines are
    /// added.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize>;

    /// Options in the format of sacreBLEU's signature: `case:mixed|eff:no`.
    fn settings(&self) -> String;

    /// Score of summed counts.
    fn score(&self, counts: &[usize], signature: String) -> Self::Score;

    /// Creates an accumulator for a corpus.
    fn counts(&self) -> CorpusCounts<Self> {
        CorpusCounts {
            metric: self.clone(),
            counts: vec![],
            lines: 0,
            references: None,
        }
    }
}

/// Accumulated counts of a corpus.
#[derive(Debug, Clone)]
pub struct CorpusCounts<M> {
    metric: M,
    counts: Vec<usize>,
    lines: usize,
    /// Minimum and maximum number of references per line.
    references: Option<(usize, usize)>,
}

impl<M: CorpusMetric> CorpusCounts<M> {
    /// Adds a hypothesis and its references.
    pub fn add<R: AsRef<str>>(
        &mut self,
        hypothesis: &str,
        references: &[R],
    ) -> Result<(), MetricError> {
        self.lines += 1;
        if references.is_empty() {
            return Err(MetricError(format!(
                "hypothesis {} has no reference\n  help: pass at least one, which may be empty",
                self.lines
            )));
        }
        let references: Vec<&str> = references.iter().map(AsRef::as_ref).collect();
        let counts = self.metric.count(hypothesis, &references);
        self.counts.resize(counts.len(), 0);
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        let count = references.len();
        let (min, max) = self.references.unwrap_or((count, count));
        self.references = Some((min.min(count), max.max(count)));
        Ok(())
    }

    /// Score of all lines added so far.
    pub fn score(&self) -> Result<M::Score, MetricError> {
        let (min, max) = self.references.ok_or_else(|| {
            let help = "add at least one hypothesis and its reference";
            MetricError(format!("no hypotheses to score\n  help: {help}"))
        })?;
        let references = if min == max {
            max.to_string()
        } else {
            "var".to_owned()
        };
        // sacreBLEU's keys in its order. The version is this crate's, to distinguish the score from
        // one printed by sacreBLEU.
        let version = env!("CARGO_PKG_VERSION");
        let settings = self.metric.settings();
        let signature = format!("nrefs:{references}|{settings}|version:zoo-data-{version}");
        Ok(self.metric.score(&self.counts, signature))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bleu;
    use super::*;

    #[test]
    fn missing_references_and_empty_corpora_are_rejected() {
        let mut counts = Bleu::default().counts();
        let empty = counts.score().unwrap_err().to_string();
        assert!(empty.starts_with("no hypotheses to score"), "{empty}");
        counts.add("a", &["a"]).unwrap();
        let none = counts.add::<&str>("a", &[]).unwrap_err().to_string();
        assert!(none.starts_with("hypothesis 2 has no reference"), "{none}");
    }
}
