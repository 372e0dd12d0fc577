//! The models, each made of plain sizes, and a batch of random tokens for it. There is no dropout.

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

/// A kind of model, and what is done with it.
pub(super) trait Kind: Module {
    /// What goes into a forward pass.
    type Batch;

    /// Makes the model.
    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self>;

    /// Draws a batch, and what should be said of it.
    fn draw(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)>;

    /// The numbers it has learned, and floating-point operations of the matmuls of a forward pass.
    fn counted(&self, setup: &Setup) -> (usize, f64);

    /// What it says of a batch: `[batch, places, tokens]`, or one place of classes.
    fn logits(&self, batch: &Self::Batch) -> Tensor<3>;

    /// A text for each sequence of a batch, the likeliest token each time.
    fn generate(&self, _: &Setup, _: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        bail!("it generates nothing")
    }

    /// What a forward pass says where those tokens came: `[batch, generated, tokens]`.
    fn said_of(&self, _: &Self::Batch, _: &[Vec<u32>]) -> Result<Tensor<3>> {
        bail!("it generates nothing")
    }

    /// Floating-point operations of the matmuls of a generation. A target that is generated goes
    /// through the same as in a forward pass, place by place.
    fn work_of_generation(&self, setup: &Setup) -> f64 {
        self.counted(setup).1
    }
}

/// A hierarchical attention network, of the paper's layers. Documents have no padding.
impl Kind for Han {
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

    fn draw(&self, setup: &Setup, device: &Device) -> Result<(Documents, Tokens)> {
        let (sentences, words) = (setup.batch * setup.sentences, setup.n / setup.sentences);
        let drawn = rows([sentences, words], setup.vocabulary, 1);
        let documents: Vec<&[Vec<u32>]> = drawn.chunks(setup.sentences).collect();
        let documents = Documents::new(&documents, self.limits(), device)?;
        Ok((documents, labels(setup, device)?))
    }

    fn counted(&self, setup: &Setup) -> (usize, f64) {
        let words = setup.n / setup.sentences;
        let flops = self.flops(setup.batch, setup.sentences, words);
        (self.parameters(), flops)
    }

    fn logits(&self, documents: &Documents) -> Tensor<3> {
        self.forward(documents).logits.unsqueeze_dim(1)
    }
}

/// An encoder classifier: waves for positions, norms before each part, the mean of all places.
impl Kind for Classifier {
    type Batch = Tokens;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let (vocabulary, classes) = (setup.vocabulary, setup.classes);
        let (width, heads, layers) = (setup.d_model, setup.heads, setup.layers);
        let config = ClassifierConfig::new(vocabulary, classes, width, heads, layers)
            .with_d_feed_forward(Some(setup.d_hidden))
            .with_attention(attention.into())
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn draw(&self, setup: &Setup, device: &Device) -> Result<(Tokens, Tokens)> {
        let drawn = rows([setup.batch, setup.n], setup.vocabulary, 1);
        let tokens = Tokens::new(&drawn, self.limits(), device)?;
        Ok((tokens, labels(setup, device)?))
    }

    fn counted(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n))
    }

    fn logits(&self, tokens: &Tokens) -> Tensor<3> {
        self.forward(tokens).unsqueeze_dim(1)
    }
}

/// Sequences that are continued after a prompt, with the source that they are translations of,
/// if they are.
pub(super) struct Sequences<S> {
    source: S,
    target: Tokens,
    prompts: Vec<Vec<u32>>,
}

impl<S: Clone> Sequences<S> {
    /// Draws sequences, and what comes next in each. They begin with so many tokens of a prompt.
    fn draw(
        setup: &Setup,
        source: S,
        prompt: usize,
        limits: Limits,
        device: &Device,
    ) -> Result<(Self, Tokens)> {
        let drawn = rows([setup.batch, setup.n + 1], setup.vocabulary, 2);
        let part = |range: Range<usize>| -> Vec<Vec<u32>> {
            let part = drawn.iter().map(|row| row[range.clone()].to_vec());
            part.collect()
        };
        let sequences = Self {
            source,
            target: Tokens::new(&part(0..setup.n), limits, device)?,
            prompts: part(0..prompt),
        };
        let next = Tokens::new(&part(1..setup.n + 1), limits, device)?;
        Ok((sequences, next))
    }

    /// What a model took in to say those texts: the prompts, and after them all but the last token.
    fn with_texts(&self, texts: &[Vec<u32>], limits: Limits) -> Result<Self> {
        let whole = |(prompt, text): (&Vec<u32>, &Vec<u32>)| {
            let said = &text[..text.len().saturating_sub(1)];
            [prompt, said].concat()
        };
        let whole: Vec<Vec<u32>> = self.prompts.iter().zip(texts).map(whole).collect();
        Ok(Self {
            source: self.source.clone(),
            target: Tokens::new(&whole, limits, &self.target.ids().device())?,
            prompts: self.prompts.clone(),
        })
    }
}

/// Sources with targets that begin with one token.
fn draw_pairs(
    setup: &Setup,
    limits: [Limits; 2],
    device: &Device,
) -> Result<(Sequences<Tokens>, Tokens)> {
    let source = rows([setup.batch, setup.n], setup.vocabulary, 1);
    let source = Tokens::new(&source, limits[0], device)?;
    Sequences::draw(setup, source, 1, limits[1], device)
}

/// A GPT as GPT-2 has it: learned positions, the embedding for a head.
impl Kind for Gpt {
    type Batch = Sequences<()>;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let config = GptConfig::new(setup.vocabulary, setup.d_model, setup.heads, setup.layers)
            .with_d_feed_forward(Some(setup.d_hidden))
            .with_attention(attention.into())
            .with_positions(PositionEncoding::learned(setup.n))
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn draw(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)> {
        Sequences::draw(setup, (), setup.prompt(), self.limits(), device)
    }

