//! The loop around every strategy: prompts go in, rows choose, finished ones are dropped.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::beam::Beam;
use super::next::{Said, forbids_nothing};
use super::text::Single;
use super::{GenerateConfig, Generated, Generative, Strategy};
use crate::{Limits, ModelError};

/// Continues every prompt: for each, the texts that were made, the best first.
///
/// The state is one that has taken nothing in yet, with a row for each prompt. Where a
/// model's texts begin with a token of their own, that token is the prompt. A row's text
/// depends on its prompt, its number and the seed, and on no other row.
///
/// # Errors
///
/// [`ModelError::Range`] for what the config cannot ask for; [`ModelError::Token`],
/// [`ModelError::TooLong`] or [`ModelError::NoPrompt`] for a prompt that the model cannot take;
/// [`ModelError::TakesGradients`] if the model is on a device for training, where it would
/// forget as it does there.
///
/// # Panics
///
/// If there is not a prompt for each row of the state.
pub fn generate<Model: Generative, Prompt: AsRef<[u32]>>(
    model: &Model,
    state: Model::State,
    prompts: &[Prompt],
    config: &GenerateConfig,
) -> Result<Vec<Vec<Generated>>, ModelError> {
    generate_streaming(model, state, prompts, config, |_, _| {})
}

/// [`generate`], telling every token of a row's best text as soon as it is certain: its row,
/// and the token. That is at once, but for a beam search, which knows at the end. The end
/// token is not told.
///
/// # Errors
///
/// As there.
///
/// # Panics
///
/// As there.
pub fn generate_streaming<Model: Generative, Prompt: AsRef<[u32]>>(
    model: &Model,
    mut state: Model::State,
    prompts: &[Prompt],
    config: &GenerateConfig,
    mut tell: impl FnMut(usize, u32),
) -> Result<Vec<Vec<Generated>>, ModelError> {
    let limits = Limits {
        vocabulary: model.vocabulary(),
        longest: model.longest(),
    };
    config.check(limits.vocabulary)?;
    if model.device().is_autodiff() {
        return Err(ModelError::TakesGradients);
    }
    for (row, prompt) in prompts.iter().enumerate() {
        limits.check(row, prompt.as_ref())?;
        if prompt.as_ref().is_empty() {
            return Err(ModelError::NoPrompt { row });
        }
    }
    let count = model.rows(&state);
    assert!(
        count == prompts.len(),
        "generation: there must be a prompt for each of the {count} rows, got {}",
        prompts.len()
    );
    let lengths = prompts.iter().map(|prompt| prompt.as_ref().len());
    let Some(common) = lengths.min() else {
        return Ok(vec![]);
    };
    let device = model.device();
    let mut rows: Vec<Row> = (prompts.iter().enumerate())
        .map(|(number, prompt)| Row::new(number, prompt.as_ref(), common, limits, config))
        .collect();
    let first: Vec<u32> = (prompts.iter())
        .flat_map(|prompt| &prompt.as_ref()[..common])
        .copied()
        .collect();
    let never = never(config, limits.vocabulary, &device);
    let mut logits = model.advance(tokens(&first, count, &device), &mut state);
    loop {
        // So low for them that the probabilities of the others add up to one.
        let possible = match &never {
            Some(is_never) => {
                let is_never = is_never.clone().expand(logits.dims());
                logits.mask_fill(is_never, LOWEST)
            }
            None => logits,
        };
        let mut said = match rows.iter().all(|row| row.needs_the_best_alone(config)) {
            true => Said::best(possible),
            false => Said::all(possible),
        };
        // The rows of the state that go on, and what they go on with.
        let (mut kept, mut next) = (vec![], vec![]);
        let mut at = 0;
        for row in &mut rows {
            let held = row.held;
            for (own, token) in row.next(&mut said, at, config) {
                kept.push(at + own);
                next.push(token);
            }
            at += held;
            row.tell(&mut tell);
        }
        if next.is_empty() {
            break;
        }
        if !kept.iter().copied().eq(0..at) {
            state = model.select(&state, &kept);
        }
        logits = model.advance(tokens(&next, next.len(), &device), &mut state);
    }
    Ok(rows.into_iter().map(|row| row.search.done()).collect())
}

