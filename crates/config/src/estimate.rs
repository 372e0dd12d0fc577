//! The memory that a run needs, counted from its sizes before anything is created.
//!
//! All counts are lower bounds: biases, norms, temporary tensors and copies in another precision
//! are left out. A run that does not fit by this count does not fit at all; one that fits may
//! still be too large.

use std::fmt;

use zoo_spec::{Dtype, MechanismConfig};

use crate::{
    Activation, BatchBy, Config, ConfigError, Data, LayerSpec, Model, Optimizer, PositionEncoding,
    Tying,
};

/// Examples that a batch is made of at most: `zoo-data` sorts so many by length together.
const POOL: u128 = 8192;

/// Bytes that an example takes beside its tokens: its texts, and what tells it from others.
const BYTES_OF_EXAMPLE: u128 = 200;

/// What is known of the data once it has been read; zeros before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSizes {
    /// Tokens of the vocabulary, or of that of the source.
    pub vocabulary: usize,
    /// Tokens of the target's vocabulary, if it has one of its own.
    pub target_vocabulary: Option<usize>,
    /// Examples to learn from.
    pub examples: usize,
    /// Tokens of the shortest of them.
    pub shortest: usize,
}

/// The least memory that training takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Numbers that are learned.
    pub parameters: u128,
    /// Their bytes.
    pub weights: u128,
    /// Bytes of their gradients and of the optimizer's state.
    pub learning: u128,
    /// Bytes of the activations that a batch's backward pass needs.
    pub batch: u128,
    /// Bytes of the examples, where they are generated.
    pub data: u128,
}

impl Estimate {
    /// All bytes of training.
    pub fn total(&self) -> u128 {
        self.weights + self.learning + self.batch + self.data
    }
}

impl Config {
    /// Counts what training takes at least.
    pub fn estimate(&self, sizes: DataSizes) -> Estimate {
        let bytes = match self.backend.dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        };
        let moments = match &self.optimizer {
            Optimizer::Adam(_) | Optimizer::AdamW(_) => 2,
            Optimizer::Sgd(sgd) => u128::from(sgd.momentum > 0.0),
        };
        let size = SizeOf(&self.model);
        let parameters = size.parameters(sizes);
        let weights = parameters * bytes;
        // Half precision is the least that a pass computes in.
        let numbers_of_batch = self.batch_tokens(sizes) * size.activations();
        Estimate {
            parameters,
            weights,
            learning: weights * (1 + moments),
            batch: numbers_of_batch * 2,
            data: self.data.generated_bytes(),
        }
    }

    /// Whether this much memory can be enough.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Memory`] with the estimate and the keys to lower.
    pub fn check_memory(&self, sizes: DataSizes, memory: u64) -> Result<(), ConfigError> {
        let estimate = self.estimate(sizes);
        match estimate.total() <= u128::from(memory) {
            true => Ok(()),
            false => Err(self.too_large("training", estimate, memory)),
        }
    }

    /// The same for a model that is used and not trained.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Memory`] likewise.
    pub fn check_weights(&self, sizes: DataSizes, memory: u64) -> Result<(), ConfigError> {
        let estimate = Estimate {
            learning: 0,
            batch: 0,
            data: 0,
            ..self.estimate(sizes)
        };
        match estimate.total() <= u128::from(memory) {
            true => Ok(()),
            false => Err(self.too_large("the model", estimate, memory)),
        }
    }

    fn too_large(&self, what: &'static str, estimate: Estimate, memory: u64) -> ConfigError {
        let parts = [
            (
                estimate.weights + estimate.learning,
                SizeOf(&self.model).keys(),
            ),
            (estimate.batch, self.batch_keys()),
            (estimate.data, self.data.size_keys()),
        ];
        let largest = parts.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        // Those that are too large by themselves, or the largest of several that are so together.
        let is_to_blame = |bytes: u128| bytes > u128::from(memory) || bytes == largest;
        let to_blame = parts.iter().filter(|(bytes, _)| is_to_blame(*bytes));
        ConfigError::Memory {
            what,
            estimate: Box::new(estimate),
            memory,
            keys: to_blame
                .flat_map(|(_, keys)| keys.iter().copied())
                .collect(),
        }
    }

    /// Tokens of a batch, at least.
    fn batch_tokens(&self, sizes: DataSizes) -> u128 {
        let size = self.training.batch_size as u128;
        let by_tokens = self.training.batch_by == BatchBy::Tokens;
        if let Model::Gpt(model) = &self.model {
            let context = model.context as u128;
            let rows = if by_tokens { size / context } else { size };
            return rows.max(1) * context;
        }
        let (examples, shortest) = match self.data.generated() {
            Some((examples, shortest)) => (examples as u128, shortest as u128),
            None => (sizes.examples as u128, sizes.shortest as u128),
        };
        match by_tokens {
            // A batch is closed before it is full.
            true => size.min(examples.min(POOL) * shortest) / 2,
            false => size.min(examples).min(POOL) * shortest,
        }
    }

    fn batch_keys(&self) -> &'static [&'static str] {
        match &self.model {
            Model::Gpt(_) => &["training.batch_size", "model.context"],
            _ => &["training.batch_size"],
        }
    }
}

