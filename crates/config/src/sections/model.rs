//! `[model]`: what learns.

use zoo_spec::{MECHANISMS, Mechanism, MechanismConfig};

use crate::keys::{
    Choice, HEADS, LAYERS, LENGTH, POSITIVE, Presence, SHARE, Values, WIDTH, count, keys, kinds,
    words,
};

kinds! {
    /// What learns.
    pub enum Model {
        /// For pairs of texts: Vaswani et al.,
        /// [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.
        Transformer(TransformerModel) = "transformer",
        /// For pairs of texts, recurrent: Bahdanau et al., [2014](https://arxiv.org/abs/1409.0473);
        /// Luong et al., [2015](https://arxiv.org/abs/1508.04025).
        Seq2Seq(Seq2SeqModel) = "seq2seq",
        /// For classes of documents, by their sentences: Yang et al.,
        /// [Hierarchical Attention Networks](https://aclanthology.org/N16-1174), 2016.
        Han(HanModel) = "han",
        /// For plain text: a Transformer's decoder alone.
        Gpt(GptModel) = "gpt",
        /// For classes of texts: a Transformer's encoder alone.
        Classifier(ClassifierModel) = "classifier",
    }
}

const ATTENTION: Values = Values::Choice(&MECHANISMS);

keys! {
    /// Keys of a Transformer.
    pub struct TransformerModel {
        /// Numbers of each place.
        d_model: usize = 128, WIDTH;
        /// Query heads.
        heads: usize = 4, HEADS;
        /// Key and value heads of every attention.
        kv_heads: Option<usize> = None, HEADS, Presence::Optional(KV_HEADS);
        /// Layers of encoder and decoder.
        layers: usize = 2, LAYERS;
        /// Layers of the encoder, if not as many.
        encoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Layers of the decoder, if not as many.
        decoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Numbers between the matrices of a feed-forward network.
        d_feed_forward: Option<usize> = None, count(1, 1 << 22), Presence::Optional(FEED_FORWARD);
        /// How the source attends to itself.
        encoder_attention: MechanismConfig = MechanismConfig::from(Mechanism::Flash), ATTENTION;
        /// How the target attends to itself.
        decoder_attention: MechanismConfig = MechanismConfig::from(Mechanism::Flash), ATTENTION;
        /// How the target attends to the source.
        cross_attention: MechanismConfig = MechanismConfig::from(Mechanism::Flash), ATTENTION;
        /// Where layers normalise.
        norm: Norm = Norm::Pre, Values::Words(Norm::WORDS);
        /// Whether there is a norm after the last layers.
        final_norm: bool = true, Values::Flag;
        /// What feed-forward networks do between their matrices.
        activation: Activation = Activation::Relu, Values::Words(Activation::WORDS);
        /// How it learns where tokens are.
        positions: Positions = Positions::Sinusoidal, POSITIONS;
        /// What is shared among embeddings and head.
        tying: Tying = Tying::Decoder, Values::Words(Tying::WORDS);
        /// Whether embedded tokens are multiplied by `sqrt(d_model)`.
        scale_embeddings: bool = true, Values::Flag;
        /// The share of numbers forgotten while training.
        dropout: f64 = 0.1, SHARE;
        /// The share forgotten between the matrices of feed-forward networks.
        feed_forward_dropout: Option<f64> = None, SHARE, Presence::Optional(DROPOUT);
        /// The share of attention's weights forgotten while training.
        attention_dropout: f64 = 0.0, SHARE;
        /// Whether matrices and norms have a bias.
        bias: bool = true, Values::Flag;
        /// What norms add to a variance.
        epsilon: f64 = 1e-5, POSITIVE;
    }
}

keys! {
    /// Keys of a recurrent sequence-to-sequence model.
    pub struct Seq2SeqModel {
        /// Numbers of an embedded token.
        d_embedding: usize = 128, WIDTH;
        /// Numbers of a state of the decoder; the encoder has half of them for each direction.
        d_hidden: usize = 256, count(2, 1 << 20);
        /// Layers of encoder and decoder.
        layers: usize = 1, LAYERS;
        /// Layers of the encoder, if not as many.
        encoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// Layers of the decoder, if not as many.
        decoder_layers: Option<usize> = None, LAYERS, Presence::Optional("as many as `layers`");
        /// How the decoder looks at the source.
        attention: Alignment = Alignment::Additive, ALIGNMENT;
        /// What of it goes into the decoder's state.
        feeding: Feeding = Feeding::Input, Values::Words(Feeding::WORDS);
        /// What is shared among embeddings and head; anything but `none` needs `d_embedding = d_hidden`.
        tying: Tying = Tying::None, Values::Words(Tying::WORDS);
        /// The share of numbers forgotten while training.
        dropout: f64 = 0.2, SHARE;
    }
}

