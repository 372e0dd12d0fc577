//! Beam search: the likeliest beginnings are followed side by side.
//!
//! Each step looks at all tokens after all beginnings, the likeliest first. An end among the
//! first `beams` of them finishes its text, and one behind them where too few others are
//! there to be followed; the first `beams` others are. Of the
//! finished texts the `n_best` with the largest score are kept.
//!
//! A row stops when it has as many, and none that is followed can still get ahead of the
//! worst of them: a text only gets less likely, and no penalty is kinder than that of the
//! largest length. So a beginning with `log p` ends with a score of at most
//! `log p / penalty(limit)`. With a beam of one and no length penalty the search is greedy.

use super::GenerateConfig;
use super::next::{Said, largest};
use super::text::{Draft, Generated, Stop, penalised};

/// The beginnings and the finished texts of one row.
#[derive(Debug)]
pub(super) struct Beam {
    /// The likeliest first; all of one length.
    followed: Vec<Draft>,
    /// The best first.
    kept: Vec<Generated>,
    beams: usize,
    length_penalty: f64,
    n_best: usize,
    limit: usize,
}

struct Candidate {
    beginning: usize,
    token: u32,
    log: f32,
    log_probability: f64,
}

impl Beam {
    pub(super) fn new(
        given: Vec<u32>,
        (beams, length_penalty, n_best): (usize, f64, usize),
        limit: usize,
    ) -> Self {
        Self {
            followed: vec![Draft::new(given)],
            kept: vec![],
            beams,
            length_penalty,
            n_best,
            limit,
        }
    }

    /// The best text, once there will be no better one.
    pub(super) fn best(&self) -> &[u32] {
        match (self.kept.first(), self.followed.is_empty()) {
            (Some(best), true) => &best.tokens,
            _ => &[],
        }
    }

    /// Goes on by what was said of these rows, from `first` on. Returns what is followed now:
    /// which beginning it was, and the token after it; nothing if this is over.
    pub(super) fn next(
        &mut self,
        said: &mut Said,
        first: usize,
        config: &GenerateConfig,
    ) -> Vec<(usize, u32)> {
        let candidates = self.candidates(said, first, config);
        let mut chosen = vec![];
        let mut followed = vec![];
        let mut late_ends = vec![];
        for (rank, candidate) in candidates.into_iter().enumerate() {
            if followed.len() == self.beams {
                break;
            }
            let mut draft = self.followed[candidate.beginning].clone();
            if Some(candidate.token) != config.end {
                draft.push(candidate.token, candidate.log);
                chosen.push((candidate.beginning, candidate.token));
                followed.push(draft);
            } else {
                draft.log_probability = candidate.log_probability;
                match rank < self.beams {
                    true => self.keep(draft.done(Stop::End, self.length_penalty)),
                    false => late_ends.push(draft),
                }
            }
        }
        if followed.len() < self.beams {
            for draft in late_ends {
                self.keep(draft.done(Stop::End, self.length_penalty));
            }
        }
        self.followed = followed;
        if let [best, ..] = self.followed.as_slice() {
            if best.made().len() == self.limit {
                for draft in std::mem::take(&mut self.followed) {
                    self.keep(draft.done(Stop::Length, self.length_penalty));
                }
            } else if self.nothing_better_comes(best) {
                self.followed.clear();
            }
        }
        if self.followed.is_empty() {
            chosen.clear();
        }
        chosen
    }

    /// The tokens that may be next, the likeliest first. Beginnings that have none are done.
    fn candidates(
        &mut self,
        said: &mut Said,
        first: usize,
        config: &GenerateConfig,
    ) -> Vec<Candidate> {
        let mut candidates = vec![];
        let mut stuck = vec![];
        for (beginning, draft) in self.followed.iter().enumerate() {
            let logs = said.allowed(first + beginning, draft, config);
            // As many as could be followed, and the end.
            let best = largest(logs, self.beams + 1);
            if best.is_empty() {
                stuck.push(draft.done(Stop::NoChoice, self.length_penalty));
            }
            candidates.extend(best.into_iter().map(|(token, log)| Candidate {
                beginning,
                token,
                log,
                log_probability: draft.log_probability + f64::from(log),
            }));
        }
        stuck.into_iter().for_each(|text| self.keep(text));
        // Stable: of equal ones the first.
        candidates.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
        candidates
    }

    fn keep(&mut self, text: Generated) {
        let at = self.kept.partition_point(|other| other.score >= text.score);
        self.kept.insert(at, text);
        self.kept.truncate(self.n_best);
    }

    /// Whether the likeliest beginning cannot get ahead of any text that is kept.
    fn nothing_better_comes(&self, best: &Draft) -> bool {
        let most = penalised(best.log_probability, self.limit, self.length_penalty);
        let is_full = self.kept.len() == self.n_best;
        is_full && self.kept.last().is_some_and(|worst| most <= worst.score)
    }

    pub(super) fn done(self) -> Vec<Generated> {
        self.kept
    }
}