impl Data {
    /// How many examples are generated, and the least tokens of one; nothing for files.
    fn generated(&self) -> Option<(usize, usize)> {
        Some(match self {
            Self::Copy(data) | Self::Reverse(data) | Self::Sort(data) => {
                (data.train_size, data.min_length)
            }
            Self::Dates(data) => (data.train_size, 8),
            Self::Recall(data) => (data.train_size, data.min_keys),
            Self::ListOps(data) => (data.train_size, data.min_length),
            Self::Documents(data) => (
                data.train_size,
                data.min_sentences.saturating_mul(data.min_words),
            ),
            Self::Phrases(_) | Self::Parallel(_) | Self::Labelled(_) | Self::Plain(_) => {
                return None;
            }
        })
    }

    /// Their bytes: a letter and a blank, and a number for each token.
    fn generated_bytes(&self) -> u128 {
        let (examples, shortest) = self.generated().unwrap_or_default();
        examples as u128 * (BYTES_OF_EXAMPLE + 6 * shortest as u128)
    }

    fn size_keys(&self) -> &'static [&'static str] {
        match self {
            Self::Copy(_) | Self::Reverse(_) | Self::Sort(_) | Self::ListOps(_) => {
                &["data.train_size", "data.min_length"]
            }
            Self::Documents(_) => &["data.train_size", "data.min_sentences", "data.min_words"],
            _ => &["data.train_size"],
        }
    }
}

/// The numbers of a model.
struct SizeOf<'a>(&'a Model);

/// The sizes of attention and feed-forward layers.
struct Layers(LayerSpec);

impl Layers {
    fn d_model(&self) -> u128 {
        self.0.d_model as u128
    }

    fn feed_forward(&self) -> u128 {
        let matrices = match self.0.activation {
            Activation::Swiglu => 3,
            Activation::Relu | Activation::Gelu | Activation::GeluTanh => 2,
        };
        matrices * self.d_model() * self.0.d_feed_forward as u128
    }

    /// Projections of queries and results, of keys and of values.
    fn attention(&self, mechanism: &MechanismConfig) -> u128 {
        let LayerSpec { d_model, heads, .. } = self.0;
        let kv_heads = mechanism.kv_heads(heads).or(self.0.kv_heads);
        let d_head = self.0.d_head.unwrap_or(d_model / heads.max(1));
        let all_heads = 2 * heads + 2 * kv_heads.unwrap_or(heads);
        self.d_model() * all_heads as u128 * d_head as u128
    }

    /// What the backward pass of a layer needs of a token.
    fn activations(&self) -> u128 {
        2 * self.d_model() + self.0.d_feed_forward as u128
    }
}

impl SizeOf<'_> {
    fn parameters(&self, sizes: DataSizes) -> u128 {
        let source = sizes.vocabulary as u128;
        let target = sizes.target_vocabulary.unwrap_or(sizes.vocabulary) as u128;
        match self.0 {
            Model::Transformer(model) => {
                let layers = Layers(model.into());
                let [encoders, decoders] = model
                    .encoder_and_decoder_layers()
                    .map(|count| count as u128);
                let encoder = layers.attention(&model.encoder_attention) + layers.feed_forward();
                let decoder = layers.attention(&model.decoder_attention)
                    + layers.attention(&model.cross_attention)
                    + layers.feed_forward();
                let tokens = match model.tying {
                    Tying::None => source + 2 * target,
                    Tying::Decoder => source + target,
                    Tying::All => source,
                };
                let positions = 2 * learned(&model.positions);
                encoders * encoder + decoders * decoder + (tokens + positions) * layers.d_model()
            }
            Model::Gpt(model) => {
                let layers = Layers(model.into());
                let layer = layers.attention(&model.attention) + layers.feed_forward();
                let tokens = source * if model.tied { 1 } else { 2 };
                model.layers as u128 * layer
                    + (tokens + learned(&model.positions)) * layers.d_model()
            }
            Model::Classifier(model) => {
                let layers = Layers(model.into());
                let layer = layers.attention(&model.attention) + layers.feed_forward();
                model.layers as u128 * layer
                    + (source + learned(&model.positions)) * layers.d_model()
            }
            Model::Seq2Seq(model) => {
                let [encoders, decoders] = model
                    .encoder_and_decoder_layers()
                    .map(|count| count as u128);
                let (embedding, hidden) = (model.d_embedding as u128, model.d_hidden as u128);
                let tokens = match model.tying {
                    Tying::None => (source + target) * embedding + target * hidden,
                    Tying::Decoder => (source + target) * embedding,
                    Tying::All => source * embedding,
                };
                // Three gates by what comes in and by the last state; half of it each direction.
                let encoder = 3 * hidden * (hidden / 2);
                tokens + encoders * encoder + decoders * 3 * hidden * hidden
            }
            Model::Han(model) => {
                let [embedding, word, sentence, attention] = [
                    model.d_embedding,
                    model.d_word,
                    model.d_sentence,
                    model.d_attention,
                ]
                .map(|size| size as u128);
                let gates = model.cell.gates() as u128;
                let words = 2 * gates * word * (embedding + word);
                let sentences = 2 * gates * sentence * (2 * word + sentence);
                source * embedding + words + sentences + 2 * attention * (word + sentence)
            }
        }
    }

    /// What the backward pass needs of a token, in all layers.
    fn activations(&self) -> u128 {
        let layers = |count: usize, spec: LayerSpec| count as u128 * Layers(spec).activations();
        match self.0 {
            Model::Transformer(model) => {
                // A token is of the source or of the target, whichever has fewer layers.
                let [encoders, decoders] = model.encoder_and_decoder_layers();
                layers(encoders.min(decoders), model.into())
            }
            Model::Gpt(model) => layers(model.layers, model.into()),
            Model::Classifier(model) => layers(model.layers, model.into()),
            Model::Seq2Seq(model) => (model.d_embedding + model.d_hidden) as u128,
            Model::Han(model) => (model.d_embedding + 2 * model.d_word) as u128,
        }
    }

    fn keys(&self) -> &'static [&'static str] {
        match self.0 {
            Model::Transformer(_) | Model::Gpt(_) | Model::Classifier(_) => &[
                "model.d_model",
                "model.layers",
                "model.d_feed_forward",
                "tokenizer.size",
            ],
            Model::Seq2Seq(_) => &[
                "model.d_hidden",
                "model.d_embedding",
                "model.layers",
                "tokenizer.size",
            ],
            Model::Han(_) => &[
                "model.d_embedding",
                "model.d_word",
                "model.d_sentence",
                "tokenizer.size",
            ],
        }
    }
}

