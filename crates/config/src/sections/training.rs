//! `[training]` and `[validation]`.

use zoo_spec::Precision;

use super::data::Task;
use crate::keys::{
    BATCH, LIMIT, POSITIVE, PROBABILITY, Presence, STEPS, Values, choice, count, keys, kinds, names,
};

/// Training steps if neither `steps` nor `epochs` is set.
pub(crate) const DEFAULT_STEPS: usize = 2000;

keys! {
    /// Duration, batches, precision, logging and checkpoints.
    pub struct Training {
        /// Optimizer steps.
        steps: Option<usize> = None, STEPS, Presence::Optional("2000, unless `epochs` is set");
        /// Passes over the training data, instead of `steps`.
        epochs: Option<usize> = None, STEPS, Presence::Optional("determined by `steps`");
        /// Unit of `batch_size`.
        batch_by: BatchBy = BatchBy::Examples, Values::Names(BatchBy::NAMES);
        /// Batch size, in units of `batch_by`.
        batch_size: usize = 32, BATCH;
        /// Gradient accumulation steps.
        gradient_accumulation: usize = 1, count(1, 1 << 20);
        /// Label smoothing.
        label_smoothing: f64 = 0.0, PROBABILITY;
        /// Compute precision (autocast); weights stay in `backend.dtype`.
        precision: Option<Precision> = None, Values::Names(Precision::NAMES),
            Presence::Optional("`backend.dtype`");
        /// Loss scaling, against underflow of gradients.
        loss_scale: Option<LossScale> = None, choice("loss scale", LossScale::KINDS),
            Presence::Optional("`dynamic` with `f16`, else `none`");
        /// Steps between log lines.
        log_every: usize = 50, STEPS;
        /// Steps between checkpoints.
        checkpoint_every: usize = 500, STEPS;
        /// Number of recent checkpoints to keep, besides the best one.
        keep_checkpoints: usize = 3, STEPS;
    }

    /// Keys of a fixed loss scale.
    pub struct FixedScale {
        /// Loss scale.
        scale: f64 = 1024.0, POSITIVE;
    }

    /// Validation during training.
    pub struct Validation {
        /// Steps between validations.
        every: usize = 500, STEPS;
        /// Metric for the best checkpoint; ties are broken by the loss.
        metric: Option<Metric> = None, Values::Names(Metric::NAMES),
            Presence::Optional(METRIC);
        /// Early stopping: validations without improvement.
        patience: Option<usize> = None, STEPS, Presence::Optional("no early stopping");
        /// Number of sample predictions to log.
        samples: usize = 3, count(0, 1000);
        /// Maximum number of validation examples.
        max_examples: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// BLEU tokenizer, by its sacreBLEU name.
        bleu_tokenizer: Option<BleuTokenizer> = None, Values::Names(BleuTokenizer::NAMES),
            Presence::Optional(BLEU_TOKENIZER);
    }
}

names! {
    /// Unit of the batch size.
    pub enum BatchBy: "batch unit" {
        /// Number of examples.
        Examples = "examples",
        /// Number of tokens, including padding.
        Tokens = "tokens",
    }

    /// A sacreBLEU tokenizer.
    pub enum BleuTokenizer: "BLEU tokenizer" = V13a {
        /// `mteval-v13a` of WMT: separates punctuation, keeps numbers whole.
        V13a = "13a",
        /// No tokenization: words are separated by spaces.
        None = "none",
        /// Characters.
        Char = "char",
        /// Chinese characters, and `13a` for the rest.
        Zh = "zh",
    }

    /// Validation metric.
    pub enum Metric: "metric" {
        /// Cross-entropy loss; lower is better.
        Loss = "loss",
        /// Perplexity, exp(loss); lower is better.
        Perplexity = "perplexity",
        /// Exact match rate of generated texts.
        Exact = "exact",
        /// BLEU of generated texts.
        Bleu = "bleu",
        /// chrF of generated texts.
        Chrf = "chrf",
        /// Classification accuracy.
        Accuracy = "accuracy",
        /// Macro-averaged F1.
        MacroF1 = "macro-f1",
    }
}

kinds! {
    /// Loss scaling.
    pub enum LossScale {
        /// No loss scaling.
        None = "none",
        /// Dynamic loss scaling: as large as possible without overflow.
        Dynamic = "dynamic",
        /// Fixed loss scale.
        Fixed(FixedScale) = "fixed",
    }
}

const BLEU_TOKENIZER: &str =
    "`none` for text split at spaces, `zh` for Chinese targets, else `13a`";

const METRIC: &str = "`exact` for synthetic sequence-to-sequence data, `bleu` for translation, \
                      `accuracy` for classification, `loss` for plain text";

impl Metric {
    /// Whether it is defined for this task.
    pub fn applies_to(self, task: Task) -> bool {
        match self {
            Self::Loss => true,
            Self::Perplexity => task != Task::Classification,
            Self::Exact | Self::Bleu | Self::Chrf => task == Task::SequenceToSequence,
            Self::Accuracy | Self::MacroF1 => task == Task::Classification,
        }
    }

    /// Whether lower is better.
    pub fn lower_is_better(self) -> bool {
        matches!(self, Self::Loss | Self::Perplexity)
    }
}
