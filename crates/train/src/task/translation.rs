//! Texts that are made of texts.

use std::marker::PhantomData;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use zoo_attention::next_seed;
use zoo_config::{Config, Data, Seq2SeqSpec, TransformerSpec};
use zoo_data::metrics::{Accuracy, Chrf, CorpusMetric};
use zoo_data::{BEGIN, END, LengthRule, Pair, PairIds, PairTokenizers, UNKNOWN};
use zoo_models::{
    GenerateConfig, Generated, Generative, Limits, ModelError, Seq2Seq, Seq2SeqConfig, Stop,
    Tokens, Transformer, TransformerConfig, generate, token_loss,
};
use zoo_viz::{Alignment, Part, PictureError};

use super::tokens::{pair_tokenizers, shorten};
use super::{Logits, Note, Section, Task, TaskModel, by_length, penalised};
use crate::attend::{Seen, maps, matrix, not_empty, written};
use crate::evaluate::{Judge, Outcome, Sample};
use crate::generate::{decoding, generate_config};
use crate::trained::TrainedTask;
use crate::{DataPart, Result, TrainError, Trained};

/// Learning to write a text for a text: translation, and everything that has its form.
#[derive(Debug)]
pub(crate) struct Translation<M> {
    tokenizers: PairTokenizers,
    model: PhantomData<fn() -> M>,
}

pub(crate) trait TranslationModel: TaskModel + Generative {
    /// The model for vocabularies of a source and a target.
    fn init(
        section: &Self::Section,
        vocabularies: [usize; 2],
        device: &Device,
    ) -> Result<Self, ModelError>;

    /// What it takes as source and as target.
    fn limits(&self) -> [Limits; 2];

    /// What it predicts for each token of a target, `[batch, target, vocabulary]`.
    fn logits(&self, source: &Tokens, target: &Tokens, is_training: bool) -> Logits<3>;

    /// The state before the first token of a target.
    fn encode(&self, source: &Tokens) -> Result<Self::State, ModelError>;

    /// Where it attends to while it reads a source and writes a target. A model with three parts
    /// has them in the order of [`Side`](crate::Side).
    fn look(
        &self,
        source: &Tokens,
        target: &Tokens,
        texts: &PairTexts,
    ) -> Result<Vec<Part>, PictureError>;
}

/// A pair as texts of tokens.
pub(crate) struct PairTexts {
    source: Vec<String>,
    /// What the decoder is given.
    input: Vec<String>,
    /// What it writes, token by token.
    output: Vec<String>,
}

