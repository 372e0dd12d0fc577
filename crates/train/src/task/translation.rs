//! Texts that are made of texts.

use std::marker::PhantomData;
use std::path::Path;

use burn::tensor::{Device, Tensor};
use zoo_attention::next_seed;
use zoo_config::{Config, Data, Seq2SeqSpec, TransformerSpec};
use zoo_data::metrics::{Accuracy, Chrf, CorpusMetric, Perplexity};
use zoo_data::{
    BEGIN, END, LengthRule, Pair, PairIds, PairTokenizers, ParallelText, Parts, Tokenizer, UNKNOWN,
};
use zoo_models::{
    GenerateConfig, Generated, Limits, ModelError, Seq2Seq, Seq2SeqConfig, Stop, Tokens,
    Transformer, TransformerConfig, generate, token_loss,
};
use zoo_viz::{Alignment, Part, PictureError};

use super::texts::{read_pairs, taken};
use super::tokens::{pair_tokenizers, shorten};
use super::{Note, ROWS, Section, Task, TaskModel, add_loss, in_batches};
use crate::attend::{Seen, maps, matrix, not_empty, written};
use crate::generate::{decoding, generate_config};
use crate::judge::{Judge, Judgement, Outcome, Sample};
use crate::trained::TrainedTask;
use crate::{DataPart, Source, TrainError, Trained};

/// Learning to write a text for a text: translation, and everything that has its form.
#[derive(Debug)]
pub struct Translation<M: TranslationModel> {
    section: M::Section,
    tokenizers: PairTokenizers,
    model: PhantomData<fn() -> M>,
}

/// A model that reads a source and writes a target.
pub trait TranslationModel: TaskModel {
    /// The model for two vocabularies of these sizes.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if there is no such model.
    fn init(
        section: &Self::Section,
        source: usize,
        target: usize,
        device: &Device,
    ) -> Result<Self, ModelError>;

    /// Tokens that an example may have, if that is limited.
    fn longest(section: &Self::Section) -> Option<usize>;

    /// What it takes as source and as target.
    fn limits(&self) -> [Limits; 2];

    /// What it predicts for each token of a target, `[batch, target, vocabulary]`.
    fn logits(&self, source: &Tokens, target: &Tokens) -> Tensor<3>;

    /// The logits of a training pass, and what is added to its loss.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if there is no such addition for the model's mechanisms.
    fn train_logits(
        &self,
        source: &Tokens,
        target: &Tokens,
    ) -> Result<(Tensor<3>, Option<Tensor<1>>), ModelError>;

    /// The texts that it writes for each source, the best first.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the strategy cannot be.
    fn write(
        &self,
        source: &Tokens,
        config: &GenerateConfig,
    ) -> Result<Vec<Vec<Generated>>, ModelError>;

    /// Where it attends to while it reads a source and writes a target, and which part of that
    /// says most. A model with three parts has them in the order of [`Side`](crate::Side).
    ///
    /// # Errors
    ///
    /// [`PictureError`] if that cannot be drawn.
    fn look(
        &self,
        source: &Tokens,
        target: &Tokens,
        texts: &PairTexts,
    ) -> Result<Vec<Part>, PictureError>;
}

/// A pair as texts of tokens.
pub struct PairTexts {
    source: Vec<String>,
    /// What the decoder is given.
    input: Vec<String>,
    /// What it writes, token by token.
    output: Vec<String>,
}

