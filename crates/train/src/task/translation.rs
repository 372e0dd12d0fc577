//! Translation and other sequence-to-sequence tasks.

use std::iter;
use std::marker::PhantomData;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use zoo_attention::{MultiHeadAttention, next_seed};
use zoo_config::{Config, Data, Seq2SeqSpec, TransformerSpec};
use zoo_data::metrics::{Accuracy, Chrf, CorpusMetric};
use zoo_data::{BOS, EOS, LengthRule, Pair, PairIds, PairTokenizers, Tokenizer};
use zoo_models::{
    GenerateConfig, GeneratedSequence, Generative, Limits, ModelError, Seq2Seq, Seq2SeqConfig,
    Stop, Tokens, Transformer, TransformerConfig, generate, token_loss,
};
use zoo_viz::{Alignment, Part};

use super::tokenizers::{pair_tokenizers, shorten};
use super::{Inference, Logits, Note, Section, Task, TaskModel, add_penalty, map_batches};
use crate::attend::{
    AXES, AttentionRequest, AttentionView, check_not_empty, head_maps, to_matrix, token_texts,
};
use crate::evaluate::{Evaluator, Sample, TaskMetrics};
use crate::generate::{generate_config, no_decoding};
use crate::queries::Queries;
use crate::trained::TrainedTask;
use crate::{DataSplit, Result, TrainError, TrainedRun};

#[derive(Debug)]
pub(crate) struct Translation<M> {
    tokenizers: PairTokenizers,
    model: PhantomData<fn() -> M>,
}

pub(crate) trait TranslationModel: TaskModel + Generative {
    fn init(
        section: &Self::Section,
        vocabularies: [usize; 2],
        device: &Device,
    ) -> Result<Self, ModelError>;

    fn limits(&self) -> [Limits; 2];

    /// Logits `[batch, target, vocabulary]`.
    fn logits(&self, source: &Tokens, target: &Tokens, is_training: bool) -> Logits<3>;

    /// The decoding state before the first target token.
    fn encode(&self, source: &Tokens) -> Result<Self::State, ModelError>;

    /// The attention weights of queries for a source and a target. Three parts are in the order of
    /// [`AttentionKind`](crate::AttentionKind).
    fn attention_parts(&self, pair: PairTokens, queries: &Queries) -> Result<AttentionView>;
}

/// The tokens of a pair, for the model and as texts.
pub(crate) struct PairTokens {
    source: Tokens,
    input: Tokens,
    source_texts: Vec<String>,
    input_texts: Vec<String>,
    output_texts: Vec<String>,
}

impl TaskModel for Transformer {
    type Section = TransformerSpec;

    fn parameters(&self) -> usize {
        Transformer::parameters(self)
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        let layers = self.encoder.layers.iter().chain(&self.decoder.layers);
        layers
            .flat_map(|layer| iter::once(&layer.attention).chain(&layer.cross_attention))
            .collect()
    }

    fn longest_example(&self) -> Option<usize> {
        self.source_limits().longest
    }
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

    fn attention_parts(&self, pair: PairTokens, queries: &Queries) -> Result<AttentionView> {
        let [source, input] = [&pair.source_texts, &pair.input_texts];
        // The attention at a position predicts the next token.
        let output = &pair.output_texts;
        let (n, m) = (source.len(), input.len());
        queries.check(&[n, m])?;
        let heads = self.attentions().len() * self.config().spec.n_heads;
        let mut selection = vec![];
        let sources = queries.rows("source", [n, n], heads, &mut selection)?;
        let targets = queries.rows("target", [m, n.max(m)], heads, &mut selection)?;
        let weights = self.attention_weights_of(&pair.source, &pair.input, &sources, &targets);
        let (encoder, decoder) = ((&**source, &*sources), (&**input, &*targets));
        let cross = (&**output, &*targets);
        let cross_axes = ["query (target)", "key (source)"];
        let parts = vec![
            head_maps("Encoder", AXES, encoder, source, weights.encoder)?,
            head_maps("Decoder", AXES, decoder, input, weights.decoder)?,
            head_maps("Cross-attention", cross_axes, cross, source, weights.cross)?,
        ];
        Ok(AttentionView {
            selection,
            parts,
            ..AttentionView::default()
        })
    }
}

impl TaskModel for Seq2Seq {
    type Section = Seq2SeqSpec;

    fn parameters(&self) -> usize {
        Seq2Seq::parameters(self)
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
        let output = if is_training && teacher_forcing < 1.0 {
            let seed = next_seed(&source.ids().device());
            self.forward(source, target, teacher_forcing, seed)
        } else {
            self.forward(source, target, 1.0, 0)
        };
        Ok((output.logits, None))
    }