keys! {
    /// Keys of a hierarchical attention network.
    pub struct HanModel {
        /// Numbers of a word.
        d_embedding: usize = 200, WIDTH;
        /// Numbers of the word encoder's state, in each direction.
        d_word: usize = 50, WIDTH;
        /// Numbers of the sentence encoder's state, in each direction.
        d_sentence: usize = 50, WIDTH;
        /// Numbers that words, and sentences, are compared by.
        d_attention: usize = 100, WIDTH;
        /// What encoders are made of.
        cell: Cell = Cell::Gru, Values::Words(Cell::WORDS);
        /// The share of numbers forgotten while training.
        dropout: f64 = 0.1, SHARE;
    }
}

keys! {
    /// Keys of a GPT.
    pub struct GptModel {
        /// Tokens that are seen at once in training.
        context: usize = 128, LENGTH;
        /// Numbers of each place.
        d_model: usize = 128, WIDTH;
        /// Query heads.
        heads: usize = 4, HEADS;
        /// Key and value heads.
        kv_heads: Option<usize> = None, HEADS, Presence::Optional(KV_HEADS);
        /// Layers.
        layers: usize = 4, LAYERS;
        /// Numbers between the matrices of a feed-forward network.
        d_feed_forward: Option<usize> = None, count(1, 1 << 22), Presence::Optional(FEED_FORWARD);
        /// How the text attends to itself.
        attention: MechanismConfig = MechanismConfig::from(Mechanism::Flash), ATTENTION;
        /// How it learns where tokens are.
        positions: Positions = Positions::Learned(LearnedPositions { longest: None }), POSITIONS;
        /// What feed-forward networks do between their matrices.
        activation: Activation = Activation::GeluTanh, Values::Words(Activation::WORDS);
        /// Whether tokens are predicted by the vectors they are embedded with.
        tied: bool = true, Values::Flag;
        /// The share of numbers forgotten while training.
        dropout: f64 = 0.0, SHARE;
        /// The share forgotten between the matrices of feed-forward networks.
        feed_forward_dropout: Option<f64> = None, SHARE, Presence::Optional(DROPOUT);
        /// The share of attention's weights forgotten while training.
        attention_dropout: f64 = 0.0, SHARE;
        /// Whether matrices and norms have a bias.
        bias: bool = true, Values::Flag;
        /// What norms add to a variance.
        epsilon: f64 = 1e-5, POSITIVE;
    }
}

keys! {
    /// Keys of a classifier.
    pub struct ClassifierModel {
        /// Numbers of each place.
        d_model: usize = 128, WIDTH;
        /// Query heads.
        heads: usize = 4, HEADS;
        /// Key and value heads.
        kv_heads: Option<usize> = None, HEADS, Presence::Optional(KV_HEADS);
        /// Layers.
        layers: usize = 2, LAYERS;
        /// Numbers between the matrices of a feed-forward network.
        d_feed_forward: Option<usize> = None, count(1, 1 << 22), Presence::Optional(FEED_FORWARD);
        /// How the text attends to itself.
        attention: MechanismConfig = MechanismConfig::from(Mechanism::Flash), ATTENTION;
        /// How a sequence becomes one vector.
        pooling: Pooling = Pooling::Mean, Values::Words(Pooling::WORDS);
        /// Where layers normalise.
        norm: Norm = Norm::Pre, Values::Words(Norm::WORDS);
        /// Whether there is a norm after the last layer.
        final_norm: bool = true, Values::Flag;
        /// What feed-forward networks do between their matrices.
        activation: Activation = Activation::Gelu, Values::Words(Activation::WORDS);
        /// How it learns where tokens are.
        positions: Positions = Positions::Sinusoidal, POSITIONS;
        /// Whether embedded tokens are multiplied by `sqrt(d_model)`.
        scale_embeddings: bool = true, Values::Flag;
        /// The share of numbers forgotten while training.
        dropout: f64 = 0.1, SHARE;
        /// The share forgotten between the matrices of feed-forward networks.
        feed_forward_dropout: Option<f64> = None, SHARE, Presence::Optional(DROPOUT);
        /// The share of attention's weights forgotten while training.
        attention_dropout: f64 = 0.0, SHARE;
        /// Whether matrices and norms have a bias.
        bias: bool = true, Values::Flag;
        /// What norms add to a variance.
        epsilon: f64 = 1e-5, POSITIVE;
    }
}

