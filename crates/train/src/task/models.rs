//! `TaskModel` implementations.

use zoo_attention::MultiHeadAttention;
use zoo_models::{
    Classifier, ClassifierSpec, Gpt, GptSpec, Han, HanSpec, Seq2Seq, Seq2SeqSpec, Transformer,
    TransformerSpec,
};

use super::TaskModel;

impl TaskModel for Transformer {
    type Section = TransformerSpec;

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        let encoder = self.encoder.layers.iter().map(|layer| &layer.attention);
        let decoder = self.decoder.layers.iter();
        let decoder = decoder.flat_map(|layer| [&layer.attention, &layer.cross_attention]);
        encoder.chain(decoder).collect()
    }

    fn longest_example(&self) -> Option<usize> {
        self.source_limits().longest
    }
}

impl TaskModel for Seq2Seq {
    type Section = Seq2SeqSpec;
}

impl TaskModel for Gpt {
    type Section = GptSpec;

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }

    fn context(&self) -> usize {
        self.config().spec.context
    }
}

impl TaskModel for Classifier {
    type Section = ClassifierSpec;

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }

    fn longest_example(&self) -> Option<usize> {
        // The class token takes a position.
        let class_token = usize::from(self.cls.is_some());
        Some(self.limits().longest?.saturating_sub(class_token))
    }
}

impl TaskModel for Han {
    type Section = HanSpec;
}
