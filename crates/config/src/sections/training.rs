//! `[training]` and `[validation]`.

use zoo_spec::Dtype;

use super::data::Task;
use crate::keys::{
    BATCH, Choice, LIMIT, POSITIVE, Presence, SHARE, STEPS, Values, count, keys, kinds, words,
};

/// What is trained where a file says neither steps nor epochs.
pub(crate) const USUAL_STEPS: usize = 2000;

keys! {
    /// How long, in which batches, and what is written on the way.
    pub struct Training {
        /// Steps of the optimizer.
        steps: Option<usize> = None, STEPS, Presence::Optional("2000, or as `epochs` says");
        /// Times that all examples are seen, instead of `steps`.
        epochs: Option<usize> = None, STEPS, Presence::Optional("as `steps` says");
        /// What a batch is made of, padding counted among the tokens.
        batch_by: BatchBy = BatchBy::Examples, Values::Words(BatchBy::WORDS);
        /// How many of them.
        batch_size: usize = 32, BATCH;
        /// Batches whose gradients are added before a step.
        accumulate: usize = 1, count(1, 1 << 20);
        /// The share of each answer's weight that goes to all others alike.
        label_smoothing: f64 = 0.0, SHARE;
        /// The numbers that a pass computes in; weights stay in those of `backend.dtype`.
        precision: Option<Dtype> = None, Values::Words(Dtype::WORDS),
            Presence::Optional("as `backend.dtype`");
        /// What the loss is multiplied by, so that small gradients are not lost.
        loss_scale: Option<LossScale> = None, LOSS_SCALE, Presence::Optional("`dynamic` with `f16`, else `none`");
        /// Steps between lines of the log.
        log_every: usize = 50, STEPS;
        /// Steps between checkpoints.
        checkpoint_every: usize = 500, STEPS;
        /// Checkpoints that are kept, the last ones, beside the best.
        keep: usize = 3, STEPS;
    }
}

words! {
    /// What a batch is made of.
    pub enum BatchBy: "unit of batches" {
        /// So many examples: sentences, documents.
        Examples = "examples",
        /// As many examples as have so many tokens.
        Tokens = "tokens",
    }
}

const LOSS_SCALE: Values = Values::Choice(&Choice {
    name: "loss scale",
    variants: LossScale::KINDS,
});

kinds! {
    /// What the loss is multiplied by.
    pub enum LossScale {
        /// Nothing.
        None = "none",
        /// What was large enough so far, and small enough not to overflow.
        Dynamic = "dynamic",
        /// Always the same.
        Fixed(FixedScale) = "fixed",
    }
}

keys! {
    /// Keys of a fixed loss scale.
    pub struct FixedScale {
        /// What the loss is multiplied by.
        scale: f64 = 1024.0, POSITIVE;
    }
}

keys! {
    /// How it is seen what was learned.
    pub struct Validation {
        /// Steps between validations.
        every: usize = 500, STEPS;
        /// What the best checkpoint is best in; of two that are as good, it is the one with the lower loss.
        metric: Option<Metric> = None, Values::Words(Metric::WORDS),
            Presence::Optional(METRIC);
        /// Validations without anything better after which training stops.
        patience: Option<usize> = None, STEPS, Presence::Optional("it goes on to the end");
        /// Predictions that are shown in the log.
        samples: usize = 3, count(0, 1000);
        /// Examples that are looked at.
        max_examples: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// How BLEU splits texts into words, by sacreBLEU's name for it.
        bleu_tokenizer: Option<BleuTokenizer> = None, Values::Words(BleuTokenizer::WORDS),
            Presence::Optional(BLEU_TOKENIZER);
    }
}

const BLEU_TOKENIZER: &str = "`none` for text whose words are split at spaces, `zh` for Chinese \
                              targets, else `13a`";

words! {
    /// A tokenizer of sacreBLEU, by its name there and in its signature.
    pub enum BleuTokenizer: "tokenizer of BLEU" = V13a {
        /// That of WMT's `mteval-v13a`: separates punctuation, keeps numbers whole.
        V13a = "13a",
        /// Words are separated by spaces already.
        None = "none",
        /// Every character is a word.
        Char = "char",
        /// Every Chinese character is a word; the rest is split as by `13a`.
        Zh = "zh",
    }
}

const METRIC: &str = "`exact` for pairs that are made up, `bleu` for translations, `accuracy` for \
                      classes, `loss` for plain text";

words! {
    /// What a model is judged by.
    pub enum Metric: "metric" {
        /// The loss itself; less is better.
        Loss = "loss",
        /// What the loss is a logarithm of; less is better.
        Perplexity = "perplexity",
        /// The share of texts that are right in every token.
        Exact = "exact",
        /// BLEU, of texts as they are written.
        Bleu = "bleu",
        /// chrF, of texts as they are written.
        Chrf = "chrf",
        /// The share of classes that are right.
        Accuracy = "accuracy",
        /// The mean of the classes' F1.
        MacroF1 = "macro-f1",
    }
}

impl Metric {
    /// Whether there is such a thing for this task.
    pub fn fits(self, task: Task) -> bool {
        match self {
            Self::Loss => true,
            Self::Perplexity => task != Task::Classes,
            Self::Exact | Self::Bleu | Self::Chrf => task == Task::Pairs,
            Self::Accuracy | Self::MacroF1 => task == Task::Classes,
        }
    }

    /// Whether less of it is better.
    pub fn less_is_better(self) -> bool {
        matches!(self, Self::Loss | Self::Perplexity)
    }
}
