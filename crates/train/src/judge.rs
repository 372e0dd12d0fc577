//! How good a model is at what it was trained for: in loss, and in what people publish.

use burn::tensor::{Device, Tensor};
use zoo_config::{Config, Metric, WordRule};
use zoo_data::metrics::{Accuracy, Bleu, BleuScore, Chrf, ChrfScore, ConfusionMatrix, Perplexity};
use zoo_data::{
    BatchSize, Batching, DocumentIds, Encoded, LabelledIds, Labels, Pair, PairIds, PairTokenizers,
    Tokenizer,
};
use zoo_models::{
    Classifier, Documents, GenerateConfig, Gpt, Han, ModelError, Seq2Seq, Tokens, Transformer,
    generate,
};

use crate::TrainError;
use crate::learn::{Example, Learns, TextWindow};
use crate::write::Translates;

/// Examples that are looked at side by side.
const ROWS: usize = 64;

/// How good a model was.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The mean loss of what was to be said, and over how much.
    pub loss: Perplexity,
    /// What came of it.
    pub outcome: Outcome,
    /// Some of what the model said.
    pub samples: Vec<Sample>,
}

/// What came of a validation or a test.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Texts were written.
    Texts {
        /// Those that are right in every token.
        exact: Accuracy,
        /// As translations.
        bleu: BleuScore,
        /// As translations, by characters.
        chrf: ChrfScore,
        /// What was written, in the order of the examples.
        hypotheses: Vec<String>,
    },
    /// Classes were told.
    Classes(ConfusionMatrix),
    /// Text was gone on with: there is the loss alone.
    Continuation,
}

/// Something that a model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// What it was given.
    pub given: String,
    /// What was wanted, if one thing was.
    pub wanted: Option<String>,
    /// What it said.
    pub said: String,
}

impl Judgement {
    /// One number of it; nothing for what this task has not.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        match (metric, &self.outcome) {
            (Metric::Loss, _) => self.loss.loss(),
            (Metric::Perplexity, _) => self.loss.value(),
            (Metric::Exact, Outcome::Texts { exact, .. }) => exact.sequences(),
            (Metric::Bleu, Outcome::Texts { bleu, .. }) => Some(bleu.score),
            (Metric::Chrf, Outcome::Texts { chrf, .. }) => Some(chrf.score),
            (Metric::Accuracy, Outcome::Classes(matrix)) => matrix.accuracy(),
            (Metric::MacroF1, Outcome::Classes(matrix)) => matrix.macro_f1(),
            _ => None,
        }
    }

    /// All its numbers, by their names.
    pub fn values(&self) -> Vec<(Metric, f64)> {
        let all = [
            Metric::Loss,
            Metric::Perplexity,
            Metric::Exact,
            Metric::Bleu,
            Metric::Chrf,
            Metric::Accuracy,
            Metric::MacroF1,
        ];
        let of_classes = matches!(self.outcome, Outcome::Classes(_));
        all.into_iter()
            // Nobody counts classes in perplexity.
            .filter(|metric| !(of_classes && *metric == Metric::Perplexity))
            .filter_map(|metric| Some((metric, self.value(metric)?)))
            .collect()
    }
}

/// What it takes to judge, beside a model and examples.
#[derive(Debug, Clone)]
pub struct Judge {
    /// How texts are written, by models that write any.
    pub generate: Option<GenerateConfig>,
    /// How translations are compared.
    pub bleu: Bleu,
    /// Examples whose result is shown.
    pub samples: usize,
    /// Where to compute.
    pub device: Device,
}

/// Examples with what is needed to read them.
pub struct Exam<'a, Example> {
    /// The examples.
    pub examples: &'a [Example],
    /// The texts they are made of.
    pub texts: &'a [Pair],
    /// What makes tokens of texts.
    pub speech: Speech<'a>,
}

