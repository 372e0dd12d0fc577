//! Components of models that config keys choose among.

use crate::Rotary;
use crate::keys::{LENGTH, Presence};

crate::names! {
    /// Where a layer normalises.
    pub enum Norm: "normalisation" {
        /// Before attention and feed-forward network; needs no warmup: Xiong et al.,
        /// [On Layer Normalization in the Transformer](https://arxiv.org/abs/2002.04745), 2020.
        Pre = "pre",
        /// After the residual addition, as in the original Transformer.
        Post = "post",
    }

    /// The activation of a feed-forward network.
    pub enum Activation: "activation" {
        /// `max(x, 0)`.
        Relu = "relu",
        /// `x · Φ(x)`: Hendrycks and Gimpel, [GELU](https://arxiv.org/abs/1606.08415), 2016.
        Gelu = "gelu",
        /// Its tanh approximation, as in GPT-2.
        GeluTanh = "gelu-tanh",
        /// `swish(x W) · (x V)`, with a second matrix: Shazeer,
        /// [GLU Variants](https://arxiv.org/abs/2002.05202), 2020.
        Swiglu = "swiglu",
    }

    /// Which embeddings share their weights.
    pub enum Tying: "weight tying" {
        /// None.
        None = "none",
        /// The target embedding and the output layer: Press and Wolf,
        /// [Using the Output Embedding](https://arxiv.org/abs/1608.05859), 2016.
        Decoder = "decoder",
        /// These and the source embedding; needs a joint vocabulary.
        All = "all",
    }

    /// How a sequence is pooled into one vector.
    pub enum Pooling: "pooling" {
        /// The final hidden state of a learned token before the sequence. It needs a mechanism with
        /// full attention or global tokens (`longformer`, `bigbird`) to reach distant positions.
        Cls = "cls",
        /// The mean over positions.
        Mean = "mean",
        /// A weighted mean with learned attention.
        Attention = "attention",
        /// The last position.
        Last = "last",
    }

    /// The cell of a recurrent layer.
    pub enum Cell: "recurrent cell" {
        /// Gated recurrent unit: a hidden state.
        Gru = "gru",
        /// Long short-term memory: a hidden state and a cell state.
        Lstm = "lstm",
    }

    /// Input of a recurrent decoder besides the last token.
    pub enum InputFeeding: "input feeding" {
        /// The last token only: all decoder states are computed before attention.
        None = "none",
        /// The previous attentional state (Luong's input feeding).
        Attentional = "attentional",
        /// The previous context vector (Bahdanau).
        Context = "context",
    }
}

crate::kinds! {
    /// How a recurrent decoder attends to the source.
    #[derive(Copy)]
    pub enum Alignment {
        /// `v · tanh(W₁ h + W₂ s)`, with decoder state h and encoder output s.
        Additive = "additive" | "concat",
        /// `h · s`, with decoder state h and encoder output s.
        Dot = "dot",
        /// `h · W s`, with decoder state h and encoder output s.
        General = "general" | "multiplicative",
        /// `general` in a window around source position t at target step t.
        LocalM(Window) = "local-m",
        /// `general` in a window around a predicted source position, with Gaussian weighting.
        LocalP(Window) = "local-p",
    }

    /// How a model encodes positions.
    #[derive(Copy)]
    pub enum PositionEncoding {
        /// No position encoding.
        None = "none",
        /// Sinusoids, added to the token embeddings.
        Sinusoidal = "sinusoidal",
        /// Learned position embeddings, added to the token embeddings.
        Learned(LearnedPositions) = "learned",
        /// Rotary position embedding (RoPE) of queries and keys in self-attention.
        Rotary(Rotary) = "rotary",
        /// ALiBi: a bias on self-attention scores that is linear in the distance.
        Alibi = "alibi",
    }
}

crate::keys! {
    /// Keys of local alignments.
    #[derive(Copy)]
    pub struct Window {
        /// Source positions on either side.
        window: usize = 10, LENGTH;
    }

    /// Keys of learned positions.
    #[derive(Copy)]
    pub struct LearnedPositions {
        /// Number of position embeddings; longer sequences are rejected.
        max_positions: Option<usize> = None, LENGTH, Presence::Optional("the `context` of `gpt`, else 1024");
    }
}

/// Number of learned position embeddings unless the config determines it.
const DEFAULT_MAX_POSITIONS: usize = 1024;

impl PositionEncoding {
    /// Learned position embeddings, by default one for each position of a training sequence.
    pub const LEARNED: Self = Self::Learned(LearnedPositions {
        max_positions: None,
    });

    /// Learned embeddings for this many positions.
    pub const fn learned(max_positions: usize) -> Self {
        Self::Learned(LearnedPositions {
            max_positions: Some(max_positions),
        })
    }

    /// Rotary position embedding with this base; `Rotary` has further options.
    pub const fn rotary(theta: f64) -> Self {
        Self::Rotary(Rotary::new(theta))
    }

    /// The number of positions, if it is limited.
    pub fn max_positions(&self) -> Option<usize> {
        match self {
            Self::Learned(learned) => Some(learned.max_positions.unwrap_or(DEFAULT_MAX_POSITIONS)),
            Self::None | Self::Sinusoidal | Self::Rotary(_) | Self::Alibi => None,
        }
    }

    /// Sets the number of learned positions, if it is not given.
    pub(super) fn resolve(&mut self, context: Option<usize>) {
        if let Self::Learned(learned) = self {
            learned
                .max_positions
                .get_or_insert(context.unwrap_or(DEFAULT_MAX_POSITIONS));
        }
    }
}

impl From<Rotary> for PositionEncoding {
    fn from(rotary: Rotary) -> Self {
        Self::Rotary(rotary)
    }
}

impl Alignment {
    /// `local-m` with this many source positions on either side.
    pub const fn local_m(window: usize) -> Self {
        Self::LocalM(Window { window })
    }

    /// `local-p` with this many source positions on either side.
    pub const fn local_p(window: usize) -> Self {
        Self::LocalP(Window { window })
    }
}

impl Cell {
    /// Number of gates: reset, update and new of a GRU; input, forget, cell and output of an LSTM.
    pub const fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Number of states: hidden, and cell of an LSTM.
    pub const fn states(self) -> usize {
        match self {
            Self::Gru => 1,
            Self::Lstm => 2,
        }
    }
}
