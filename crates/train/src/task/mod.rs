//! Tasks: what a run learns, from its texts to its evaluation.
//!
//! A [`Task`] knows its texts, what makes tokens of them, its examples, its model and how good
//! that is. There are [`Translation`], [`Classification`] and [`LanguageModelling`]; which one a
//! config means is decided in one place, `with_task!`, and everything else is generic.

mod batches;
mod classification;
mod examples;
mod language;
mod models;
mod texts;
mod tokens;
mod translation;

use std::fmt::{Debug, Display};
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use zoo_attention::MultiHeadAttention;
use zoo_config::Config;
use zoo_data::metrics::Perplexity;
use zoo_data::{BatchSize, Batching, Encoded};
use zoo_models::ModelError;

pub(crate) use self::batches::{Batches, Ids};
pub use self::classification::Classified;
pub(crate) use self::classification::{Classification, Classifies};
pub(crate) use self::examples::{Example, TextExample, TextWindow};
pub(crate) use self::language::LanguageModelling;
pub(crate) use self::texts::{Texts, read_texts};
pub(crate) use self::translation::{Translated, Translates, Translation};
use crate::attend::Seen;
use crate::evaluate::{Judge, Judgement, Outcome, Sample};
use crate::trained::{Trained, TrainedTask};
use crate::{DataPart, Result, TrainError};

/// Batch size where nothing is learned.
const ROWS: usize = 64;

/// Takes lines about what was read, cut off or left out.
pub(crate) type Note<'a> = &'a mut dyn FnMut(&str);

/// Logits, and what training adds to their loss.
type Logits<const D: usize> = Result<(Tensor<D>, Option<Tensor<1>>), ModelError>;

/// What a run learns.
pub(crate) trait Task: Debug + Sized + Send + Sync + 'static {
    type Model: TaskModel;
    /// A part of the data as texts.
    type Texts: Texts;
    /// A part of the data as tokens.
    type Ids: Ids<Example = Self::Example>;
    /// What a batch is made of.
    type Example: Example;

    /// The command that uses such a model.
    const USAGE: &'static str;

    /// The task with tokenizers that are learned from these texts, or loaded, as the config says.
    fn prepare(config: &Config, train: &Self::Texts) -> Result<Self>;

    /// The task with the tokenizers of a run's folder.
    fn load(folder: &Path) -> Result<Self>;

    /// Its tokenizers and labels as JSON, by the names of their files in a run's folder.
    fn files(&self) -> Result<Vec<(&'static str, String)>>;

    /// The sizes of the vocabularies: of inputs, and of outputs if these are other texts.
    fn vocabularies(&self) -> (usize, Option<usize>);

    fn encode(
        &self,
        config: &Config,
        part: DataPart,
        texts: &Self::Texts,
        note: Note<'_>,
    ) -> Result<Self::Ids>;

    /// The model with initial weights.
    fn model(&self, section: &Section<Self>, device: &Device) -> Result<Self::Model, ModelError>;

    /// The mean cross-entropy of what is predicted for the examples, `[1]` in `f32`.
    fn loss(
        model: &Self::Model,
        examples: &[&Self::Example],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError>;

    /// What a model predicts for examples, which are made of these texts, and some of it to show.
    fn outcome(
        &self,
        model: &Self::Model,
        examples: &[Self::Example],
        texts: &Self::Texts,
        judge: &Judge,
    ) -> Result<(Outcome, Vec<Sample>)>;

    fn look(
        &self,
        model: &Self::Model,
        trained: &Trained,
        text: &str,
        target: Option<&str>,
    ) -> Result<Seen>;

    /// A trained model that translates, if this is one.
    fn translator(_: &TrainedTask<Self>) -> Option<&dyn Translates> {
        None
    }

    /// A trained model that classifies, if this is one.
    fn classifier(_: &TrainedTask<Self>) -> Option<&dyn Classifies> {
        None
    }

    /// A trained model that continues texts, if this is one.
    fn generator(_: &TrainedTask<Self>) -> Option<&TrainedTask<LanguageModelling>> {
        None
    }
}

/// The config's section of a task's model.
pub(crate) type Section<T> = <<T as Task>::Model as TaskModel>::Section;

/// A model that can be trained here.
pub(crate) trait TaskModel: Module + Display + Sync + 'static {
    type Section;

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        vec![]
    }

    /// Tokens that an example may have, if that is limited.
    fn longest_example(&self) -> Option<usize> {
        None
    }

    /// The tokens of a window, where examples are windows of running text.
    fn context(&self) -> usize {
        0
    }
}