/// So many rows of tokens, side by side.
fn tokens(ids: &[u32], rows: usize, device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    let new = ids.len() / rows;
    Tensor::from_data(TensorData::new(ids, [rows, new]), device)
}

/// Stands for minus infinity, which is not part of what every device promises.
const LOWEST: f32 = -1e30;

/// Where the vocabulary has tokens that are in no text: `[1, vocabulary]`, if there are any.
fn never(config: &GenerateConfig, vocabulary: usize, device: &Device) -> Option<Tensor<2, Bool>> {
    let is_never = (0..vocabulary).map(|token| config.never.contains(&(token as u32)));
    let is_never = TensorData::new(is_never.collect::<Vec<bool>>(), [1, vocabulary]);
    (!config.never.is_empty()).then(|| Tensor::from_data(is_never, device))
}

struct Row {
    number: usize,
    /// What is given and was not taken in, the last first.
    given: Vec<u32>,
    /// How many rows of the state are this one's; none when it is finished.
    held: usize,
    search: Search,
    told: usize,
}

enum Search {
    Single(Single),
    Beam(Beam),
}

impl Row {
    fn new(
        number: usize,
        prompt: &[u32],
        taken: usize,
        limits: Limits,
        config: &GenerateConfig,
    ) -> Self {
        // The last token that is made is never taken in, and needs no position.
        let room = limits.longest.map(|longest| longest - prompt.len() + 1);
        let limit = config.max_length.min(room.unwrap_or(usize::MAX));
        let text = prompt.to_vec();
        let search = match config.strategy {
            Strategy::Beam {
                beams,
                length_penalty,
                n_best,
            } => Search::Beam(Beam::new(text, (beams, length_penalty, n_best), limit)),
            Strategy::Greedy | Strategy::Sample { .. } => {
                Search::Single(Single::new(text, number as u64, limit))
            }
        };
        Self {
            number,
            given: prompt[taken..].iter().rev().copied().collect(),
            held: 1,
            search,
            told: 0,
        }
    }

    /// Whether it would look at no token but the likeliest.
    fn needs_the_best_alone(&self, config: &GenerateConfig) -> bool {
        let is_idle = self.held == 0 || !self.given.is_empty();
        match &self.search {
            Search::Single(text) if config.strategy == Strategy::Greedy => {
                is_idle || forbids_nothing(config, text.made().len())
            }
            _ => is_idle,
        }
    }

    /// What its rows of the state, from `first` on, go on with: which of them, and a token.
    fn next(
        &mut self,
        said: &mut Said,
        first: usize,
        config: &GenerateConfig,
    ) -> Vec<(usize, u32)> {
        if self.held == 0 {
            return vec![];
        }
        let next = match (self.given.pop(), &mut self.search) {
            (Some(given), _) => vec![(0, given)],
            (None, Search::Single(text)) => {
                let token = text.next(said, first, config);
                token.map(|token| (0, token)).into_iter().collect()
            }
            (None, Search::Beam(beam)) => beam.next(said, first, config),
        };
        self.held = next.len();
        next
    }

    /// Tells what is certain and was not told yet.
    fn tell(&mut self, tell: &mut impl FnMut(usize, u32)) {
        let certain = match &self.search {
            Search::Single(text) => text.made(),
            Search::Beam(beam) => beam.best(),
        };
        for token in &certain[self.told..] {
            tell(self.number, *token);
        }
        self.told = certain.len();
    }
}

impl Search {
    fn done(self) -> Vec<Generated> {
        match self {
            Self::Single(text) => text.done(),
            Self::Beam(beam) => beam.done(),
        }
    }
}
