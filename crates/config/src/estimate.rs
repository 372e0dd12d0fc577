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
pub(crate) struct Estimate {
    /// Numbers that are learned.
    parameters: u128,
    /// Their bytes.
    weights: u128,
    /// Bytes of their gradients and of the optimizer's state.
    learning: u128,
    /// Bytes of the activations that a batch's backward pass needs.
    batch: u128,
    /// Bytes of the examples, where they are generated.
    data: u128,
}

impl Estimate {
    pub(crate) fn total(&self) -> u128 {
        self.weights + self.learning + self.batch + self.data
    }
}

impl Config {
    /// Counts what training takes at least.
    pub(crate) fn estimate(&self, sizes: DataSizes) -> Estimate {
        let bytes = match self.backend.dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        };
        let moments = match &self.optimizer {
            Optimizer::Adam(_) | Optimizer::AdamW(_) => 2,
            Optimizer::Sgd(sgd) => u128::from(sgd.momentum > 0.0),
        };
        let parameters = parameters(&self.model, sizes);
        let weights = parameters * bytes;
        let (examples, shortest, _) = self.data.generated().unwrap_or_default();
        Estimate {
            parameters,
            weights,
            learning: weights * (1 + moments),
            // Half precision is the least that a pass computes in.
            batch: self.batch_tokens(sizes) * activations(&self.model) * 2,
            // A letter and a blank, and a number for each token.
            data: examples as u128 * (BYTES_OF_EXAMPLE + 6 * shortest as u128),
        }
    }

    /// Whether this much memory can be enough.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Memory`] with the estimate and the keys to lower.
    pub fn check_memory(&self, sizes: DataSizes, memory: u64) -> Result<(), ConfigError> {
        self.check_estimate("training", &self.estimate(sizes), memory)
    }

    /// The same for a model that is used and not trained.
    pub fn check_weights(&self, sizes: DataSizes, memory: u64) -> Result<(), ConfigError> {
        let estimate = Estimate {
            learning: 0,
            batch: 0,
            data: 0,
            ..self.estimate(sizes)
        };
        self.check_estimate("the model", &estimate, memory)
    }

    fn check_estimate(
        &self,
        what: &str,
        estimate: &Estimate,
        memory: u64,
    ) -> Result<(), ConfigError> {
        let memory = u128::from(memory);
        if estimate.total() <= memory {
            return Ok(());
        }
        let learned = estimate.weights + estimate.learning;
        let (_, _, data_keys) = self.data.generated().unwrap_or_default();
        let parts = [
            (learned, size_keys(&self.model)),
            (estimate.batch, self.batch_keys()),
            (estimate.data, data_keys),
        ];
        let largest = parts.iter().map(|(bytes, _)| *bytes).max();
        // Those that are too large by themselves, or the largest of several that are so together.
        let is_to_blame = |bytes: u128| bytes > memory || Some(bytes) == largest;
        let to_blame = parts.iter().filter(|(bytes, _)| is_to_blame(*bytes));
        let keys: Vec<&str> = to_blame.flat_map(|(_, keys)| *keys).copied().collect();
        let others = [
            ("gradients and the optimizer", estimate.learning),
            ("a batch", estimate.batch),
            ("the data", estimate.data),
        ];
        let others = others.iter().filter(|(_, bytes)| *bytes > 0);
        let others: String = others
            .map(|(what, bytes)| format!(", {what} {}", Bytes(*bytes)))
            .collect();
        Err(ConfigError::Memory(format!(
            "{what} takes at least {} of memory, and there is {}: {} parameters take {}{others}\n  \
             do: lower {}, or take a machine with more memory",
            Bytes(estimate.total()),
            Bytes(memory),
            estimate.parameters,
            Bytes(estimate.weights),
            keys.join(", ")
        )))
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
            Some((examples, shortest, _)) => (examples as u128, shortest as u128),
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
    /// How many examples are generated, the least tokens of one, and the keys that say so; nothing
    /// for files.
    pub(crate) fn generated(&self) -> Option<(usize, usize, &'static [&'static str])> {
        const LENGTH: &[&str] = &["data.train_size", "data.min_length"];
        const SIZE: &[&str] = &["data.train_size"];
        Some(match self {
            Self::Copy(data) | Self::Reverse(data) | Self::Sort(data) => {
                (data.train_size, data.min_length, LENGTH)
            }
            Self::Dates(data) => (data.train_size, 8, SIZE),
            Self::Recall(data) => (data.train_size, data.min_keys, SIZE),
            Self::ListOps(data) => (data.train_size, data.min_length, LENGTH),
            Self::Documents(data) => (
                data.train_size,
                data.min_sentences.saturating_mul(data.min_words),
                &["data.train_size", "data.min_sentences", "data.min_words"],
            ),
            Self::Phrases(_) | Self::Parallel(_) | Self::Labelled(_) | Self::Plain(_) => {
                return None;
            }
        })
    }
}

