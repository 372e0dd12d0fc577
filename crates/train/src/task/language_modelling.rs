//! Language modelling.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use zoo_attention::MultiHeadAttention;
use zoo_config::{Config, GptSpec};
use zoo_data::Tokenizer;
use zoo_models::{Gpt, GptConfig, ModelError, Tokens, generate, token_loss};

use super::tokenizers::{TOKENIZER, single_tokenizer};
use super::{Inference, Note, Task, TaskModel, TextWindow};
use crate::attend::{
    AXES, AttentionRequest, AttentionView, check_not_empty, head_maps, token_texts,
};
use crate::evaluate::{Evaluator, Sample, TaskMetrics};
use crate::trained::TrainedTask;
use crate::{DataSplit, Result, TrainError, TrainedRun};

impl TaskModel for Gpt {
    type Section = GptSpec;

    fn parameters(&self) -> usize {
        Gpt::parameters(self)
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }

    fn context(&self) -> usize {
        self.config().spec.context
    }
}

#[derive(Debug)]
pub(crate) struct LanguageModelling {
    pub(crate) tokenizer: Tokenizer,
}

impl Task for LanguageModelling {
    type Model = Gpt;
    type Texts = String;
    type TokenData = Vec<u32>;
    type Example = TextWindow;

    fn prepare(config: &Config, train: &String) -> Result<Self> {
        let tokenizer = single_tokenizer(config, std::iter::once(train.as_str()))?;
        Ok(Self { tokenizer })
    }

    fn load(folder: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::load(&folder.join(TOKENIZER))?;
        Ok(Self { tokenizer })
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![(TOKENIZER, self.tokenizer.to_json()?)])
    }

    fn tokenizers(&self) -> (&Tokenizer, Option<&Tokenizer>) {
        (&self.tokenizer, None)
    }

    fn encode(&self, _: &Config, _: DataSplit, text: &String, _: Note<'_>) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode(text)?)
    }

    fn model(&self, section: &GptSpec, device: &Device) -> Result<Gpt, ModelError> {
        let config = GptConfig {
            vocabulary: self.tokenizer.vocab_size(),
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn loss(
        model: &Gpt,
        examples: &[&TextWindow],
        label_smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let inputs: Vec<&[u32]> = examples.iter().map(|it| it.input.as_slice()).collect();
        let targets: Vec<&[u32]> = examples.iter().map(|it| it.target.as_slice()).collect();
        let inputs = Tokens::new(&inputs, model.limits(), device)?;
        let targets = Tokens::new(&targets, model.limits(), device)?;
        let penalty = model.config().spec.entropy_penalty;
        if penalty == 0.0 || !device.is_autodiff() {
            let logits = model.forward(&inputs);
            return Ok(token_loss(logits, &targets, label_smoothing));
        }
        let (logits, entropy) = model.forward_with_entropy(&inputs)?;
        Ok(token_loss(logits, &targets, label_smoothing) + entropy.mul_scalar(penalty))
    }

    fn task_metrics(
        &self,
        model: &Gpt,
        examples: &[TextWindow],
        _: &String,
        evaluator: &Evaluator,
    ) -> Result<(TaskMetrics, Vec<Sample>)> {
        let mut samples = vec![];
        if let (Some(config), Some(first), 1..) =
            (&evaluator.generate, examples.first(), evaluator.samples)
        {
            // Continuations of the first few tokens of the evaluation data.
            let prompt = &first.input[..first.input.len().min(16)];
            let prompts = vec![prompt; evaluator.samples];
            let texts = model
                .start(prompts.len())
                .and_then(|state| generate(model, state, &prompts, config))
                .map_err(TrainError::model("decoding"))?;
            for best in texts.iter().filter_map(|texts| texts.first()) {
                samples.push(Sample {
                    source: self.tokenizer.decode(prompt)?,
                    reference: None,
                    prediction: self.tokenizer.decode(&best.tokens)?,
                });
            }
        }
        Ok((TaskMetrics::LanguageModelling, samples))
    }

    fn attention_view(
        &self,
        model: &Gpt,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<AttentionView> {
        let ids = self.tokenizer.encode(request.text)?;
        check_not_empty("--text", &ids)?;
        let tokens = Tokens::new(&[&ids], model.limits(), &trained.opened.device);
        let tokens = tokens.map_err(TrainError::model("--text"))?;
        let labels = token_texts(&self.tokenizer, &ids);
        request.queries.check(&[ids.len()])?;
        let heads = model.layers.len() * model.config().spec.n_heads;
        let lengths = [ids.len(), ids.len()];
        let mut selection = vec![];
        let rows = request
            .queries
            .rows("text", lengths, heads, &mut selection)?;
        let weights = model.attention_weights_of(&tokens, &rows);
        let queries = (&*labels, &*rows);
        Ok(AttentionView {
            notes: vec![request.text.to_owned()],
            selection,
            parts: vec![head_maps(
                "Self-attention",
                AXES,
                queries,
                &labels,
                weights,
            )?],
        })
    }

    fn inference(trained: &TrainedTask<Self>) -> Inference<'_> {
        Inference::Generate(trained)
    }
}