/// Calls something generic with the task of a config and the section of its model.
macro_rules! with_task {
    ($config:expr, |$task:ident, $section:ident| $call:expr) => {
        match &$config.model {
            zoo_config::Model::Transformer($section) => {
                type $task = $crate::task::Translation<zoo_models::Transformer>;
                $call
            }
            zoo_config::Model::Seq2Seq($section) => {
                type $task = $crate::task::Translation<zoo_models::Seq2Seq>;
                $call
            }
            zoo_config::Model::Classifier($section) => {
                type $task = $crate::task::Classification<zoo_models::Classifier>;
                $call
            }
            zoo_config::Model::Han($section) => {
                type $task = $crate::task::Classification<zoo_models::Han>;
                $call
            }
            zoo_config::Model::Gpt($section) => {
                type $task = $crate::task::LanguageModelling;
                $call
            }
        }
    };
}
pub(crate) use with_task;

/// How good a model is at examples, which are made of these texts.
pub(crate) fn evaluate_examples<T: Task>(
    task: &T,
    model: &T::Model,
    examples: &[T::Example],
    texts: &T::Texts,
    judge: &Judge,
) -> Result<Judgement> {
    let mut loss = Perplexity::default();
    by_length(examples, |rows| {
        let mean = T::loss(model, rows, 0.0, &judge.device)
            .map_err(TrainError::model("validation"))?
            .into_scalar::<f32>();
        let predicted = rows.iter().map(|row| row.predicted()).sum();
        loss.add(f64::from(mean), predicted);
        Ok(vec![(); rows.len()])
    })?;
    let (outcome, samples) = task.outcome(model, examples, texts, judge)?;
    Ok(Judgement {
        loss,
        outcome,
        samples,
    })
}

/// Computes a result for each example, without gradients, in batches of about the same length.
fn by_length<E: Encoded, R>(
    examples: &[E],
    mut of_batch: impl FnMut(&[&E]) -> Result<Vec<R>>,
) -> Result<Vec<R>> {
    if examples.is_empty() {
        return Ok(vec![]);
    }
    let extents = examples.iter().map(Encoded::extent).collect();
    // The order is by length: the seed has no part in it.
    let plan = Batching::new(BatchSize::Examples(ROWS), 0).plan(extents)?;
    let mut results: Vec<Option<R>> = examples.iter().map(|_| None).collect();
    for batch in plan.in_order() {
        let rows: Vec<&E> = batch.iter().map(|at| &examples[*at]).collect();
        for (at, result) in batch.iter().zip(of_batch(&rows)?) {
            results[*at] = Some(result);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// The loss of a training pass, with what is added to it.
fn penalised(loss: Tensor<1>, penalty: Option<Tensor<1>>) -> Tensor<1> {
    match penalty {
        Some(penalty) => loss + penalty,
        None => loss,
    }
}

/// That the model has positions for every example.
pub(crate) fn check_lengths<T: Task>(model: &T::Model, part: DataPart, ids: &T::Ids) -> Result<()> {
    let widths = ids.extents().into_iter().map(|extent| extent.width);
    let length = widths.max().unwrap_or(0);
    match model.longest_example().filter(|longest| length > *longest) {
        Some(longest) => Err(TrainError::Refused(format!(
            "{} has an example of {length} tokens, and the model has {longest} places: raise \
             model.positions.longest, or shorten the data by data.max_length",
            part.word()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::LabelledIds;

    use super::*;

    #[test]
    fn results_come_back_in_the_order_of_what_was_asked() {
        let example = |at: u32| LabelledIds {
            label: 0,
            ids: vec![at; (at as usize * 7) % 31],
        };
        let examples: Vec<LabelledIds> = (0..200).map(example).collect();
        let mut batches = 0;
        let lengths = by_length(&examples, |rows| {
            batches += 1;
            assert!(rows.is_sorted_by_key(|row| row.ids.len()));
            Ok(rows.iter().map(|row| row.ids.len()).collect())
        });
        let expected: Vec<usize> = examples.iter().map(|it| it.ids.len()).collect();
        assert_eq!(lengths.unwrap(), expected);
        assert_eq!(batches, 4);
    }
}
