//! Training tasks, from texts to evaluation.
//!
//! A [`Task`] defines its texts, tokenizers, examples, model and metrics. There are
//! [`Translation`], [`Classification`] and [`LanguageModelling`]; `with_task!` selects the task of a
//! config, and all other code is generic.

mod batches;
mod classification;
mod examples;
mod language_modelling;
mod texts;
mod tokenizers;
mod translation;

use std::fmt::{Debug, Display};
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use zoo_attention::MultiHeadAttention;
use zoo_config::Config;
use zoo_data::metrics::Perplexity;
use zoo_data::{BatchSize, Batching, Encoded, Tokenizer};
use zoo_models::ModelError;

pub(crate) use self::batches::{BoxedBatches, TokenData};
pub use self::classification::ClassPrediction;
pub(crate) use self::classification::{Classification, TextClassifier};
pub(crate) use self::examples::{Example, TextWindow};
pub(crate) use self::language_modelling::LanguageModelling;
pub(crate) use self::texts::{ExampleText, Texts, read_texts};
pub(crate) use self::translation::{LineTranslation, Translation, Translator};
use crate::attend::{AttentionRequest, AttentionView};
use crate::evaluate::{Evaluator, Metrics, Sample, TaskMetrics};
use crate::trained::{TrainedRun, TrainedTask};
use crate::{DataSplit, Result, TrainError};

const EVAL_BATCH_SIZE: usize = 64;

/// Receives log lines about the data.
pub(crate) type Note<'a> = &'a mut dyn FnMut(&str);

/// Logits and a penalty that is added to the training loss.
type Logits<const D: usize> = Result<(Tensor<D>, Option<Tensor<1>>), ModelError>;

pub(crate) trait Task: Debug + Sized + Send + Sync + 'static {
    type Model: TaskModel;
    type Texts: Texts;
    /// The tokens of a split.
    type TokenData: TokenData<Example = Self::Example>;
    type Example: Example;

    /// Creates the task. Its tokenizers are trained on these texts, or loaded, as the config says.
    fn prepare(config: &Config, train: &Self::Texts) -> Result<Self>;

    fn load(folder: &Path) -> Result<Self>;

    /// Tokenizers and labels as JSON, with their file names in a run folder.
    fn files(&self) -> Result<Vec<(&'static str, String)>>;

    /// The tokenizer of the input, and that of the output if it is another text.
    fn tokenizers(&self) -> (&Tokenizer, Option<&Tokenizer>);

    fn encode(
        &self,
        config: &Config,
        split: DataSplit,
        texts: &Self::Texts,
        note: Note<'_>,
    ) -> Result<Self::TokenData>;

    fn model(&self, section: &Section<Self>, device: &Device) -> Result<Self::Model, ModelError>;

    /// The mean cross-entropy loss, `[1]` in `f32`.
    fn loss(
        model: &Self::Model,
        examples: &[&Self::Example],
        label_smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError>;

    /// Computes the metrics of the task on examples, which were encoded from `texts`, and returns
    /// sample predictions.
    fn task_metrics(
        &self,
        model: &Self::Model,
        examples: &[Self::Example],
        texts: &Self::Texts,
        evaluator: &Evaluator,
    ) -> Result<(TaskMetrics, Vec<Sample>)>;

    fn attention_view(
        &self,
        model: &Self::Model,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<AttentionView>;

    fn inference(trained: &TrainedTask<Self>) -> Inference<'_>;
}

/// What the model of a task does with new texts.
pub(crate) enum Inference<'a> {
    Translate(&'a dyn Translator),
    Classify(&'a dyn TextClassifier),
    Generate(&'a TrainedTask<LanguageModelling>),
}

impl Inference<'_> {
    /// The `zoo` command.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Translate(_) => "translate",
            Self::Classify(_) => "classify",
            Self::Generate(_) => "generate",
        }
    }
}

pub(crate) type Section<T> = <<T as Task>::Model as TaskModel>::Section;

pub(crate) trait TaskModel: Module + Display + Sync + 'static {
    type Section;

    /// Number of trainable parameters.
    fn parameters(&self) -> usize;

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        vec![]
    }

    /// Maximum tokens of an example, if limited.
    fn longest_example(&self) -> Option<usize> {
        None
    }

    /// Window length, if examples are windows of running text.
    fn context(&self) -> usize {
        0
    }
}

/// Evaluates a generic call with the task of a config and its `[model]` section.
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

/// Evaluates a model on examples, which were encoded from `texts`.
pub(crate) fn evaluate_examples<T: Task>(
    task: &T,
    model: &T::Model,
    examples: &[T::Example],
    texts: &T::Texts,
    evaluator: &Evaluator,
) -> Result<Metrics> {
    let mut loss = Perplexity::default();
    map_batches(examples, |rows| {
        let mean = T::loss(model, rows, 0.0, &evaluator.device)
            .map_err(TrainError::model("validation"))?
            .into_scalar::<f32>();
        let predicted = rows.iter().map(|row| row.predicted()).sum();
        loss.add(f64::from(mean), predicted);
        Ok(vec![(); rows.len()])
    })?;
    let (task_metrics, samples) = task.task_metrics(model, examples, texts, evaluator)?;
    Ok(Metrics {
        loss,
        task_metrics,
        samples,
    })
}

/// Maps examples to results, in batches of similar length.
fn map_batches<E: Encoded, R>(
    examples: &[E],
    mut map: impl FnMut(&[&E]) -> Result<Vec<R>>,
) -> Result<Vec<R>> {
    if examples.is_empty() {
        return Ok(vec![]);
    }
    let extents = examples.iter().map(Encoded::extent).collect();
    // Sorted by length, so the seed has no effect.
    let plan = Batching::new(BatchSize::Examples(EVAL_BATCH_SIZE), 0).plan(extents)?;
    let mut results: Vec<Option<R>> = examples.iter().map(|_| None).collect();
    for batch in plan.sorted_batches() {
        let rows: Vec<&E> = batch.iter().map(|index| &examples[*index]).collect();
        for (index, result) in batch.iter().zip(map(&rows)?) {
            results[*index] = Some(result);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

fn add_penalty(loss: Tensor<1>, penalty: Option<Tensor<1>>) -> Tensor<1> {
    match penalty {
        Some(penalty) => loss + penalty,
        None => loss,
    }
}

/// Checks that every example fits the model's context.
pub(crate) fn check_lengths<T: Task>(
    model: &T::Model,
    split: DataSplit,
    ids: &T::TokenData,
) -> Result<()> {
    let widths = ids.extents().into_iter().map(|extent| extent.width);
    let length = widths.max().unwrap_or(0);
    match model.longest_example().filter(|longest| length > *longest) {
        Some(longest) => Err(TrainError::Refused(format!(
            "the {} data has an example of {length} tokens; the model's context is {longest}\n  \
             help: raise model.positions.max_positions, or shorten the data with data.max_length",
            split.name()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::LabelledIds;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_examples() {
        let example = |index: u32| LabelledIds {
            label: 0,
            ids: vec![index; (index as usize * 7) % 31],
        };
        let examples: Vec<LabelledIds> = (0..200).map(example).collect();
        let mut batches = 0;
        let lengths = map_batches(&examples, |rows| {
            batches += 1;
            assert!(rows.is_sorted_by_key(|row| row.ids.len()));
            Ok(rows.iter().map(|row| row.ids.len()).collect())
        });
        let expected: Vec<usize> = examples.iter().map(|it| it.ids.len()).collect();
        assert_eq!(lengths.unwrap(), expected);
        assert_eq!(batches, 4);
    }
}