fn feed_forward(layers: &LayerSpec) -> u128 {
    let matrices = match layers.activation {
        Activation::Swiglu => 3,
        Activation::Relu | Activation::Gelu | Activation::GeluTanh => 2,
    };
    matrices * layers.d_model as u128 * layers.d_feed_forward as u128
}

/// Projections of queries and results, of keys and of values.
fn attention(layers: &LayerSpec, mechanism: &MechanismConfig) -> u128 {
    let LayerSpec { d_model, heads, .. } = *layers;
    let kv_heads = mechanism.kv_heads(heads).or(layers.kv_heads);
    let d_head = layers.d_head.unwrap_or(d_model / heads.max(1));
    let all_heads = 2 * heads + 2 * kv_heads.unwrap_or(heads);
    d_model as u128 * all_heads as u128 * d_head as u128
}

fn parameters(model: &Model, sizes: DataSizes) -> u128 {
    let source = sizes.vocabulary as u128;
    let target = sizes.target_vocabulary.unwrap_or(sizes.vocabulary) as u128;
    let both = model.encoder_and_decoder_layers().unwrap_or_default();
    let [encoders, decoders] = both.map(|count| count as u128);
    match model {
        Model::Transformer(model) => {
            let layers = model.into();
            let encoder = attention(&layers, &model.encoder_attention) + feed_forward(&layers);
            let decoder = attention(&layers, &model.decoder_attention)
                + attention(&layers, &model.cross_attention)
                + feed_forward(&layers);
            let tokens = match model.tying {
                Tying::None => source + 2 * target,
                Tying::Decoder => source + target,
                Tying::All => source,
            };
            let vectors = tokens + 2 * learned(&model.positions);
            encoders * encoder + decoders * decoder + vectors * model.d_model as u128
        }
        Model::Gpt(model) => {
            let layers = model.into();
            let layer = attention(&layers, &model.attention) + feed_forward(&layers);
            let tokens = source * if model.tied { 1 } else { 2 };
            let vectors = tokens + learned(&model.positions);
            model.layers as u128 * layer + vectors * model.d_model as u128
        }
        Model::Classifier(model) => {
            let layers = model.into();
            let layer = attention(&layers, &model.attention) + feed_forward(&layers);
            let vectors = source + learned(&model.positions);
            model.layers as u128 * layer + vectors * model.d_model as u128
        }
        Model::Seq2Seq(model) => {
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
fn activations(model: &Model) -> u128 {
    let layers = match model {
        // A token is of the source or of the target, whichever has fewer layers.
        Model::Transformer(model) => model.encoder_and_decoder_layers().into_iter().min(),
        Model::Gpt(model) => Some(model.layers),
        Model::Classifier(model) => Some(model.layers),
        Model::Seq2Seq(model) => return (model.d_embedding + model.d_hidden) as u128,
        Model::Han(model) => return (model.d_embedding + 2 * model.d_word) as u128,
    };
    let of_layer = |spec: LayerSpec| 2 * spec.d_model as u128 + spec.d_feed_forward as u128;
    layers.unwrap_or(0) as u128 * model.layer_spec().map_or(0, of_layer)
}

/// The keys that make a model large.
fn size_keys(model: &Model) -> &'static [&'static str] {
    match model {
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

/// Positions that have a vector of their own.
fn learned(positions: &PositionEncoding) -> u128 {
    positions.longest().unwrap_or(0) as u128
}

/// Bytes as people write them.
struct Bytes(u128);

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
        let large = format!(
            "{GPT}d_model = 1048576\nlayers = 4096\ncontext = 1\n[training]\nbatch_size = 1\n"
        );
        let batch = format!("{GPT}[training]\nbatch_size = 1073741824\n");
        let data =
            "[data]\nkind = \"reverse\"\ntrain_size = 1000000000\n[model]\nkind = \"seq2seq\"\n";
        for (text, memory, start, keys) in [
            (
                large.as_str(),
                1 << 40,
                "training takes at least 768.0 PiB of memory, and there is 1.0 TiB: ",
                "model.d_model, model.layers, model.d_feed_forward, tokenizer.size,",
            ),
            (
                &batch,
                16 << 30,
                "training takes at least ",
                "training.batch_size, model.context,",
            ),
            (
                data,
                16 << 30,
                "training takes at least ",
                "data.train_size, data.min_length,",
            ),
        ] {
            let said = config(text).check_memory(DataSizes::default(), memory);
            let said = said.expect_err(text).to_string();
            assert!(said.starts_with(start), "{said}");
            let help = format!("\n  do: lower {keys} or take a machine");
            assert!(said.contains(&help), "{said}");
        }
        let said = config(&large).check_weights(DataSizes::default(), 1 << 40);
        assert!(said.is_err_and(|error| error.to_string().starts_with("the model takes")));
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
