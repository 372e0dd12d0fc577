//! The models that tasks are trained with.

use zoo_attention::MultiHeadAttention;
use zoo_models::{
    Classifier, ClassifierSpec, Gpt, GptSpec, Han, HanSpec, Seq2Seq, Seq2SeqSpec, Summary,
    Transformer, TransformerSpec,
};

use super::TaskModel;

impl TaskModel for Transformer {
    type Section = TransformerSpec;

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        let encoder = self.encoder.layers.iter().map(|layer| &layer.attention);
        let decoder = self.decoder.layers.iter();
        let decoder = decoder.flat_map(|layer| [&layer.attention, &layer.cross_attention]);
        encoder.chain(decoder).collect()
    }
}

impl TaskModel for Seq2Seq {
    type Section = Seq2SeqSpec;

    fn summary(&self) -> Summary {
        self.summary()
    }
}

impl TaskModel for Gpt {
    type Section = GptSpec;

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }
}

impl TaskModel for Classifier {
    type Section = ClassifierSpec;

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }
}

impl TaskModel for Han {
    type Section = HanSpec;

    fn summary(&self) -> Summary {
        self.summary()
    }
}
