//! The sections of a file, key by key.

pub(crate) mod data;
mod decoding;
mod learning;
mod run;
mod tokenizer;
pub(crate) mod training;

pub use self::data::*;
pub use self::decoding::*;
pub use self::learning::*;
pub use self::run::*;
pub use self::tokenizer::*;
pub use self::training::*;
pub use zoo_spec::{
    Activation, Alignment, Cell, ClassifierSpec, Feeding, GptSpec, HanSpec, LayerSpec,
    LearnedPositions, Model, Norm, Pooling, PositionEncoding, RotaryPositions, Seq2SeqSpec,
    TransformerSpec, Tying, Window,
};

use crate::keys::{Body, Section, UsualKind};

/// Every section, in the order they are written.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        name: "run",
        about: "What the run is called, and where it is written.",
        body: Body::Keys(Run::KEYS),
    },
    Section {
        name: "backend",
        about: "What computes.",
        body: Body::Keys(Backend::KEYS),
    },
    Section {
        name: "data",
        about: "What is learned from: a task that needs no files, or files.",
        body: Body::Kinds(Data::KINDS, UsualKind::Required),
    },
    Section {
        name: "tokenizer",
        about: "How text becomes tokens.",
        body: Body::Kinds(Tokenizer::KINDS, UsualKind::OfData(tokenizer::usual_kind)),
    },
    Section {
        name: "model",
        about: "What learns.",
        body: Body::Kinds(Model::KINDS, UsualKind::Required),
    },
    Section {
        name: "optimizer",
        about: "How weights follow their gradients.",
        body: Body::Kinds(Optimizer::KINDS, UsualKind::Word("adamw")),
    },
    Section {
        name: "schedule",
        about: "How the learning rate goes; `optimizer.learning_rate` is what it is a share of.",
        body: Body::Kinds(Schedule::KINDS, UsualKind::Word("constant")),
    },
    Section {
        name: "training",
        about: "How long, in which batches, and what is written on the way.",
        body: Body::Keys(Training::KEYS),
    },
    Section {
        name: "validation",
        about: "How it is seen what was learned.",
        body: Body::Keys(Validation::KEYS),
    },
    Section {
        name: "decoding",
        about: "How text is written, by models that write any.",
        body: Body::Keys(Decoding::KEYS),
    },
];
