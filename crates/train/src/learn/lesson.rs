//! What a model learns from and is asked: the examples of its own kind.

use zoo_config::{BatchBy, Config, Model};
use zoo_data::{BatchSize, DataError, Encoded, Pair, Parts};

use super::Batches;
use super::batches::{Bucketed, Pieces, pieces_of};
use crate::learn::{Learns, TextWindow};
use crate::{Examples, Texts, TrainError};

/// Batches to learn from, and two parts to be asked.
pub(crate) struct Lesson<M: Learns> {
    pub(crate) batches: Box<dyn Batches<Example = M::Example>>,
    pub(crate) valid: Part<M>,
    pub(crate) test: Part<M>,
}

/// Examples, and the texts they are made of where these are pairs.
pub(crate) struct Part<M: Learns> {
    pub(crate) examples: Vec<M::Example>,
    pub(crate) texts: Vec<Pair>,
}

impl<M: Learns> Lesson<M>
where
    M::Example: Encoded,
{
    /// Of examples that have lengths.
    pub(crate) fn of_examples(
        config: &Config,
        parts: Parts<Vec<M::Example>>,
        texts: &Texts,
    ) -> Result<Self, TrainError> {
        let size = match config.training.batch_by {
            BatchBy::Examples => BatchSize::Examples(config.training.batch_size),
            BatchBy::Tokens => BatchSize::Tokens(config.training.batch_size),
        };
        let batches = Bucketed::new(parts.train, size, config.run.seed).map_err(batch_error)?;
        let (valid, test) = match texts {
            Texts::Pairs(pairs) => (pairs.valid.clone(), pairs.test.clone()),
            Texts::Labelled(_) | Texts::Plain(_) => (vec![], vec![]),
        };
        let mut valid = Part {
            examples: parts.valid,
            texts: valid,
        };
        if let Some(most) = config.validation.max_examples {
            valid.examples.truncate(most);
            valid.texts.truncate(most);
        }
        Ok(Self {
            batches: Box::new(batches),
            valid,
            test: Part {
                examples: parts.test,
                texts: test,
            },
        })
    }
}

impl<M: Learns<Example = TextWindow>> Lesson<M> {
    /// Of running text.
    pub(crate) fn of_text(config: &Config, parts: Parts<Vec<u32>>) -> Result<Self, TrainError> {
        let Model::Gpt(model) = &config.model else {
            unreachable!("running text is for a GPT");
        };
        let context = model.context;
        let size = config.training.batch_size;
        let rows = match config.training.batch_by {
            BatchBy::Examples => size,
            BatchBy::Tokens => (size / context).max(1),
        };
        let part = |text: &[u32], most: Option<usize>| Part {
            examples: pieces_of(text, context, most),
            texts: vec![],
        };
        Ok(Self {
            valid: part(&parts.valid, config.validation.max_examples),
            test: part(&parts.test, None),
            batches: Box::new(Pieces::new(parts.train, context, rows, config.run.seed)?),
        })
    }
}

/// The same error, with the keys of the config in it.
fn batch_error(error: DataError) -> TrainError {
    match error {
        DataError::TooLong {
            length, longest, ..
        } => TrainError::Refused(format!(
            "an example has {length} tokens, padding counted, and a batch may have \
             training.batch_size = {longest}: raise it, or leave long examples out by \
             data.max_length"
        )),
        other => other.into(),
    }
}

/// That the model has places for every example.
pub(crate) fn check_lengths(config: &Config, examples: &Examples) -> Result<(), TrainError> {
    let longest = match &config.model {
        Model::Transformer(model) => model.positions.longest(),
        Model::Classifier(model) => {
            // The vector that is put before the tokens takes a place, too.
            let taken = usize::from(model.pooling == zoo_config::Pooling::Cls);
            model
                .positions
                .longest()
                .map(|longest| longest.saturating_sub(taken))
        }
        Model::Gpt(_) | Model::Seq2Seq(_) | Model::Han(_) => None,
    };
    let Some(longest) = longest else {
        return Ok(());
    };
    let check = |part: &'static str, widths: Vec<usize>| {
        let length = widths.into_iter().max().unwrap_or(0);
        match length > longest {
            true => Err(TrainError::TooLong {
                part,
                length,
                longest,
            }),
            false => Ok(()),
        }
    };
    fn widths<E: Encoded>(examples: &[E]) -> Vec<usize> {
        examples
            .iter()
            .map(|example| example.extent().width)
            .collect()
    }
    let parts = match examples {
        Examples::Pairs(parts) => {
            [&parts.train, &parts.valid, &parts.test].map(|part| widths(part))
        }
        Examples::Labelled(parts) => {
            [&parts.train, &parts.valid, &parts.test].map(|part| widths(part))
        }
        Examples::Documents(_) | Examples::Plain(_) => return Ok(()),
    };
    let names = ["training", "validation", "test"];
    names
        .into_iter()
        .zip(parts)
        .try_for_each(|(name, widths)| check(name, widths))
}