    fn encode(&self, source: &Tokens) -> Result<Self::State, ModelError> {
        Ok(self.start(source))
    }

    fn attention_parts(&self, pair: PairTokens, _: &Queries) -> Result<AttentionView> {
        // Full teacher forcing: nothing is sampled.
        let weights = self.forward(&pair.source, &pair.input, 1.0, 0).alignment;
        let weights = to_matrix(weights)?;
        let alignment = Alignment::new("Alignment", pair.source_texts, pair.output_texts, weights)?;
        Ok(AttentionView {
            parts: vec![Part::Alignment(alignment)],
            ..AttentionView::default()
        })
    }
}

impl<M: TranslationModel> Task for Translation<M> {
    type Model = M;
    type Texts = Vec<Pair>;
    type TokenData = Vec<PairIds>;
    type Example = PairIds;

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

    fn tokenizers(&self) -> (&Tokenizer, Option<&Tokenizer>) {
        (self.tokenizers.source(), Some(self.tokenizers.target()))
    }

    fn encode(
        &self,
        config: &Config,
        split: DataSplit,
        texts: &Vec<Pair>,
        note: Note<'_>,
    ) -> Result<Vec<PairIds>> {
        let mut ids = self.tokenizers.encode(texts)?;
        // Evaluation data is not shortened: metrics are on the whole set.
        if let (Data::Parallel(data), DataSplit::Train) = (&config.data, split) {
            shorten(LengthRule::Drop, split, &mut ids, data.max_length, note)?;
        }
        Ok(ids)
    }

    fn model(&self, section: &Section<Self>, device: &Device) -> Result<M, ModelError> {
        let sizes = [self.tokenizers.source(), self.tokenizers.target()].map(|it| it.vocab_size());
        M::init(section, sizes, device)
    }

    fn loss(
        model: &M,
        examples: &[&PairIds],
        label_smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let [source_limits, target_limits] = model.limits();
        let sources: Vec<&[u32]> = examples.iter().map(|it| it.source.as_slice()).collect();
        let inputs: Vec<Vec<u32>> = examples.iter().map(|it| it.decoder_input()).collect();
        let outputs: Vec<Vec<u32>> = examples.iter().map(|it| it.decoder_output()).collect();
        let source = Tokens::new(&sources, source_limits, device)?;
        let input = Tokens::new(&inputs, target_limits, device)?;
        let output = Tokens::new(&outputs, target_limits, device)?;
        let (logits, penalty) = model.logits(&source, &input, device.is_autodiff())?;
        let loss = token_loss(logits, &output, label_smoothing);
        Ok(add_penalty(loss, penalty))
    }

    fn task_metrics(
        &self,
        model: &M,
        examples: &[PairIds],
        texts: &Vec<Pair>,
        evaluator: &Evaluator,
    ) -> Result<(TaskMetrics, Vec<Sample>)> {
        let config = evaluator.generate.as_ref().ok_or_else(no_decoding)?;
        let generated = generate_batches(model, examples, config, &evaluator.device)?;
        let mut exact = Accuracy::default();
        let mut bleu = evaluator.bleu.counts();
        let mut chrf = Chrf::default().counts();
        let mut hypotheses = vec![];
        let mut samples = vec![];
        for ((example, texts), hypotheses_of_row) in examples.iter().zip(texts).zip(generated) {
            let best = hypotheses_of_row.into_iter().next();
            let tokens = best.map(|text| text.tokens).unwrap_or_default();
            exact.add(&example.target, &tokens);
            let prediction = self.tokenizers.target().decode(&tokens)?;
            let reference = texts.target.as_str();
            bleu.add(&prediction, &[reference])?;
            chrf.add(&prediction, &[reference])?;
            if samples.len() < evaluator.samples {
                samples.push(Sample {
                    source: texts.source.clone(),
                    reference: Some(texts.target.clone()),
                    prediction: prediction.clone(),
                });
            }
            hypotheses.push(prediction);
        }
        let task_metrics = TaskMetrics::Translation {
            exact,
            bleu: bleu.score()?,
            chrf: chrf.score()?,
            hypotheses,
        };
        Ok((task_metrics, samples))
    }

