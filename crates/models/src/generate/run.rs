//! Generation loop: feeds prompts, chooses tokens, drops finished rows.

use std::ops::ControlFlow;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use super::beam::Beam;
use super::predictions::{Predictions, is_unconstrained};
use super::sequence::{Draft, Single};
use super::{GenerateConfig, GeneratedSequence, Generative, Strategy};
use crate::{Limits, ModelError};

/// Generates a continuation of every prompt. Returns the hypotheses of each prompt, best first.
///
/// The state must be fresh, with one row for each prompt. A model with a begin token gets it as
/// the prompt. The output of a row depends on its prompt, its index and the seed, but not on other
/// rows.
///
/// # Errors
///
/// [`ModelError::Range`] for an invalid config; [`ModelError::Token`], [`ModelError::TooLong`] or
/// [`ModelError::EmptyPrompt`] for an invalid prompt; [`ModelError::AutodiffDevice`] if the model
/// is on an autodiff device, where dropout is active.
///
/// # Panics
///
/// If the number of prompts differs from the rows of the state.
pub fn generate<Model: Generative, Prompt: AsRef<[u32]>>(
    model: &Model,
    state: Model::State,
    prompts: &[Prompt],
    config: &GenerateConfig,
) -> Result<Vec<Vec<GeneratedSequence>>, ModelError> {
    generate_streaming(model, state, prompts, config, |_, _| {
        ControlFlow::Continue(())
    })
}

/// [`generate`] with a callback that receives the row and the token of each row's best hypothesis
/// as soon as it is final: immediately, or at the end of a beam search. The end token is not
/// reported.
///
/// With [`ControlFlow::Break`], the callback stops all rows. Their sequences so far are returned with
/// [`Stop::Interrupted`](super::Stop::Interrupted); an unfinished beam search returns only the
/// hypotheses that have ended.
pub fn generate_streaming<Model: Generative, Prompt: AsRef<[u32]>>(
    model: &Model,
    mut state: Model::State,
    prompts: &[Prompt],
    config: &GenerateConfig,
    mut on_token: impl FnMut(usize, u32) -> ControlFlow<()>,
) -> Result<Vec<Vec<GeneratedSequence>>, ModelError> {
    let limits = Limits::new(model.vocabulary(), model.longest());
    config.check(limits.vocabulary)?;
    if model.device().is_autodiff() {
        return Err(ModelError::AutodiffDevice);
    }
    let prompts: Vec<&[u32]> = prompts.iter().map(AsRef::as_ref).collect();
    for (row, prompt) in prompts.iter().enumerate() {
        limits.check(format_args!("row {row}"), prompt)?;
        if prompt.is_empty() {
            return Err(ModelError::EmptyPrompt(row));
        }
    }
    let count = model.rows(&state);
    assert!(
        count == prompts.len(),
        "generation: the state has {count} rows, got {} prompts",
        prompts.len()
    );
    let Some(prefill) = prompts.iter().map(|prompt| prompt.len()).min() else {
        return Ok(vec![]);
    };
    let device = model.device();
    let mut rows: Vec<Row<'_>> = (prompts.iter().enumerate())
        .map(|(index, prompt)| Row::new(index, prompt, prefill, limits, config))
        .collect();
    let first = prompts.iter().flat_map(|prompt| &prompt[..prefill]);
    let first: Vec<u32> = first.copied().collect();
    let suppressed = suppressed_tokens(config, limits.vocabulary, &device);
    let mut logits = model.advance(token_tensor(&first, count, &device), &mut state);
    'steps: loop {
        // Masked before the softmax, so that the other probabilities sum to one.
        if let Some(suppressed) = &suppressed {
            let suppressed = suppressed.clone().expand(logits.dims());
            logits = logits.mask_fill(suppressed, MASKED);
        }
        let mut predictions = if rows.iter().all(|row| row.needs_only_best(config)) {
            Predictions::read_best(logits)
        } else {
            Predictions::read_all(logits)
        };
        // Rows of the state that continue, and their next tokens.
        let (mut continued, mut next) = (vec![], vec![]);
        let mut first_row = 0;
        for row in &mut rows {
            let state_rows = row.state_rows;
            for (offset, token) in row.next(&mut predictions, first_row) {
                continued.push(first_row + offset);
                next.push(token);
            }
            first_row += state_rows;
            if row.report(&mut on_token).is_break() {
                break 'steps;
            }
        }
        if next.is_empty() {
            break;
        }
        if !continued.iter().copied().eq(0..first_row) {
            state = model.select(&state, &continued);
        }
        logits = model.advance(token_tensor(&next, next.len(), &device), &mut state);
    }
    let finish = |row: Row<'_>| match row.search {
        Search::Single(text) => text.finish(),
        Search::Beam(beam) => beam.finished,
    };
    Ok(rows.into_iter().map(finish).collect())
}