const KV_HEADS: &str = "as the mechanism says, else one for each query head";
const DROPOUT: &str = "as `dropout`";
const FEED_FORWARD: &str = "`4 · d_model`";

words! {
    /// Where a layer normalises.
    pub enum Norm {
        /// What goes into each part of a layer.
        Pre = "pre",
        /// What comes out, with what went in added.
        Post = "post",
    }
}

words! {
    /// What a feed-forward network does between its matrices.
    pub enum Activation {
        /// `max(x, 0)`.
        Relu = "relu",
        /// `x · Φ(x)`.
        Gelu = "gelu",
        /// The same by a tanh, as GPT-2 has it.
        GeluTanh = "gelu-tanh",
        /// `swish(x W) · (x V)`, by a second matrix.
        Swiglu = "swiglu",
    }
}

words! {
    /// Which vectors are one and the same.
    pub enum Tying {
        /// None.
        None = "none",
        /// Those that the target is embedded and predicted with.
        Decoder = "decoder",
        /// Those of the source, too: for one vocabulary.
        All = "all",
    }
}

words! {
    /// How a sequence becomes one vector.
    pub enum Pooling {
        /// A learned vector is put before the tokens, and what becomes of it is taken.
        Cls = "cls",
        /// The mean of all places.
        Mean = "mean",
        /// The mean by weights that are learned.
        Attention = "attention",
    }
}

words! {
    /// What a recurrent layer is made of.
    pub enum Cell {
        /// Two gates.
        Gru = "gru",
        /// Three gates and a memory.
        Lstm = "lstm",
    }
}

words! {
    /// What of attention goes into a recurrent decoder's state.
    pub enum Feeding {
        /// Nothing: all states are computed at once.
        None = "none",
        /// What the last place came to: Luong's.
        Input = "input",
        /// What the last state sees of the source: Bahdanau's.
        Context = "context",
    }
}

const ALIGNMENT: Values = Values::Choice(&Choice {
    name: "alignment",
    variants: Alignment::KINDS,
});

kinds! {
    /// How a recurrent decoder looks at the source.
    pub enum Alignment {
        /// By a small network: `v · tanh(W₁ h + W₂ s)`.
        Additive = "additive" | "concat",
        /// By the product: `h · s`.
        Dot = "dot",
        /// By a product through a matrix: `h · W s`.
        General = "general" | "multiplicative",
        /// The same, at the source's places around the number of the target's.
        LocalM(Window) = "local-m",
        /// The same, around a place that is predicted; the nearer the more.
        LocalP(Window) = "local-p",
    }
}

keys! {
    /// How far a decoder looks.
    pub struct Window {
        /// Places on either side.
        window: usize = 10, LENGTH;
    }
}

const POSITIONS: Values = Values::Choice(&Choice {
    name: "positions",
    variants: Positions::KINDS,
});

kinds! {
    /// How a model learns where its tokens are.
    pub enum Positions {
        /// Not at all, but for what a causal mechanism shows.
        None = "none",
        /// Waves of many lengths are added to the tokens.
        Sinusoidal = "sinusoidal",
        /// A vector is learned for each place, and added.
        Learned(LearnedPositions) = "learned",
        /// Queries and keys of self-attention are turned by their place.
        Rotary(RotaryPositions) = "rotary",
        /// Scores of self-attention fall with the distance.
        Alibi = "alibi",
    }
}

keys! {
    /// Keys of learned positions.
    pub struct LearnedPositions {
        /// Places there are; longer sequences are refused.
        longest: Option<usize> = None, LENGTH, Presence::Optional("the `context` of `gpt`, else 1024");
    }
}

keys! {
    /// Keys of rotary positions.
    pub struct RotaryPositions {
        /// How slow the slowest turn is.
        theta: f64 = 10_000.0, POSITIVE;
    }
}