impl TranslationModel for Transformer {
    fn init(
        section: &TransformerSpec,
        source: usize,
        target: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let config = TransformerConfig {
            source_vocabulary: source,
            target_vocabulary: target,
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn longest(section: &TransformerSpec) -> Option<usize> {
        section.positions.longest()
    }

    fn limits(&self) -> [Limits; 2] {
        [self.source_limits(), self.target_limits()]
    }

    fn logits(&self, source: &Tokens, target: &Tokens) -> Tensor<3> {
        self.forward(source, target)
    }

    fn train_logits(
        &self,
        source: &Tokens,
        target: &Tokens,
    ) -> Result<(Tensor<3>, Option<Tensor<1>>), ModelError> {
        let penalty = self.config().spec.entropy_penalty;
        if penalty == 0.0 {
            return Ok((self.forward(source, target), None));
        }
        let (logits, entropy) = self.forward_with_entropy(source, target)?;
        Ok((logits, Some(entropy.mul_scalar(penalty))))
    }

    fn write(
        &self,
        source: &Tokens,
        config: &GenerateConfig,
    ) -> Result<Vec<Vec<Generated>>, ModelError> {
        let [rows, _] = source.dims();
        generate(self, self.start(source)?, &vec![[BEGIN]; rows], config)
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
        source: usize,
        target: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let config = Seq2SeqConfig {
            source_vocabulary: source,
            target_vocabulary: target,
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn longest(_: &Seq2SeqSpec) -> Option<usize> {
        None
    }

    fn limits(&self) -> [Limits; 2] {
        [self.source_limits(), self.target_limits()]
    }

    fn logits(&self, source: &Tokens, target: &Tokens) -> Tensor<3> {
        self.forward(source, target, 1.0, 0).logits
    }

    fn train_logits(
        &self,
        source: &Tokens,
        target: &Tokens,
    ) -> Result<(Tensor<3>, Option<Tensor<1>>), ModelError> {
        let teacher_forcing = self.config().spec.teacher_forcing;
        if teacher_forcing == 1.0 {
            return Ok((self.logits(source, target), None));
        }
        let seed = next_seed(&source.ids().device());
        let output = self.forward(source, target, teacher_forcing, seed);
        Ok((output.logits, None))
    }

    fn write(
        &self,
        source: &Tokens,
        config: &GenerateConfig,
    ) -> Result<Vec<Vec<Generated>>, ModelError> {
        let [rows, _] = source.dims();
        generate(self, self.start(source), &vec![[BEGIN]; rows], config)
    }

    fn look(
        &self,
        source: &Tokens,
        target: &Tokens,
        texts: &PairTexts,
    ) -> Result<Vec<Part>, PictureError> {
        // Every token is the target's: nothing is drawn.
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

    const UNIT: &'static str = "pairs";
    const FILES: &'static str = "--source FILE with --target FILE";
    const USAGE: &'static str = "`zoo translate` writes texts with it";

    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Vec<Pair>>, TrainError> {
        read_pairs(config, note)
    }

    fn read_files(
        _: &Config,
        source: &Source,
        note: Note<'_>,
    ) -> Result<Option<Vec<Pair>>, TrainError> {
        match source {
            Source::Parallel(source, target) => {
                taken(ParallelText::files(source, target).read()?, note).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn size(texts: &Vec<Pair>) -> usize {
        texts.len()
    }

    fn prepare(
        config: &Config,
        section: &Section<Self>,
        train: &Vec<Pair>,
    ) -> Result<Self, TrainError> {
        Ok(Self {
            section: section.clone(),
            tokenizers: pair_tokenizers(config, train)?,
            model: PhantomData,
        })
    }

    fn load(section: &Section<Self>, folder: &Path) -> Result<Self, TrainError> {
        Ok(Self {
            section: section.clone(),
            tokenizers: PairTokenizers::load(folder)?,
            model: PhantomData,
        })
    }

    fn tokenizers(&self) -> Vec<(&'static str, &Tokenizer)> {
        self.tokenizers.files()
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
    ) -> Result<Vec<PairIds>, TrainError> {
        let mut ids = self.tokenizers.encode(texts)?;
        // What is evaluated stays whole: a number about part of it is none.
        if let (Data::Parallel(data), DataPart::Train) = (&config.data, part) {
            shorten(LengthRule::LeaveOut, part, &mut ids, data.max_length, note)?;
        }
        Ok(ids)
    }

    fn longest(&self) -> Option<usize> {
        M::longest(&self.section)
    }

    fn model(&self, device: &Device) -> Result<M, ModelError> {
        let [source, target] = [self.tokenizers.source(), self.tokenizers.target()];
        M::init(
            &self.section,
            source.vocabulary(),
            target.vocabulary(),
            device,
        )
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
        if !device.is_autodiff() {
            let logits = model.logits(&source, &input);
            return Ok(token_loss(logits, &output, smoothing));
        }
        let (logits, penalty) = model.train_logits(&source, &input)?;
        let loss = token_loss(logits, &output, smoothing);
        Ok(match penalty {
            Some(penalty) => loss + penalty,
            None => loss,
        })
    }

    fn evaluate(
        &self,
        model: &M,
        examples: &[PairIds],
        texts: &Vec<Pair>,
        judge: &Judge,
    ) -> Result<Judgement, TrainError> {
        let mut loss = Perplexity::default();
        for places in in_batches(examples)? {
            let rows: Vec<&PairIds> = places.iter().map(|at| &examples[*at]).collect();
            add_loss::<Self>(model, &rows, &judge.device, &mut loss)?;
        }
        let sources: Vec<&[u32]> = examples.iter().map(|it| it.source.as_slice()).collect();
        let config = decoding(judge.generate.as_ref())?;
        let written =
            write(model, &sources, config, &judge.device).map_err(TrainError::model("decoding"))?;
        let mut exact = Accuracy::default();
        let mut bleu = judge.bleu.counts()?;
        let mut chrf = Chrf::default().counts()?;
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
        Ok(Judgement {
            loss,
            outcome: Outcome::Texts {
                exact,
                bleu: bleu.score()?,
                chrf: chrf.score()?,
                hypotheses,
            },
            samples,
        })
    }

    fn look(
        &self,
        model: &M,
        trained: &Trained,
        text: &str,
        target: Option<&str>,
    ) -> Result<Seen, TrainError> {
        let device = &trained.opened.device;
        let [of_source, of_target] = model.limits();
        let source = self.tokenizers.source().encode(text)?;
        not_empty("--text", &source)?;
        let tokens = Tokens::new(&[&source], of_source, device);
        let tokens = tokens.map_err(TrainError::model("--text"))?;
        let (mut output, has_end) = match target {
            Some(target) => (self.tokenizers.target().encode(target)?, true),
            None => {
                let written = model.write(&tokens, &generate_config(&trained.config)?);
                let written = written.map_err(TrainError::model("decoding"))?;
                let best = written.into_iter().flatten().next();
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

/// The texts that a model writes for each source, the best first, by batches of about the same
/// length.
fn write<M: TranslationModel>(
    model: &M,
    sources: &[&[u32]],
    config: &GenerateConfig,
    device: &Device,
) -> Result<Vec<Vec<Generated>>, ModelError> {
    let [limits, _] = model.limits();
    by_length(sources, |rows| {
        model.write(&Tokens::new(rows, limits, device)?, config)
    })
}

/// Does something for batches of about the same length, and gives the results in the order
/// they were asked for.
fn by_length<T>(
    sources: &[&[u32]],
    mut of_batch: impl FnMut(&[&[u32]]) -> Result<Vec<T>, ModelError>,
) -> Result<Vec<T>, ModelError> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|at| sources[*at].len());
    let mut results: Vec<Option<T>> = sources.iter().map(|_| None).collect();
    for places in order.chunks(ROWS) {
        let rows: Vec<&[u32]> = places.iter().map(|at| sources[*at]).collect();
        for (at, result) in places.iter().zip(of_batch(&rows)?) {
            results[*at] = Some(result);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// What became of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Translated {
    /// What was written for it, the best first.
    Texts(Vec<Written>),
    /// There is nothing in it, and so nothing was written.
    Empty,
    /// It has more tokens than the model has positions, and nothing was written.
    TooLong {
        /// Its tokens.
        length: usize,
        /// Positions there are.
        longest: usize,
    },
}

/// A text that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The text.
    pub text: String,
    /// What texts are compared by: the logarithm of how likely the model thinks it, divided by
    /// the length penalty.
    pub score: f64,
}

/// A trained model that writes texts for texts.
pub trait Translates {
    /// The size of the vocabulary that it writes in.
    fn vocabulary(&self) -> usize;

    /// How many tokens each of these texts becomes, and how many of them are unknown: the model
    /// sees that there is something, and not what.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`].
    fn unknown_tokens(&self, texts: &[&str]) -> Result<Vec<(usize, usize)>, TrainError>;

    /// What it writes for each of the texts, in their order.
    ///
    /// # Errors
    ///
    /// [`TrainError::Model`] if the strategy cannot be.
    fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Translated>, TrainError>;
}

impl<M: TranslationModel> Translates for TrainedTask<Translation<M>> {
    fn vocabulary(&self) -> usize {
        self.task.tokenizers.target().vocabulary()
    }

    fn unknown_tokens(&self, texts: &[&str]) -> Result<Vec<(usize, usize)>, TrainError> {
        let source = self.task.tokenizers.source();
        let ids = source.encode_all(texts.iter().copied())?;
        let counts = ids.iter().map(|ids| {
            let unknown = ids.iter().filter(|id| **id == UNKNOWN).count();
            (ids.len(), unknown)
        });
        Ok(counts.collect())
    }

    fn translate(
        &self,
        texts: &[&str],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Translated>, TrainError> {
        let tokenizers = &self.task.tokenizers;
        let [limits, _] = self.model.limits();
        let ids = tokenizers.source().encode_all(texts.iter().copied())?;
        let too_long = |ids: &[u32]| limits.longest.filter(|longest| ids.len() > *longest);
        let sources: Vec<&[u32]> = ids
            .iter()
            .map(Vec::as_slice)
            .filter(|ids| !ids.is_empty() && too_long(ids).is_none())
            .collect();
        // Also where there is nothing to write: a strategy that cannot be is an error then, too.
        config
            .check(self.vocabulary())
            .map_err(TrainError::model("decoding"))?;
        let written =
            write(&self.model, &sources, config, device).map_err(TrainError::model("decoding"))?;
        let mut written = written.into_iter();
        let became = |ids: &Vec<u32>| {
            if ids.is_empty() {
                return Ok(Translated::Empty);
            }
            if let Some(longest) = too_long(ids) {
                let length = ids.len();
                return Ok(Translated::TooLong { length, longest });
            }
            let texts = written.next().unwrap_or_default().into_iter().map(|text| {
                // What is written for a line must be one.
                let line = tokenizers.target().decode(&text.tokens)?;
                Ok(Written {
                    score: text.score,
                    text: line.replace(['\n', '\r'], " "),
                })
            });
            Ok(Translated::Texts(texts.collect::<Result<_, TrainError>>()?))
        };
        ids.iter().map(became).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_in_the_order_of_what_was_asked() {
        let long: Vec<Vec<u32>> = (0..200_u32)
            .map(|at| vec![at; (at as usize * 7) % 31])
            .collect();
        let sources: Vec<&[u32]> = long.iter().map(Vec::as_slice).collect();
        let mut batches = 0;
        let lengths = by_length(&sources, |rows| {
            batches += 1;
            assert!(rows.is_sorted_by_key(|row| row.len()));
            Ok(rows.iter().map(|row| row.len()).collect())
        });
        let expected: Vec<usize> = long.iter().map(Vec::len).collect();
        assert_eq!(lengths, Ok(expected));
        assert_eq!(batches, 4);
    }
}