/// What makes tokens of texts, and texts of tokens.
#[derive(Debug, Clone, Copy)]
pub enum Speech<'a> {
    /// Of pairs.
    Pair(&'a PairTokenizers),
    /// Of texts and their classes.
    Labelled(&'a Tokenizer, &'a Labels),
    /// Of running text.
    Plain(&'a Tokenizer),
}

/// A model that can be judged: every one that learns.
pub trait Judged: Learns {
    /// How good it is at the examples.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if it cannot take one of them.
    fn judge(&self, exam: &Exam<'_, Self::Example>, judge: &Judge)
    -> Result<Judgement, TrainError>;
}

/// How BLEU takes the words of the config's texts.
pub fn bleu_of(config: &Config) -> Bleu {
    let tokenizer = match &config.tokenizer {
        // Words lie between spaces already, and cutting them again would count others.
        zoo_config::Tokenizer::Word(said) if said.words == Some(WordRule::Spaces) => {
            zoo_data::metrics::Tokenizer::None
        }
        zoo_config::Tokenizer::Bpe(said) if said.words == Some(WordRule::Spaces) => {
            zoo_data::metrics::Tokenizer::None
        }
        _ if writes_chinese(config) => zoo_data::metrics::Tokenizer::Zh,
        _ => zoo_data::metrics::Tokenizer::V13a,
    };
    Bleu {
        tokenizer,
        ..Bleu::default()
    }
}

fn writes_chinese(config: &Config) -> bool {
    use zoo_config::{Data, Direction};
    matches!(&config.data, Data::Phrases(data) if data.direction == Direction::EnglishToChinese)
}

impl Judged for Transformer {
    fn judge(&self, exam: &Exam<'_, PairIds>, judge: &Judge) -> Result<Judgement, TrainError> {
        judge_pairs(self, exam, judge)
    }
}

impl Judged for Seq2Seq {
    fn judge(&self, exam: &Exam<'_, PairIds>, judge: &Judge) -> Result<Judgement, TrainError> {
        judge_pairs(self, exam, judge)
    }
}

fn judge_pairs<M: Learns<Example = PairIds> + Translates>(
    model: &M,
    exam: &Exam<'_, PairIds>,
    judge: &Judge,
) -> Result<Judgement, TrainError> {
    let Speech::Pair(tokenizers) = exam.speech else {
        unreachable!("pairs are made by tokenizers of pairs");
    };
    let loss = mean_loss(model, exam.examples, &judge.device)?;
    let config = judge
        .generate
        .as_ref()
        .unwrap_or_else(|| unreachable!("a model of pairs writes texts, and its config says how"));
    let sources: Vec<&[u32]> = exam
        .examples
        .iter()
        .map(|it| it.source.as_slice())
        .collect();
    let written = model
        .translate(&sources, config, &judge.device)
        .map_err(TrainError::model("decoding"))?;
    let mut exact = Accuracy::default();
    let mut bleu = judge.bleu.counts()?;
    let mut chrf = Chrf::default().counts()?;
    let mut hypotheses = vec![];
    let mut samples = vec![];
    for ((example, texts), written) in exam.examples.iter().zip(exam.texts).zip(written) {
        let best = written.into_iter().next();
        let tokens = best.map(|text| text.tokens).unwrap_or_default();
        exact.add(&example.target, &tokens);
        let said = tokenizers.target().decode(&tokens)?;
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

impl Judged for Classifier {
    fn judge(&self, exam: &Exam<'_, LabelledIds>, judge: &Judge) -> Result<Judgement, TrainError> {
        let classes = |examples: &[&LabelledIds]| {
            let texts: Vec<&[u32]> = examples.iter().map(|it| it.ids.as_slice()).collect();
            Ok(self.forward(&Tokens::new(&texts, self.limits(), &judge.device)?))
        };
        judge_classes(
            self,
            exam,
            judge,
            |example| example.label,
            |it| it.ids.clone(),
            classes,
        )
    }
}

impl Judged for Han {
    fn judge(&self, exam: &Exam<'_, DocumentIds>, judge: &Judge) -> Result<Judgement, TrainError> {
        let classes = |examples: &[&DocumentIds]| {
            let documents: Vec<&[Vec<u32>]> = examples.iter().map(|it| &*it.sentences).collect();
            let documents = Documents::new(&documents, self.limits(), &judge.device)?;
            Ok(self.forward(&documents).logits)
        };
        judge_classes(
            self,
            exam,
            judge,
            |example| example.label,
            |it| it.sentences.concat(),
            classes,
        )
    }
}

fn judge_classes<M: Learns>(
    model: &M,
    exam: &Exam<'_, M::Example>,
    judge: &Judge,
    label: impl Fn(&M::Example) -> usize,
    ids: impl Fn(&M::Example) -> Vec<u32>,
    logits: impl Fn(&[&M::Example]) -> Result<Tensor<2>, ModelError>,
) -> Result<Judgement, TrainError>
where
    M::Example: Encoded,
{
    let Speech::Labelled(tokenizer, labels) = exam.speech else {
        unreachable!("documents are made by a tokenizer, and have classes");
    };
    let mut matrix = ConfusionMatrix::new(labels.names().iter().map(String::as_str))?;
    let mut told = vec![0; exam.examples.len()];
    let mut loss = Perplexity::default();
    for places in in_batches(exam.examples)? {
        let rows: Vec<&M::Example> = places.iter().map(|at| &exam.examples[*at]).collect();
        let classes = logits(&rows)
            .map_err(TrainError::model("validation"))?
            .argmax(1)
            .into_data()
            .iter::<i64>()
            .collect::<Vec<_>>();
        for (at, class) in places.iter().zip(classes) {
            told[*at] = class as usize;
        }
        add_loss(model, &rows, &judge.device, &mut loss)?;
    }
    let name = |class: usize| labels.name(class).unwrap_or("?").to_owned();
    let mut samples = vec![];
    for (example, class) in exam.examples.iter().zip(&told) {
        matrix.add(label(example), *class)?;
        if samples.len() < judge.samples {
            samples.push(Sample {
                given: tokenizer.decode(&ids(example))?,
                wanted: Some(name(label(example))),
                said: name(*class),
            });
        }
    }
    Ok(Judgement {
        loss,
        outcome: Outcome::Classes(matrix),
        samples,
    })
}

impl Judged for Gpt {
    fn judge(&self, exam: &Exam<'_, TextWindow>, judge: &Judge) -> Result<Judgement, TrainError> {
        let Speech::Plain(tokenizer) = exam.speech else {
            unreachable!("running text is made by a tokenizer");
        };
        let mut loss = Perplexity::default();
        for windows in exam.examples.chunks(ROWS) {
            let windows: Vec<&TextWindow> = windows.iter().collect();
            add_loss(self, &windows, &judge.device, &mut loss)?;
        }
        let samples = match (&judge.generate, exam.examples.first()) {
            (Some(config), Some(first)) if judge.samples > 0 => {
                // The first few tokens of what it has not seen, to be gone on with.
                let given = &first.input[..first.input.len().min(16)];
                let prompts = vec![given; judge.samples];
                let state = self
                    .start(prompts.len())
                    .map_err(TrainError::model("decoding"))?;
                let texts = generate(self, state, &prompts, config)
                    .map_err(TrainError::model("decoding"))?;
                texts
                    .into_iter()
                    .filter_map(|texts| texts.into_iter().next())
                    .map(|text| {
                        Ok(Sample {
                            given: tokenizer.decode(given)?,
                            wanted: None,
                            said: tokenizer.decode(&text.tokens)?,
                        })
                    })
                    .collect::<Result<_, TrainError>>()?
            }
            _ => vec![],
        };
        Ok(Judgement {
            loss,
            outcome: Outcome::Continuation,
            samples,
        })
    }
}

/// The loss of a model on examples that are its own kind, by batches of about the same length.
fn mean_loss<M: Learns>(
    model: &M,
    examples: &[M::Example],
    device: &Device,
) -> Result<Perplexity, TrainError>
where
    M::Example: Encoded,
{
    let mut loss = Perplexity::default();
    for places in in_batches(examples)? {
        let rows: Vec<&M::Example> = places.iter().map(|at| &examples[*at]).collect();
        add_loss(model, &rows, device, &mut loss)?;
    }
    Ok(loss)
}

fn add_loss<M: Learns>(
    model: &M,
    rows: &[&M::Example],
    device: &Device,
    loss: &mut Perplexity,
) -> Result<(), TrainError> {
    let mean = model
        .loss(rows, 0.0, device)
        .map_err(TrainError::model("validation"))?
        .into_scalar::<f32>();
    loss.add(f64::from(mean), rows.iter().map(|row| row.said()).sum());
    Ok(())
}

fn in_batches<E: Encoded>(examples: &[E]) -> Result<Vec<Vec<usize>>, TrainError> {
    let extents = examples.iter().map(Encoded::extent).collect();
    // The order is by length: there is nothing to draw.
    let plan = Batching::new(BatchSize::Examples(ROWS), 0).plan(extents)?;
    Ok(plan.in_order())
}
