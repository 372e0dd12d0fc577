//! A lower bound on the memory of a run, estimated before anything is allocated.
//!
//! Biases, norms, temporary tensors and copies in another precision are not counted, so a run that
//! passes this check may still run out of memory.

use std::fmt;

use zoo_spec::{Dtype, LayerMechanisms, MechanismConfig};

use crate::{
    Activation, BatchBy, Config, ConfigError, Data, LayerSpec, Model, Optimizer, PositionEncoding,
    Tying,
};

/// Maximum examples per batch: `zoo-data` sorts pools of this size by length.
const POOL: u128 = 8192;

/// Bytes per example besides its tokens.
const BYTES_PER_EXAMPLE: u128 = 200;

/// Sizes of the data; zero before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataSizes {
    /// Size of the (source) vocabulary.
    pub vocabulary: usize,
    /// Size of the target vocabulary, if separate.
    pub target_vocabulary: Option<usize>,
    /// Training examples.
    pub examples: usize,
    /// Tokens of the shortest example.
    pub shortest: usize,
}

/// A lower bound on the memory of training, in bytes.
pub(crate) struct Estimate {
    /// Number of parameters.
    parameters: u128,
    weights: u128,
    /// Gradients and optimizer state.
    optimizer: u128,
    /// Activations of a batch, saved for the backward pass.
    batch: u128,
    /// Synthetic examples.
    data: u128,
}

impl Estimate {
    pub(crate) fn total(&self) -> u128 {
        self.weights + self.optimizer + self.batch + self.data
    }

    /// The parts other than the weights, such as `activations: 1.5 MiB`.
    fn others(&self) -> Vec<String> {
        let others = [
            ("gradients and optimizer state", self.optimizer),
            ("activations", self.batch),
            ("data", self.data),
        ];
        let others = others.iter().filter(|(_, bytes)| *bytes > 0);
        others
            .map(|(what, bytes)| format!("{what}: {}", Bytes(*bytes)))
            .collect()
    }
}

impl Config {
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
            optimizer: weights * (1 + moments),
            // At least half precision.
            batch: self.batch_tokens(sizes) * activations(&self.model) * 2,
            // Per token: a character, a space and an id.
            data: examples as u128 * (BYTES_PER_EXAMPLE + 6 * shortest as u128),
        }
    }

    /// The minimum memory of training, and its parts on a line each.
    pub fn describe_memory(&self, sizes: DataSizes) -> String {
        let estimate = self.estimate(sizes);
        let mut lines = vec![
            format!("at least {}", Bytes(estimate.total())),
            format!("weights: {}", Bytes(estimate.weights)),
        ];
        lines.extend(estimate.others());
        lines.join("\n  ")
    }

    /// Checks that training fits into this much memory, in bytes.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Memory`] with the estimate and the keys to lower.
    pub fn check_memory(&self, sizes: DataSizes, memory: u64) -> Result<(), ConfigError> {
        self.check_estimate("training", &self.estimate(sizes), memory)
    }

    /// The same for inference, where only the weights count.
    pub fn check_weights(&self, sizes: DataSizes, memory: u64) -> Result<(), ConfigError> {
        let estimate = Estimate {
            optimizer: 0,
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
        let model = estimate.weights + estimate.optimizer;
        let (_, _, data_keys) = self.data.generated().unwrap_or_default();
        let parts = [
            (model, size_keys(&self.model)),
            (estimate.batch, self.batch_keys()),
            (estimate.data, data_keys),
        ];
        let largest = parts.iter().map(|(bytes, _)| *bytes).max();
        // Every part that is too large by itself, and the largest one.
        let is_too_large = |bytes: u128| bytes > memory || Some(bytes) == largest;
        let too_large = parts.iter().filter(|(bytes, _)| is_too_large(*bytes));
        let keys: Vec<&str> = too_large.map(|(_, keys)| *keys).collect();
        let weights = Bytes(estimate.weights);
        let mut parts = vec![format!("{} parameters: {weights}", estimate.parameters)];
        parts.extend(estimate.others());
        Err(ConfigError::Memory(format!(
            "{what} needs at least {} of memory, but only {} is available ({})\n  \
             help: reduce {}, or use a machine with more memory",
            Bytes(estimate.total()),
            Bytes(memory),
            parts.join(", "),
            keys.join(", ")
        )))
    }

    /// Minimum tokens per batch.
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
        if by_tokens {
            // Batches are not completely filled.
            size.min(examples.min(POOL) * shortest) / 2
        } else {
            size.min(examples).min(POOL) * shortest
        }
    }

    fn batch_keys(&self) -> &'static str {
        match &self.model {
            Model::Gpt(_) => "training.batch_size, model.context",
            _ => "training.batch_size",
        }
    }
}