/// PositionEncoding that have a vector of their own.
fn learned(positions: &PositionEncoding) -> u128 {
    positions.longest().unwrap_or(0) as u128
}

/// Bytes as people write them.
pub(crate) struct Bytes(pub(crate) u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"];
        let mut number = self.0 as f64 / 1024.0 / 1024.0;
        let mut units = UNITS.iter();
        let mut unit = units.next().copied().unwrap_or_default();
        while number >= 1024.0
            && let Some(next) = units.next()
        {
            number /= 1024.0;
            unit = *next;
        }
        write!(f, "{number:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse("a.toml", text, &[]).expect(text)
    }

    const GPT: &str = "[data]\nkind = \"plain\"\ntrain = \"a.txt\"\n[model]\nkind = \"gpt\"\n";

    #[test]
    fn parameters_and_bytes_are_those_of_the_formulas() {
        let text = format!(
            "{GPT}d_model = 64\nheads = 4\nlayers = 3\ncontext = 32\n[training]\nbatch_size = 10\n"
        );
        let sizes = DataSizes {
            vocabulary: 100,
            ..DataSizes::default()
        };
        let estimate = config(&text).estimate(sizes);
        // Four projections, two matrices of 64 x 256, tokens and positions.
        let parameters = 3 * (4 * 64 * 64 + 2 * 64 * 256) + (100 + 32) * 64;
        assert_eq!(estimate.parameters, parameters);
        assert_eq!(estimate.weights, 4 * parameters);
        assert_eq!(estimate.learning, 3 * 4 * parameters);
        assert_eq!(estimate.batch, 10 * 32 * 3 * (2 * 64 + 256) * 2);
        assert_eq!(estimate.data, 0);
    }

    #[test]
    fn too_little_memory_is_told_with_the_keys_to_lower() {
        let large = config(&format!(
            "{GPT}d_model = 1048576\nlayers = 4096\ncontext = 1\n[training]\nbatch_size = 1\n"
        ));
        let said = large.check_memory(DataSizes::default(), 1 << 40);
        let said = said.expect_err("petabytes").to_string();
        assert!(
            said.starts_with("training takes at least 768.0 PiB of memory, and there is 1.0 TiB: "),
            "{said}"
        );
        assert!(
            said.contains("\n  do: lower model.d_model, model.layers, "),
            "{said}"
        );
        assert!(!said.contains("batch_size"), "{said}");
        let said = large.check_weights(DataSizes::default(), 1 << 40);
        assert!(said.is_err_and(|error| error.to_string().starts_with("the model takes")));

        let batch = config(&format!("{GPT}[training]\nbatch_size = 1073741824\n"));
        let said = batch.check_memory(DataSizes::default(), 16 << 30);
        let said = said.expect_err("a batch of terabytes").to_string();
        assert!(
            said.contains("lower training.batch_size, model.context,"),
            "{said}"
        );

        let data =
            "[data]\nkind = \"reverse\"\ntrain_size = 1000000000\n[model]\nkind = \"seq2seq\"\n";
        let said = config(data).check_memory(DataSizes::default(), 16 << 30);
        let said = said.expect_err("a billion examples").to_string();
        assert!(
            said.contains("lower data.train_size, data.min_length,"),
            "{said}"
        );
    }

    #[test]
    fn every_shipped_size_fits() {
        for kind in crate::TEMPLATES {
            let text = crate::template(kind).expect("a template");
            let said = config(&text).check_memory(DataSizes::default(), 1 << 30);
            assert!(said.is_ok(), "{kind}: {said:?}");
        }
    }
}