/// Token ids as `[rows, ids.len() / rows]`.
fn token_tensor(ids: &[u32], rows: usize, device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    let new = ids.len() / rows;
    Tensor::from_data(TensorData::new(ids, [rows, new]), device)
}

/// Replaces minus infinity, which not every device supports.
const MASKED: f32 = -1e30;

/// Mask of the tokens in `config.never`, `[1, vocabulary]`, if there are any.
fn suppressed_tokens(
    config: &GenerateConfig,
    vocabulary: usize,
    device: &Device,
) -> Option<Tensor<2, Bool>> {
    let mask = (0..vocabulary).map(|token| config.never.contains(&(token as u32)));
    let mask = TensorData::new(mask.collect::<Vec<bool>>(), [1, vocabulary]);
    (!config.never.is_empty()).then(|| Tensor::from_data(mask, device))
}

struct Row<'a> {
    index: usize,
    /// Rest of the prompt, in reverse order.
    prompt_rest: Vec<u32>,
    /// Number of rows of the state that belong to this row; 0 when finished.
    state_rows: usize,
    search: Search<'a>,
    /// Number of tokens passed to the callback.
    reported: usize,
}

enum Search<'a> {
    Single(Single<'a>),
    Beam(Beam<'a>),
}

impl<'a> Row<'a> {
    fn new(
        index: usize,
        prompt: &[u32],
        prefill: usize,
        limits: Limits,
        config: &'a GenerateConfig,
    ) -> Self {
        // The last generated token is not fed back and needs no position.
        let capacity = limits.longest.map(|longest| longest - prompt.len() + 1);
        let limit = config.max_length.min(capacity.unwrap_or(usize::MAX));
        let draft = Draft::new(prompt.to_vec(), config);
        let search = match config.strategy {
            Strategy::Beam { beams, n_best, .. } => {
                Search::Beam(Beam::new(draft, beams, n_best, limit))
            }
            Strategy::Greedy | Strategy::Sample { .. } => {
                Search::Single(Single::new(draft, index as u64, limit))
            }
        };
        Self {
            index,
            prompt_rest: prompt[prefill..].iter().rev().copied().collect(),
            state_rows: 1,
            search,
            reported: 0,
        }
    }

    /// Whether the row needs no prediction but the most likely token.
    fn needs_only_best(&self, config: &GenerateConfig) -> bool {
        let is_idle = self.state_rows == 0 || !self.prompt_rest.is_empty();
        match &self.search {
            Search::Single(text) if config.strategy == Strategy::Greedy => {
                is_idle || is_unconstrained(config, text.generated().len())
            }
            _ => is_idle,
        }
    }

    /// The state rows of this row that continue, relative to `first_row`, and their next tokens.
    fn next(&mut self, predictions: &mut Predictions, first_row: usize) -> Vec<(usize, u32)> {
        if self.state_rows == 0 {
            return vec![];
        }
        let next = match (self.prompt_rest.pop(), &mut self.search) {
            (Some(token), _) => vec![(0, token)],
            (None, Search::Single(text)) => {
                let token = text.next(predictions, first_row);
                token.map(|token| (0, token)).into_iter().collect()
            }
            (None, Search::Beam(beam)) => beam.next(predictions, first_row),
        };
        self.state_rows = next.len();
        next
    }

    /// Passes tokens that became final to the callback, until it stops.
    fn report(
        &mut self,
        on_token: &mut impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let tokens = match &self.search {
            Search::Single(text) => text.generated(),
            Search::Beam(beam) => beam.best(),
        };
        for token in &tokens[self.reported..] {
            on_token(self.index, *token)?;
        }
        self.reported = tokens.len();
        ControlFlow::Continue(())
    }
}
