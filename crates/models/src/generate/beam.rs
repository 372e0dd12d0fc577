//! Beam search: the most likely partial hypotheses are extended in parallel.
//!
//! Each step ranks the continuations of all live hypotheses. Those among the first `beams` that end
//! are finished; lower-ranked ones are finished only if fewer than `beams` hypotheses can be
//! extended. The first `beams` other continuations stay alive. Of the finished hypotheses, the
//! `n_best` with the highest score are returned.
//!
//! A row stops when it has `n_best` finished hypotheses and no live one can overtake the worst of
//! them: log-probabilities only decrease, and the length penalty is weakest at the maximum length,
//! so a live hypothesis with `log p` ends with a score of at most `log p / penalty(limit)`. With
//! one beam and no length penalty the search is greedy.

use super::predictions::{Predictions, top_k};
use super::sequence::{Draft, GeneratedSequence, Stop};

/// Live and finished hypotheses of one row.
#[derive(Debug)]
pub(super) struct Beam<'a> {
    /// Most likely first; all have the same length.
    live: Vec<Draft<'a>>,
    /// Best first.
    pub(super) finished: Vec<GeneratedSequence>,
    beams: usize,
    n_best: usize,
    limit: usize,
}

struct Candidate {
    parent: usize,
    token: u32,
    log_prob: f32,
    log_probability: f64,
}

impl<'a> Beam<'a> {
    pub(super) fn new(draft: Draft<'a>, beams: usize, n_best: usize, limit: usize) -> Self {
        Self {
            live: vec![draft],
            finished: vec![],
            beams,
            n_best,
            limit,
        }
    }

    /// Tokens of the best hypothesis, once the search is over.
    pub(super) fn best(&self) -> &[u32] {
        match (self.finished.first(), self.live.is_empty()) {
            (Some(best), true) => &best.tokens,
            _ => &[],
        }
    }

    /// Extends the live hypotheses, whose predictions start at `first_row`. Returns the parent and
    /// the new token of each hypothesis that stays alive; none if the search is over.
    pub(super) fn next(
        &mut self,
        predictions: &mut Predictions,
        first_row: usize,
    ) -> Vec<(usize, u32)> {
        let candidates = self.candidates(predictions, first_row);
        let mut chosen = vec![];
        let mut live = vec![];
        let mut late_ends = vec![];
        for (rank, candidate) in candidates.into_iter().enumerate() {
            if live.len() == self.beams {
                break;
            }
            let mut draft = self.live[candidate.parent].clone();
            if !draft.config.is_end(candidate.token) {
                draft.push(candidate.token, candidate.log_prob);
                chosen.push((candidate.parent, candidate.token));
                live.push(draft);
            } else {
                draft.log_probability = candidate.log_probability;
                if rank < self.beams {
                    self.insert(draft.finish(Stop::End));
                } else {
                    late_ends.push(draft);
                }
            }
        }
        if live.len() < self.beams {
            for draft in late_ends {
                self.insert(draft.finish(Stop::End));
            }
        }
        self.live = live;
        if let [best, ..] = self.live.as_slice() {
            if best.generated().len() == self.limit {
                for draft in std::mem::take(&mut self.live) {
                    self.insert(draft.finish(Stop::Length));
                }
            } else if self.cannot_improve(best) {
                self.live.clear();
            }
        }
        if self.live.is_empty() {
            chosen.clear();
        }
        chosen
    }

    /// Candidates for the next token, most likely first. Hypotheses without any are finished.
    fn candidates(&mut self, predictions: &mut Predictions, first_row: usize) -> Vec<Candidate> {
        let mut candidates = vec![];
        let mut stuck = vec![];
        for (parent, draft) in self.live.iter().enumerate() {
            let log_probs = predictions.constrained(first_row + parent, draft);
            // More than the beams, because some of them may be end tokens.
            let best = top_k(log_probs, self.beams + draft.config.ends().count().max(1));
            if best.is_empty() {
                stuck.push(draft.finish(Stop::NoChoice));
            }
            candidates.extend(best.into_iter().map(|(token, log_prob)| Candidate {
                parent,
                token,
                log_prob,
                log_probability: draft.log_probability + f64::from(log_prob),
            }));
        }
        stuck.into_iter().for_each(|text| self.insert(text));
        // The sort is stable: the first of equal candidates wins.
        candidates.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
        candidates
    }

    fn insert(&mut self, hypothesis: GeneratedSequence) {
        let index = self
            .finished
            .partition_point(|other| other.score >= hypothesis.score);
        self.finished.insert(index, hypothesis);
        self.finished.truncate(self.n_best);
    }

    /// Whether the most likely live hypothesis cannot overtake any finished one.
    fn cannot_improve(&self, best: &Draft<'_>) -> bool {
        let bound = best.score(self.limit);
        let is_full = self.finished.len() == self.n_best;
        is_full && (self.finished.last()).is_some_and(|worst| bound <= worst.score)
    }
}