impl TranslationModel for Transformer {
    fn init(
        section: &TransformerSpec,
        [source_vocabulary, target_vocabulary]: [usize; 2],
        device: &Device,
    ) -> Result<Self, ModelError> {
        let config = TransformerConfig {
            source_vocabulary,
            target_vocabulary,
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn limits(&self) -> [Limits; 2] {
        [self.source_limits(), self.target_limits()]
    }

    fn logits(&self, source: &Tokens, target: &Tokens, is_training: bool) -> Logits<3> {
        let penalty = self.config().spec.entropy_penalty;
        if penalty == 0.0 || !is_training {
            return Ok((self.forward(source, target), None));
        }
        let (logits, entropy) = self.forward_with_entropy(source, target)?;
        Ok((logits, Some(entropy.mul_scalar(penalty))))
    }

    fn encode(&self, source: &Tokens) -> Result<Self::State, ModelError> {
        self.start(source)
    }

    fn look(
        &self,
        source: &Tokens,
        target: &Tokens,
        texts: &PairTexts,
    ) -> Result<Vec<Part>, PictureError> {
        let look = self.look(source, target);
        Ok(vec![
            maps("Encoder", &texts.source, &texts.source, look.encoder)?,
            maps("Decoder", &texts.input, &texts.input, look.decoder)?,
            // What is read at a position is what the next token is written by.
            maps(
                "Cross-attention, when a token is written",
                &texts.output,
                &texts.source,
                look.cross,
            )?,
        ])
    }
}

impl TranslationModel for Seq2Seq {
    fn init(
        section: &Seq2SeqSpec,
        [source_vocabulary, target_vocabulary]: [usize; 2],
        device: &Device,
    ) -> Result<Self, ModelError> {
        let config = Seq2SeqConfig {
            source_vocabulary,
            target_vocabulary,
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn limits(&self) -> [Limits; 2] {
        [self.source_limits(), self.target_limits()]
    }

    fn logits(&self, source: &Tokens, target: &Tokens, is_training: bool) -> Logits<3> {
        let teacher_forcing = self.config().spec.teacher_forcing;
        let output = match is_training && teacher_forcing < 1.0 {
            true => {
                let seed = next_seed(&source.ids().device());
                self.forward(source, target, teacher_forcing, seed)
            }
            false => self.forward(source, target, 1.0, 0),
        };
        Ok((output.logits, None))
    }

    fn encode(&self, source: &Tokens) -> Result<Self::State, ModelError> {
        Ok(self.start(source))
    }

    fn look(
        &self,
        source: &Tokens,
        target: &Tokens,
        texts: &PairTexts,
    ) -> Result<Vec<Part>, PictureError> {
        // Every token is the target's: nothing is sampled.
        let weights = self.forward(source, target, 1.0, 0).alignment;
        let [source, output] = [&texts.source, &texts.output].map(Vec::clone);
        let alignment = Alignment::new("Alignment", source, output, matrix(weights)?)?;
        Ok(vec![Part::Alignment(alignment)])
    }
}

impl<M: TranslationModel> Task for Translation<M> {
    type Model = M;
    type Texts = Vec<Pair>;
    type Ids = Vec<PairIds>;
    type Example = PairIds;

    const USAGE: &'static str = "`zoo translate` writes texts with it";

    fn prepare(config: &Config, train: &Vec<Pair>) -> Result<Self> {
        Ok(Self {
            tokenizers: pair_tokenizers(config, train)?,
            model: PhantomData,
        })
    }

    fn load(folder: &Path) -> Result<Self> {
        Ok(Self {
            tokenizers: PairTokenizers::load(folder)?,
            model: PhantomData,
        })
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let files = self.tokenizers.files().into_iter();
        files.map(|(name, it)| Ok((name, it.to_json()?))).collect()
    }

    fn vocabularies(&self) -> (usize, Option<usize>) {
        let [source, target] = [self.tokenizers.source(), self.tokenizers.target()];
        (source.vocabulary(), Some(target.vocabulary()))
    }

    fn encode(
        &self,
        config: &Config,
        part: DataPart,
        texts: &Vec<Pair>,
        note: Note<'_>,
    ) -> Result<Vec<PairIds>> {
        let mut ids = self.tokenizers.encode(texts)?;
        // What is evaluated stays whole: a number about part of it is none.
        if let (Data::Parallel(data), DataPart::Train) = (&config.data, part) {
            shorten(LengthRule::LeaveOut, part, &mut ids, data.max_length, note)?;
        }
        Ok(ids)
    }

    fn model(&self, section: &Section<Self>, device: &Device) -> Result<M, ModelError> {
        let sizes = [self.tokenizers.source(), self.tokenizers.target()].map(|it| it.vocabulary());
        M::init(section, sizes, device)
    }

    fn loss(
        model: &M,
        examples: &[&PairIds],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let [of_source, of_target] = model.limits();
        let sources: Vec<&[u32]> = examples.iter().map(|it| it.source.as_slice()).collect();
        let inputs: Vec<Vec<u32>> = examples.iter().map(|it| it.decoder_input()).collect();
        let outputs: Vec<Vec<u32>> = examples.iter().map(|it| it.decoder_output()).collect();
        let source = Tokens::new(&sources, of_source, device)?;
        let input = Tokens::new(&inputs, of_target, device)?;
        let output = Tokens::new(&outputs, of_target, device)?;
        let (logits, penalty) = model.logits(&source, &input, device.is_autodiff())?;
        Ok(penalised(token_loss(logits, &output, smoothing), penalty))
    }

    fn outcome(
        &self,
        model: &M,
        examples: &[PairIds],
        texts: &Vec<Pair>,
        judge: &Judge,
    ) -> Result<(Outcome, Vec<Sample>)> {
        let config = decoding(judge.generate.as_ref())?;
        let written = write(model, examples, config, &judge.device)?;
        let mut exact = Accuracy::default();
        let mut bleu = judge.bleu.counts();
        let mut chrf = Chrf::default().counts();
        let mut hypotheses = vec![];
        let mut samples = vec![];
        for ((example, texts), written) in examples.iter().zip(texts).zip(written) {
            let best = written.into_iter().next();
            let tokens = best.map(|text| text.tokens).unwrap_or_default();
            exact.add(&example.target, &tokens);
            let said = self.tokenizers.target().decode(&tokens)?;
            let wanted = texts.target.as_str();
            bleu.add(&said, &[wanted])?;
            chrf.add(&said, &[wanted])?;
            if samples.len() < judge.samples {
                samples.push(Sample {
                    given: texts.source.clone(),
                    wanted: Some(texts.target.clone()),
                    said: said.clone(),
                });
            }
            hypotheses.push(said);
        }
        let outcome = Outcome::Texts {
            exact,
            bleu: bleu.score()?,
            chrf: chrf.score()?,
            hypotheses,
        };
        Ok((outcome, samples))
    }

    fn look(&self, model: &M, trained: &Trained, text: &str, target: Option<&str>) -> Result<Seen> {
        let device = &trained.opened.device;
        let [of_source, of_target] = model.limits();
        let source = self.tokenizers.source().encode(text)?;
        not_empty("--text", &source)?;
        let tokens = Tokens::new(&[&source], of_source, device);
        let tokens = tokens.map_err(TrainError::model("--text"))?;
        let (mut output, has_end) = match target {
            Some(target) => (self.tokenizers.target().encode(target)?, true),
            None => {
                let best = decode(model, &tokens, &generate_config(&trained.config)?)?;
                let best = best.into_iter().flatten().next();
                best.map_or((vec![], true), |text| (text.tokens, text.stop == Stop::End))
            }
        };
        // A text that came to no end by itself may have filled all positions there are.
        if has_end || output.is_empty() {
            output.push(END);
        }
        let input = [&[BEGIN], &output[..output.len() - 1]].concat();
        let decoded = Tokens::new(&[&input], of_target, device);
        let decoded = decoded.map_err(TrainError::model("--target"))?;
        let texts = PairTexts {
            source: written(self.tokenizers.source(), &source),
            input: written(self.tokenizers.target(), &input),
            output: written(self.tokenizers.target(), &output),
        };
        let said = self.tokenizers.target().decode(&output)?;
        let given = target.map_or("", |_| " (given)");
        Ok(Seen {
            notes: vec![format!("{text} → {said}{given}")],
            parts: TranslationModel::look(model, &tokens, &decoded, &texts)?,
        })
    }

    fn translator(trained: &TrainedTask<Self>) -> Option<&dyn Translates> {
        Some(trained)
    }
}

/// The texts that a model writes for each source, the best first.
fn write<M: TranslationModel>(
    model: &M,
    examples: &[PairIds],
    config: &GenerateConfig,
    device: &Device,
) -> Result<Vec<Vec<Generated>>> {
    let [limits, _] = model.limits();
    by_length(examples, |rows| {
        let sources: Vec<&[u32]> = rows.iter().map(|it| it.source.as_slice()).collect();
        let tokens = Tokens::new(&sources, limits, device);
        decode(
            model,
            &tokens.map_err(TrainError::model("decoding"))?,
            config,
        )
    })
}

fn decode<M: TranslationModel>(
    model: &M,
    source: &Tokens,
    config: &GenerateConfig,
) -> Result<Vec<Vec<Generated>>> {
    let [rows, _] = source.dims();
    let written = TranslationModel::encode(model, source)
        .and_then(|state| generate(model, state, &vec![[BEGIN]; rows], config));
    written.map_err(TrainError::model("decoding"))
}

pub(crate) struct Translated {
    pub(crate) tokens: usize,
    /// How many of them are unknown: the model sees that there is something, and not what.
    pub(crate) unknown: usize,
    /// The positions that the model has, if the text has more tokens.
    pub(crate) too_long: Option<usize>,
    /// What was written, the best first: nothing for a text that is empty or too long.
    pub(crate) texts: Vec<Written>,
}

pub(crate) struct Written {
    pub(crate) text: String,
    /// What texts are compared by: the logarithm of how likely the model thinks it, divided by
    /// the length penalty.
    pub(crate) score: f64,
}

/// A trained model that writes texts for texts.
pub(crate) trait Translates {
    /// The size of the vocabulary that it writes in.
    fn vocabulary(&self) -> usize;

    /// What it writes for each of the texts, in their order.
    fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Translated>>;
}

impl<M: TranslationModel> Translates for TrainedTask<Translation<M>> {
    fn vocabulary(&self) -> usize {
        self.task.tokenizers.target().vocabulary()
    }

    fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Translated>> {
        // Also where there is nothing to write: a strategy that cannot be is an error then, too.
        config
            .check(self.vocabulary())
            .map_err(TrainError::model("decoding"))?;
        let tokenizers = &self.task.tokenizers;
        let [limits, _] = self.model.limits();
        let mut translated = vec![];
        let mut examples = vec![];
        for source in tokenizers.source().encode_all(texts.iter().copied())? {
            let too_long = limits.longest.filter(|longest| source.len() > *longest);
            translated.push(Translated {
                tokens: source.len(),
                unknown: source.iter().filter(|id| **id == UNKNOWN).count(),
                too_long,
                texts: vec![],
            });
            if !source.is_empty() && too_long.is_none() {
                let target = vec![];
                examples.push(PairIds { source, target });
            }
        }
        let written = write(&self.model, &examples, config, device)?;
        let is_written = |it: &&mut Translated| it.tokens > 0 && it.too_long.is_none();
        for (it, written) in translated.iter_mut().filter(is_written).zip(written) {
            for text in written {
                let line = tokenizers.target().decode(&text.tokens)?;
                it.texts.push(Written {
                    // What is written for a line must be one.
                    text: line.replace(['\n', '\r'], " "),
                    score: text.score,
                });
            }
        }
        Ok(translated)
    }
}
