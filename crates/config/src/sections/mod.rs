//! The sections of a config file, with all keys.

pub(crate) mod data;
mod decoding;
mod optimizer;
mod run;
mod tokenizer;
pub(crate) mod training;

pub use self::data::*;
pub use self::decoding::*;
pub use self::optimizer::*;
pub use self::run::*;
pub use self::tokenizer::*;
pub use self::training::*;
pub use zoo_spec::{
    Activation, Alignment, Cell, ClassifierSpec, GptSpec, HanSpec, InputFeeding, LayerSpec,
    LearnedPositions, Llama3Scaling, Model, Norm, PairLayout, Pooling, PositionEncoding, Rotary,
    RotaryScaling, ScalingFactor, Seq2SeqSpec, TransformerSpec, Tying, Window, YarnScaling,
};

use crate::keys::{Body, DefaultKind, Section};

/// Every section, in the order in which they are written.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "run",
        about: "Name, seed and output folder of the run.",
        body: Body::Keys(Run::KEYS),
    },
    Section {
        name: "backend",
        about: "Compute backend.",
        body: Body::Keys(Backend::KEYS),
    },
    Section {
        name: "data",
        about: "Dataset: a synthetic task, or files.",
        body: Body::Kinds(Data::KINDS, DefaultKind::Required),
    },
    Section {
        name: "tokenizer",
        about: "Tokenizer.",
        body: Body::Kinds(
            Tokenizer::KINDS,
            DefaultKind::FromData(tokenizer::default_kind),
        ),
    },
    Section {
        name: "model",
        about: "Model.",
        body: Body::Kinds(Model::KINDS, DefaultKind::Required),
    },
    Section {
        name: "optimizer",
        about: "Optimizer.",
        body: Body::Kinds(Optimizer::KINDS, DefaultKind::Named("adamw")),
    },
    Section {
        name: "schedule",
        about: "Learning rate schedule, a factor of `optimizer.learning_rate`.",
        body: Body::Kinds(Schedule::KINDS, DefaultKind::Named("constant")),
    },
    Section {
        name: "training",
        about: "Duration, batches, precision, logging and checkpoints.",
        body: Body::Keys(Training::KEYS),
    },
    Section {
        name: "validation",
        about: "Validation during training.",
        body: Body::Keys(Validation::KEYS),
    },
    Section {
        name: "decoding",
        about: "Text generation, for models that generate text.",
        body: Body::Keys(Decoding::KEYS),
    },
];
