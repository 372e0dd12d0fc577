//! The benchmarked models, built from plain sizes without dropout, and their random batches.

use std::ops::Range;

use anyhow::{Result, bail};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use zoo_bench_core::model::Setup;
use zoo_models::generate::{GenerateConfig, Generative, generate};
use zoo_models::{
    Alignment, Classifier, ClassifierConfig, Documents, Gpt, GptConfig, Han, HanConfig, Limits,
    PositionEncoding, Seq2Seq, Seq2SeqConfig, Tokens, Transformer, TransformerConfig, Tying,
};
use zoo_spec::{LocalM, LocalP, Mechanism, MechanismConfig};

/// Input of a forward pass.
pub(super) trait Batch: Sized {
    /// The decoder inputs of a generation: prompts and generated tokens except the last.
    fn with_generated(&self, _: &[Vec<u32>]) -> Result<Self> {
        bail!("the model does not generate text")
    }
}

impl Batch for Documents {}
impl Batch for Tokens {}

/// Operations that are benchmarked on a model.
pub(super) trait BenchModel: Module {
    type Batch: Batch;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self>;

    /// Samples a batch and its targets.
    fn sample_batch(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)>;

    /// Number of parameters, and FLOPs of the matmuls in a forward pass.
    fn count(&self, setup: &Setup) -> (usize, f64);

    /// Logits of a batch: `[batch, seq, vocabulary]`, or `[batch, 1, classes]`.
    fn logits(&self, batch: &Self::Batch) -> Tensor<3>;

    /// Greedy generation for each sequence of a batch.
    fn generate(&self, _: &Setup, _: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        bail!("the model does not generate text")
    }

    /// FLOPs of the matmuls in a generation. With a cache, generating a target takes the same
    /// FLOPs as a forward pass over it.
    fn generation_flops(&self, setup: &Setup) -> f64 {
        self.count(setup).1
    }
}

/// HAN with the layers of the paper.
impl BenchModel for Han {
    type Batch = Documents;

    fn new(setup: &Setup, _: Mechanism, device: &Device) -> Result<Self> {
        let config = HanConfig::new(setup.vocabulary, setup.classes)
            .with_d_embedding(setup.d_model)
            .with_d_word(setup.d_hidden)
            .with_d_sentence(setup.d_hidden)
            .with_d_attention(setup.d_attention)
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn sample_batch(&self, setup: &Setup, device: &Device) -> Result<(Documents, Tokens)> {
        let (sentences, words) = (setup.batch * setup.sentences, setup.n / setup.sentences);
        let tokens = random_tokens([sentences, words], setup.vocabulary, 1);
        let documents: Vec<&[Vec<u32>]> = tokens.chunks(setup.sentences).collect();
        let documents = Documents::new(&documents, self.limits(), device)?;
        Ok((documents, labels(setup, device)?))
    }

    fn count(&self, setup: &Setup) -> (usize, f64) {
        let words = setup.n / setup.sentences;
        let flops = self.flops(setup.batch, setup.sentences, words);
        (self.parameters(), flops)
    }

    fn logits(&self, documents: &Documents) -> Tensor<3> {
        self.forward(documents).logits.unsqueeze_dim(1)
    }
}

/// Encoder classifier: sinusoidal positions, pre-norm, mean pooling.
impl BenchModel for Classifier {
    type Batch = Tokens;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let (vocabulary, classes) = (setup.vocabulary, setup.classes);
        let (width, heads, layers) = (setup.d_model, setup.heads, setup.layers);
        let config = ClassifierConfig::new(vocabulary, classes, width, heads, layers)
            .with_d_feed_forward(Some(setup.d_hidden))
            .with_attention(attention)
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn sample_batch(&self, setup: &Setup, device: &Device) -> Result<(Tokens, Tokens)> {
        let tokens = random_tokens([setup.batch, setup.n], setup.vocabulary, 1);
        let tokens = Tokens::new(&tokens, self.limits(), device)?;
        Ok((tokens, labels(setup, device)?))
    }

    fn count(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n))
    }

    fn logits(&self, tokens: &Tokens) -> Tensor<3> {
        self.forward(tokens).unsqueeze_dim(1)
    }
}

/// Target sequences with their prompts, and the source sequences of an encoder-decoder.
pub(super) struct Sequences<S> {
    source: S,
    target: Tokens,
    prompts: Vec<Vec<u32>>,
    /// Limits of the target.
    limits: Limits,
}

impl<S> Sequences<S> {
    /// Samples sequences and their next-token targets. The first `prompt` tokens are the prompt.
    fn sample(
        setup: &Setup,
        source: S,
        prompt: usize,
        limits: Limits,
        device: &Device,
    ) -> Result<(Self, Tokens)> {
        let tokens = random_tokens([setup.batch, setup.n + 1], setup.vocabulary, 2);
        let part = |range: Range<usize>| -> Vec<Vec<u32>> {
            let part = tokens.iter().map(|row| row[range.clone()].to_vec());
            part.collect()
        };
        let sequences = Self {
            source,
            target: Tokens::new(&part(0..setup.n), limits, device)?,
            prompts: part(0..prompt),
            limits,
        };
        let next = Tokens::new(&part(1..setup.n + 1), limits, device)?;
        Ok((sequences, next))
    }
}

impl<S: Clone> Batch for Sequences<S> {
    fn with_generated(&self, generated: &[Vec<u32>]) -> Result<Self> {
        let input = |(prompt, tokens): (&Vec<u32>, &Vec<u32>)| {
            let tokens = &tokens[..tokens.len().saturating_sub(1)];
            [prompt, tokens].concat()
        };
        let inputs: Vec<Vec<u32>> = self.prompts.iter().zip(generated).map(input).collect();
        Ok(Self {
            source: self.source.clone(),
            target: Tokens::new(&inputs, self.limits, &self.target.ids().device())?,
            prompts: self.prompts.clone(),
            limits: self.limits,
        })
    }
}