    fn counted(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n))
    }

    fn logits(&self, texts: &Self::Batch) -> Tensor<3> {
        self.forward(&texts.target)
    }

    fn generate(&self, setup: &Setup, texts: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        generated(self, self.start(setup.batch)?, &texts.prompts, setup)
    }

    fn said_of(&self, texts: &Self::Batch, said: &[Vec<u32>]) -> Result<Tensor<3>> {
        let logits = self.logits(&texts.with_texts(said, self.limits())?);
        let [_, positions, _] = logits.dims();
        Ok(logits.slice_dim(1, texts.prompts[0].len() - 1..positions))
    }

    fn work_of_generation(&self, setup: &Setup) -> f64 {
        // The last token is not taken in, and nothing is said within the prompt.
        let head = 2 * setup.batch * self.config().spec.d_model * self.config().vocabulary;
        self.flops(setup.batch, setup.n - 1) - ((setup.prompt() - 1) * head) as f64
    }
}

/// A recurrent encoder and decoder with attention, fed with what the last place came to. Every
/// token is the target's.
impl Kind for Seq2Seq {
    type Batch = Sequences<Tokens>;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        // What the model calls a mechanism.
        let alignment = match attention.into() {
            MechanismConfig::Additive(_) => Alignment::Additive,
            MechanismConfig::Dot(_) => Alignment::Dot,
            MechanismConfig::Multiplicative(_) => Alignment::General,
            MechanismConfig::LocalM(LocalM { window }) => Alignment::local_m(window),
            MechanismConfig::LocalP(LocalP { window }) => Alignment::local_p(window),
            _ => bail!("a seq2seq model has no {attention} attention"),
        };
        let config = Seq2SeqConfig::new(setup.vocabulary, setup.vocabulary)
            .with_d_embedding(setup.d_model)
            .with_d_hidden(setup.d_hidden)
            .with_attention(alignment)
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn draw(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)> {
        draw_pairs(setup, [self.source_limits(), self.target_limits()], device)
    }

    fn counted(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n, setup.n))
    }

    fn logits(&self, pairs: &Self::Batch) -> Tensor<3> {
        self.forward(&pairs.source, &pairs.target, 1.0, 0).logits
    }

    fn generate(&self, setup: &Setup, pairs: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        generated(self, self.start(&pairs.source), &pairs.prompts, setup)
    }

    fn said_of(&self, pairs: &Self::Batch, texts: &[Vec<u32>]) -> Result<Tensor<3>> {
        Ok(self.logits(&pairs.with_texts(texts, self.target_limits())?))
    }
}

/// A Transformer as its paper has it: norms after each part, waves for positions, one embedding
/// for source, target and head. The mechanism is that of self-attention on both sides; from
/// target to source it is flash.
impl Kind for Transformer {
    type Batch = Sequences<Tokens>;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<Self> {
        let config = TransformerConfig::base(setup.vocabulary, setup.vocabulary)
            .with_d_model(setup.d_model)
            .with_heads(setup.heads)
            .with_d_feed_forward(Some(setup.d_hidden))
            .with_layers(setup.layers)
            .with_tying(Tying::All)
            .with_encoder_attention(attention.into())
            .with_decoder_attention(attention.into())
            .with_dropout(0.0);
        Ok(config.try_init(device)?)
    }

    fn draw(&self, setup: &Setup, device: &Device) -> Result<(Self::Batch, Tokens)> {
        draw_pairs(setup, [self.source_limits(), self.target_limits()], device)
    }

    fn counted(&self, setup: &Setup) -> (usize, f64) {
        (self.parameters(), self.flops(setup.batch, setup.n, setup.n))
    }

    fn logits(&self, pairs: &Self::Batch) -> Tensor<3> {
        self.forward(&pairs.source, &pairs.target)
    }

    fn generate(&self, setup: &Setup, pairs: &Self::Batch) -> Result<Vec<Vec<u32>>> {
        generated(self, self.start(&pairs.source)?, &pairs.prompts, setup)
    }

    fn said_of(&self, pairs: &Self::Batch, texts: &[Vec<u32>]) -> Result<Tensor<3>> {
        Ok(self.logits(&pairs.with_texts(texts, self.target_limits())?))
    }
}

/// Rows of tokens below `vocabulary`, as random as a bench needs: others for each `seed`.
fn rows([batch, length]: [usize; 2], vocabulary: usize, seed: u64) -> Vec<Vec<u32>> {
    // Knuth's constants; the high bits are the random ones.
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocabulary as u64) as u32
    };
    let mut row = |_| (0..length).map(|_| draw()).collect();
    (0..batch).map(&mut row).collect()
}

/// A class for each sequence, as sequences of one token.
fn labels(setup: &Setup, device: &Device) -> Result<Tokens> {
    let limits = Limits {
        vocabulary: setup.classes,
        longest: None,
    };
    let drawn = rows([setup.batch, 1], setup.classes, 7);
    Ok(Tokens::new(&drawn, limits, device)?)
}

/// The best text after each prompt.
fn generated<M: Generative>(
    model: &M,
    state: M::State,
    prompts: &[Vec<u32>],
    setup: &Setup,
) -> Result<Vec<Vec<u32>>> {
    let config = GenerateConfig::default().with_max_length(setup.generated());
    let texts = generate(model, state, prompts, &config)?;
    let best = texts
        .into_iter()
        .filter_map(|texts| texts.into_iter().next());
    Ok(best.map(|text| text.tokens).collect())
}