    fn attention_view(
        &self,
        model: &M,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<AttentionView> {
        let AttentionRequest { text, target, .. } = *request;
        let device = &trained.opened.device;
        let [source_limits, target_limits] = model.limits();
        let source_ids = self.tokenizers.source().encode(text)?;
        check_not_empty("--text", &source_ids)?;
        let source = Tokens::new(&[&source_ids], source_limits, device);
        let source = source.map_err(TrainError::model("--text"))?;
        let (mut output, has_end) = match target {
            Some(target) => (self.tokenizers.target().encode(target)?, true),
            None => {
                let best = decode(model, &source, &generate_config(&trained.config)?)?;
                let best = best.into_iter().flatten().next();
                best.map_or((vec![], true), |text| (text.tokens, text.stop == Stop::End))
            }
        };
        // A text without an end token may have filled the context.
        if has_end || output.is_empty() {
            output.push(EOS);
        }
        let input_ids = [&[BOS], &output[..output.len() - 1]].concat();
        let input = Tokens::new(&[&input_ids], target_limits, device);
        let pair = PairTokens {
            source,
            input: input.map_err(TrainError::model("--target"))?,
            source_texts: token_texts(self.tokenizers.source(), &source_ids),
            input_texts: token_texts(self.tokenizers.target(), &input_ids),
            output_texts: token_texts(self.tokenizers.target(), &output),
        };
        let output = self.tokenizers.target().decode(&output)?;
        let suffix = target.map_or("", |_| " (given target)");
        let mut view = model.attention_parts(pair, &request.queries)?;
        view.notes = vec![format!("{text} → {output}{suffix}")];
        Ok(view)
    }

    fn inference(trained: &TrainedTask<Self>) -> Inference<'_> {
        Inference::Translate(trained)
    }
}

fn generate_batches<M: TranslationModel>(
    model: &M,
    examples: &[PairIds],
    config: &GenerateConfig,
    device: &Device,
) -> Result<Vec<Vec<GeneratedSequence>>> {
    let [limits, _] = model.limits();
    map_batches(examples, |rows| {
        let sources: Vec<&[u32]> = rows.iter().map(|it| it.source.as_slice()).collect();
        let tokens = Tokens::new(&sources, limits, device);
        let tokens = tokens.map_err(TrainError::model("decoding"))?;
        decode(model, &tokens, config)
    })
}

fn decode<M: TranslationModel>(
    model: &M,
    source: &Tokens,
    config: &GenerateConfig,
) -> Result<Vec<Vec<GeneratedSequence>>> {
    let [rows, _] = source.dims();
    let hypotheses = TranslationModel::encode(model, source)
        .and_then(|state| generate(model, state, &vec![[BOS]; rows], config));
    hypotheses.map_err(TrainError::model("decoding"))
}

pub(crate) struct LineTranslation {
    pub(crate) tokens: usize,
    /// The model's context, if the text has more tokens.
    pub(crate) too_long: Option<usize>,
    /// Translations, best first; none for a text that is empty or too long.
    pub(crate) texts: Vec<Hypothesis>,
}

impl LineTranslation {
    /// The number of tokens of a translation that was cut, if there is one.
    pub(crate) fn cut_at(&self) -> Option<usize> {
        self.texts.iter().find_map(|text| text.cut_at)
    }
}

pub(crate) struct Hypothesis {
    pub(crate) text: String,
    /// Log-probability divided by the length penalty.
    pub(crate) score: f64,
    /// The number of tokens, if the maximum length was reached before the end token.
    pub(crate) cut_at: Option<usize>,
}

pub(crate) trait Translator {
    fn vocabulary(&self) -> usize;

    fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<LineTranslation>>;
}

impl<M: TranslationModel> Translator for TrainedTask<Translation<M>> {
    fn vocabulary(&self) -> usize {
        self.task.tokenizers.target().vocab_size()
    }

    fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<LineTranslation>> {
        // An invalid strategy is an error even if all texts are empty.
        let checked = config.check(self.vocabulary());
        checked.map_err(TrainError::model("decoding"))?;
        let tokenizers = &self.task.tokenizers;
        let [limits, _] = self.model.limits();
        let mut translated = vec![];
        let mut examples = vec![];
        for source in tokenizers.source().encode_batch(texts.iter().copied())? {
            let too_long = limits.longest.filter(|longest| source.len() > *longest);
            translated.push(LineTranslation {
                tokens: source.len(),
                too_long,
                texts: vec![],
            });
            if !source.is_empty() && too_long.is_none() {
                let target = vec![];
                examples.push(PairIds { source, target });
            }
        }
        let generated = generate_batches(&self.model, &examples, config, device)?;
        let has_example = |it: &&mut LineTranslation| it.tokens > 0 && it.too_long.is_none();
        for (it, hypotheses) in translated.iter_mut().filter(has_example).zip(generated) {
            for hypothesis in hypotheses {
                let line = tokenizers.target().decode(&hypothesis.tokens)?;
                it.texts.push(Hypothesis {
                    // The translation of a line is one line.
                    text: line.replace(['\n', '\r'], " "),
                    score: hypothesis.score,
                    cut_at: (hypothesis.stop == Stop::Length).then_some(hypothesis.tokens.len()),
                });
            }
        }
        Ok(translated)
    }
}
