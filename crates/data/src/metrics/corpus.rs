//! Output against references, line by line, and the line that says how it was scored.

use super::MetricError;

/// A measure of output that is made of counts of its lines, as sacreBLEU's are.
pub trait CorpusMetric: Clone {
    /// The score and what it is made of.
    type Score;

    /// The counts of one line, of which there is the same number for every line: those of
    /// several lines are their sums.
    fn count(&self, hypothesis: &str, references: &[&str]) -> Vec<usize>;

    /// The settings as sacreBLEU's signature names them: `case:mixed|eff:no`.
    fn settings(&self) -> String;

    /// The score of sums of counts.
    fn score(&self, counts: &[usize], signature: String) -> Self::Score;

    /// Counts of no lines yet.
    fn counts(&self) -> CorpusCounts<Self> {
        CorpusCounts {
            metric: self.clone(),
            counts: vec![],
            lines: 0,
            references: None,
        }
    }
}

/// What is known of the lines so far: all that a score is made of.
#[derive(Debug, Clone)]
pub struct CorpusCounts<M> {
    metric: M,
    counts: Vec<usize>,
    lines: usize,
    /// The fewest references of a line, and the most.
    references: Option<(usize, usize)>,
}

impl<M: CorpusMetric> CorpusCounts<M> {
    /// One more line of output and its references.
    pub fn add<R: AsRef<str>>(
        &mut self,
        hypothesis: &str,
        references: &[R],
    ) -> Result<(), MetricError> {
        self.lines += 1;
        if references.is_empty() {
            return Err(MetricError(format!(
                "line {} of the output has no reference: give at least one, which may be empty",
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
        let (fewest, most) = self.references.unwrap_or((count, count));
        self.references = Some((fewest.min(count), most.max(count)));
        Ok(())
    }

    /// The score of all lines so far.
    pub fn score(&self) -> Result<M::Score, MetricError> {
        let (fewest, most) = self.references.ok_or_else(|| {
            let help = "give at least one line of output and its reference";
            MetricError(format!("there is nothing to score: {help}"))
        })?;
        let references = match fewest == most {
            true => most.to_string(),
            false => "var".to_owned(),
        };
        // sacreBLEU's keys in its order. The version is ours, so that nobody takes the number for
        // one that sacreBLEU printed.
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
    fn what_cannot_be_scored_says_why() {
        let mut counts = Bleu::default().counts();
        let nothing = counts.score().unwrap_err().to_string();
        assert!(
            nothing.starts_with("there is nothing to score"),
            "{nothing}"
        );
        counts.add("a", &["a"]).unwrap();
        let none: [&str; 0] = [];
        let error = counts.add("a", &none).unwrap_err().to_string();
        assert!(
            error.starts_with("line 2 of the output has no reference"),
            "{error}"
        );
    }
}