/// Samples source and target pairs; prompts have one token.
fn sample_pairs(
    setup: &Setup,
    limits: [Limits; 2],
    device: &Device,
) -> Result<(Sequences<Tokens>, Tokens)> {
    let source = random_tokens([setup.batch, setup.n], setup.vocabulary, 1);
    let source = Tokens::new(&source, limits[0], device)?;
    Sequences::sample(setup, source, 1, limits[1], device)
}

/// GPT as in GPT-2: learned positions, output tied to the embedding.
impl BenchModel for Gpt {
    type Batch = Sequences<()>;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let config = GptConfig::new(setup.vocabulary, setup.d_model, setup.heads, setup.layers)
            .with_d_feed_forward(Some(setup.d_hidden))
            .with_attention(attention)
            .with_positions(PositionEncoding::learned(setup.n))
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn sample_batch(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)> {
        Sequences::sample(setup, (), setup.prompt_len(), self.limits(), device)
    }

    fn count(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n))
    }

    fn logits(&self, batch: &Self::Batch) -> Tensor<3> {
        self.forward(&batch.target)
    }

    fn generate(&self, setup: &Setup, batch: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        generate_greedy(self, self.start(setup.batch)?, &batch.prompts, setup)
    }

    fn generation_flops(&self, setup: &Setup) -> f64 {
        // The last token is not an input, and there are no logits within the prompt.
        let head = 2 * setup.batch * self.config().spec.d_model * self.config().vocabulary;
        self.flops(setup.batch, setup.n - 1) - ((setup.prompt_len() - 1) * head) as f64
    }
}

/// Recurrent encoder-decoder with attention and input feeding, trained with teacher forcing.
impl BenchModel for Seq2Seq {
    type Batch = Sequences<Tokens>;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let alignment = match attention.into() {
            MechanismConfig::Additive(_) => Alignment::Additive,
            MechanismConfig::Dot(_) => Alignment::Dot,
            MechanismConfig::Multiplicative(_) => Alignment::General,
            MechanismConfig::LocalM(LocalM { window }) => Alignment::local_m(window),
            MechanismConfig::LocalP(LocalP { window }) => Alignment::local_p(window),
            _ => bail!("seq2seq does not support {attention} attention"),
        };
        let config = Seq2SeqConfig::new(setup.vocabulary, setup.vocabulary)
            .with_d_embedding(setup.d_model)
            .with_d_hidden(setup.d_hidden)
            .with_attention(alignment)
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn sample_batch(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)> {
        sample_pairs(setup, [self.source_limits(), self.target_limits()], device)
    }

    fn count(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n, setup.n))
    }

    fn logits(&self, pairs: &Self::Batch) -> Tensor<3> {
        self.forward(&pairs.source, &pairs.target, 1.0, 0).logits
    }

    fn generate(&self, setup: &Setup, pairs: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        generate_greedy(self, self.start(&pairs.source), &pairs.prompts, setup)
    }
}

/// Transformer as in the paper: post-norm, sinusoidal positions, tied embeddings. The mechanism is
/// used for self-attention in encoder and decoder; cross-attention is flash.
impl BenchModel for Transformer {
    type Batch = Sequences<Tokens>;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let config = TransformerConfig::base(setup.vocabulary, setup.vocabulary)
            .with_d_model(setup.d_model)
            .with_n_heads(setup.heads)
            .with_d_feed_forward(Some(setup.d_hidden))
            .with_layers(setup.layers)
            .with_tie_embeddings(Tying::All)
            .with_encoder_attention(attention)
            .with_decoder_attention(attention)
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn sample_batch(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)> {
        sample_pairs(setup, [self.source_limits(), self.target_limits()], device)
    }

    fn count(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n, setup.n))
    }

    fn logits(&self, pairs: &Self::Batch) -> Tensor<3> {
        self.forward(&pairs.source, &pairs.target)
    }

    fn generate(&self, setup: &Setup, pairs: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        generate_greedy(self, self.start(&pairs.source)?, &pairs.prompts, setup)
    }
}

/// Pseudo-random tokens below `vocabulary`.
fn random_tokens([batch, length]: [usize; 2], vocabulary: usize, seed: u64) -> Vec<Vec<u32>> {
    // LCG with Knuth's constants; its high bits are the random ones.
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocabulary as u64) as u32
    };
    let mut row = |_| (0..length).map(|_| next()).collect();
    (0..batch).map(&mut row).collect()
}

/// Class labels, as sequences of one token.
fn labels(setup: &Setup, device: &Device) -> Result<Tokens> {
    let limits = Limits {
        vocabulary: setup.classes,
        longest: None,
    };
    let tokens = random_tokens([setup.batch, 1], setup.classes, 7);
    Ok(Tokens::new(&tokens, limits, device)?)
}

fn generate_greedy<M: Generative>(
    model: &M,
    state: M::State,
    prompts: &[Vec<u32>],
    setup: &Setup,
) -> Result<Vec<Vec<u32>>> {
    let config = GenerateConfig::default().with_max_length(setup.generated_len());
    let hypotheses = generate(model, state, prompts, &config)?.into_iter();
    let best = hypotheses.filter_map(|hypotheses| hypotheses.into_iter().next());
    Ok(best.map(|hypothesis| hypothesis.tokens).collect())
}