impl Data {
    /// Number of synthetic training examples, minimum tokens per example, and the keys that set
    /// them; `None` for files.
    pub(crate) fn generated(&self) -> Option<(usize, usize, &'static str)> {
        const LENGTH: &str = "data.train_size, data.min_length";
        const SIZE: &str = "data.train_size";
        const SENTENCES: &str = "data.train_size, data.min_sentences, data.min_words";
        match self {
            Self::Copy(data) | Self::Reverse(data) | Self::Sort(data) => {
                Some((data.train_size, data.min_length, LENGTH))
            }
            Self::Dates(data) => Some((data.train_size, 8, SIZE)),
            Self::Recall(data) => Some((data.train_size, data.train_min_keys(), SIZE)),
            Self::ListOps(data) => Some((data.train_size, data.min_length, LENGTH)),
            Self::Documents(data) => {
                let words = data.min_sentences.saturating_mul(data.min_words);
                Some((data.train_size, words, SENTENCES))
            }
            Self::Phrases(_) | Self::Parallel(_) | Self::Labelled(_) | Self::Plain(_) => None,
        }
    }
}

fn feed_forward(layers: &LayerSpec) -> u128 {
    let matrices = match layers.activation {
        Activation::Swiglu => 3,
        Activation::Relu | Activation::Gelu | Activation::GeluTanh => 2,
    };
    matrices * layers.d_model as u128 * layers.d_feed_forward as u128
}

/// Parameters of the query, key, value and output projections.
fn attention(layers: &LayerSpec, mechanism: &MechanismConfig) -> u128 {
    let LayerSpec {
        d_model, n_heads, ..
    } = *layers;
    let n_heads_kv = mechanism.kv_heads(n_heads).or(layers.n_heads_kv);
    let d_head = layers.d_head.unwrap_or(d_model / n_heads.max(1));
    let all_heads = 2 * n_heads + 2 * n_heads_kv.unwrap_or(n_heads);
    d_model as u128 * all_heads as u128 * d_head as u128
}

/// Those of `count` layers.
fn attentions(layers: &LayerSpec, mechanisms: &LayerMechanisms, count: u128) -> u128 {
    let list = mechanisms.list();
    let length = list.len() as u128;
    let of_layers = list.iter().enumerate().map(|(i, mechanism)| {
        let repetitions = (count + length - 1 - i as u128) / length;
        repetitions * attention(layers, mechanism)
    });
    of_layers.sum()
}

fn parameters(model: &Model, sizes: DataSizes) -> u128 {
    let source = sizes.vocabulary as u128;
    let target = sizes.target_vocabulary.unwrap_or(sizes.vocabulary) as u128;
    let both = model.encoder_and_decoder_layers().unwrap_or_default();
    let [encoders, decoders] = both.map(|count| count as u128);
    match model {
        Model::Transformer(model) => {
            let layers = model.into();
            let encoder = attentions(&layers, &model.encoder_attention, encoders)
                + encoders * feed_forward(&layers);
            let cross = attention(&layers, &model.cross_attention);
            let decoder = attentions(&layers, &model.decoder_attention, decoders)
                + decoders * (cross + feed_forward(&layers));
            let tokens = match model.tie_embeddings {
                Tying::None => source + 2 * target,
                Tying::Decoder => source + target,
                Tying::All => source,
            };
            let vectors = tokens + 2 * learned(&model.positions);
            encoder + decoder + vectors * model.d_model as u128
        }
        Model::Gpt(model) => {
            let layers = model.into();
            let count = model.layers as u128;
            let all = attentions(&layers, &model.attention, count) + count * feed_forward(&layers);
            let tokens = source * if model.tie_embeddings { 1 } else { 2 };
            let vectors = tokens + learned(&model.positions);
            all + vectors * model.d_model as u128
        }
        Model::Classifier(model) => {
            let layers = model.into();
            let count = model.layers as u128;
            let all = attentions(&layers, &model.attention, count) + count * feed_forward(&layers);
            let vectors = source + learned(&model.positions);
            all + vectors * model.d_model as u128
        }
        Model::Seq2Seq(model) => {
            let (embedding, hidden) = (model.d_embedding as u128, model.d_hidden as u128);
            let tokens = match model.tie_embeddings {
                Tying::None => (source + target) * embedding + target * hidden,
                Tying::Decoder => (source + target) * embedding,
                Tying::All => source * embedding,
            };
            // Three gates; each direction has half of the hidden size.
            let encoder = 3 * hidden * (hidden / 2);
            tokens + encoders * encoder + decoders * 3 * hidden * hidden
        }
        Model::Han(model) => {
            let (embedding, attention) = (model.d_embedding as u128, model.d_attention as u128);
            let (word, sentence) = (model.d_word as u128, model.d_sentence as u128);
            let gates = model.cell.gates() as u128;
            let words = 2 * gates * word * (embedding + word);
            let sentences = 2 * gates * sentence * (2 * word + sentence);
            source * embedding + words + sentences + 2 * attention * (word + sentence)
        }
    }
}

/// Elements per token that all layers save for the backward pass.
fn activations(model: &Model) -> u128 {
    let layers = match model {
        // A token passes through either the encoder or the decoder.
        Model::Transformer(model) => model.encoder_and_decoder_layers().into_iter().min(),
        Model::Gpt(model) => Some(model.layers),
        Model::Classifier(model) => Some(model.layers),
        Model::Seq2Seq(model) => return (model.d_embedding + model.d_hidden) as u128,
        Model::Han(model) => return (model.d_embedding + 2 * model.d_word) as u128,
    };
    let per_layer = |spec: LayerSpec| 2 * spec.d_model as u128 + spec.d_feed_forward as u128;
    layers.unwrap_or(0) as u128 * model.layer_spec().map_or(0, per_layer)
}

/// The keys that determine the number of parameters.
fn size_keys(model: &Model) -> &'static str {
    match model {
        Model::Transformer(_) | Model::Gpt(_) | Model::Classifier(_) => {
            "model.d_model, model.layers, model.d_feed_forward, tokenizer.vocab_size"
        }
        Model::Seq2Seq(_) => {
            "model.d_hidden, model.d_embedding, model.layers, tokenizer.vocab_size"
        }
        Model::Han(_) => "model.d_embedding, model.d_word, model.d_sentence, tokenizer.vocab_size",
    }
}

/// Number of learned position embeddings.
fn learned(positions: &PositionEncoding) -> u128 {
    positions.max_positions().unwrap_or(0) as u128
}

/// A size in MiB, GiB, ...
struct Bytes(u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"];
        let mut value = self.0 as f64 / 1024.0 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
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
    fn estimate_matches_the_formulas() {
        let text = format!(
            "{GPT}d_model = 64\nn_heads = 4\nlayers = 3\ncontext = 32\n[training]\nbatch_size = 10\n"
        );
        let sizes = DataSizes {
            vocabulary: 100,
            ..DataSizes::default()
        };
        let estimate = config(&text).estimate(sizes);
        // Four projections, two matrices of 64 x 256, token and position embeddings.
        let parameters = 3 * (4 * 64 * 64 + 2 * 64 * 256) + (100 + 32) * 64;
        assert_eq!(estimate.parameters, parameters);
        assert_eq!(estimate.weights, 4 * parameters);
        assert_eq!(estimate.optimizer, 3 * 4 * parameters);
        assert_eq!(estimate.batch, 10 * 32 * 3 * (2 * 64 + 256) * 2);
        assert_eq!(estimate.data, 0);
        let memory = "at least 3.1 MiB\n  weights: 0.6 MiB\n  gradients and optimizer state: 1.8 MiB\n  \
                      activations: 0.7 MiB";
        assert_eq!(config(&text).describe_memory(sizes), memory);
    }

    #[test]
    fn errors_name_the_keys_to_reduce() {
        let large = format!(
            "{GPT}d_model = 1048576\nlayers = 4096\ncontext = 1\n[training]\nbatch_size = 1\n"
        );
        let batch = format!("{GPT}[training]\nbatch_size = 1073741824\n");
        let data =
            "[data]\nkind = \"reverse\"\ntrain_size = 1000000000\n[model]\nkind = \"seq2seq\"\n";
        let model_keys = "model.d_model, model.layers, model.d_feed_forward, tokenizer.vocab_size";
        let model_size = "768.0 PiB of memory, but only 1.0 TiB is available (";
        for (text, memory, size, keys) in [
            (large.as_str(), 1 << 40, model_size, model_keys),
            (&batch, 16 << 30, "", "training.batch_size, model.context"),
            (data, 16 << 30, "", "data.train_size, data.min_length"),
        ] {
            let error = config(text).check_memory(DataSizes::default(), memory);
            let message = error.expect_err(text).to_string();
            let start = format!("training needs at least {size}");
            assert!(message.starts_with(&start), "{message}");
            let help = format!("\n  help: reduce {keys}, or use a machine");
            assert!(message.contains(&help), "{message}");
        }
        let checked = config(&large).check_weights(DataSizes::default(), 1 << 40);
        assert!(checked.is_err_and(|error| error.to_string().starts_with("the model needs")));
    }

    #[test]
    fn templates_fit_into_one_gib() {
        for kind in crate::TEMPLATES {
            let text = crate::template(kind).expect("a template");
            let checked = config(&text).check_memory(DataSizes::default(), 1 << 30);
            assert!(checked.is_ok(), "{kind}: {checked:?}");
        }
    }
}
