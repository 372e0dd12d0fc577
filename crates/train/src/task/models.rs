//! The config's `[model]`, as the models of zoo-models, which know no files.

use zoo_attention::MultiHeadAttention;
use zoo_config::{
    Activation, Alignment, Cell, ClassifierModel, Feeding, GptModel, HanModel, Norm, Pooling,
    Positions, Seq2SeqModel, TransformerModel, Tying,
};
use zoo_models::{
    AlignmentConfig, Classifier, ClassifierConfig, Gpt, GptConfig, Han, HanConfig, PositionsConfig,
    Seq2Seq, Seq2SeqConfig, Summary, Transformer, TransformerConfig,
};

use super::TaskModel;

impl TaskModel for Transformer {
    type Section = TransformerModel;

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
    type Section = Seq2SeqModel;

    fn summary(&self) -> Summary {
        self.summary()
    }
}

impl TaskModel for Gpt {
    type Section = GptModel;

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }
}

impl TaskModel for Classifier {
    type Section = ClassifierModel;

    fn summary(&self) -> Summary {
        self.summary()
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }
}

impl TaskModel for Han {
    type Section = HanModel;

    fn summary(&self) -> Summary {
        self.summary()
    }
}

/// A Transformer for two vocabularies of these sizes.
pub(super) fn transformer(
    said: &TransformerModel,
    source_vocabulary: usize,
    target_vocabulary: usize,
) -> TransformerConfig {
    TransformerConfig::new(source_vocabulary, target_vocabulary)
        .with_d_model(said.d_model)
        .with_heads(said.heads)
        .with_kv_heads(said.kv_heads)
        .with_encoder_layers(said.encoder_layers.unwrap_or(said.layers))
        .with_decoder_layers(said.decoder_layers.unwrap_or(said.layers))
        .with_d_feed_forward(said.d_feed_forward)
        .with_norm(norm(said.norm))
        .with_final_norm(said.final_norm)
        .with_activation(activation(said.activation))
        .with_positions(positions(&said.positions))
        .with_tying(tying(said.tying))
        .with_scale_embeddings(said.scale_embeddings)
        .with_encoder_mechanism(said.encoder_attention)
        .with_decoder_mechanism(said.decoder_attention)
        .with_cross_mechanism(said.cross_attention)
        .with_dropout(said.dropout)
        .with_feed_forward_dropout(said.feed_forward_dropout)
        .with_attention_dropout(said.attention_dropout)
        .with_bias(said.bias)
        .with_epsilon(said.epsilon)
}

/// A recurrent model for two vocabularies of these sizes.
pub(super) fn seq2seq(
    said: &Seq2SeqModel,
    source_vocabulary: usize,
    target_vocabulary: usize,
) -> Seq2SeqConfig {
    Seq2SeqConfig::new(source_vocabulary, target_vocabulary)
        .with_d_embedding(said.d_embedding)
        .with_d_hidden(said.d_hidden)
        .with_encoder_layers(said.encoder_layers.unwrap_or(said.layers))
        .with_decoder_layers(said.decoder_layers.unwrap_or(said.layers))
        .with_attention(match &said.attention {
            Alignment::Additive => AlignmentConfig::Additive,
            Alignment::Dot => AlignmentConfig::Dot,
            Alignment::General => AlignmentConfig::General,
            Alignment::LocalM(said) => AlignmentConfig::LocalM {
                window: said.window,
            },
            Alignment::LocalP(said) => AlignmentConfig::LocalP {
                window: said.window,
            },
        })
        .with_feeding(match said.feeding {
            Feeding::None => zoo_models::Feeding::None,
            Feeding::Input => zoo_models::Feeding::Input,
            Feeding::Context => zoo_models::Feeding::Context,
        })
        .with_tying(tying(said.tying))
        .with_dropout(said.dropout)
}

/// A hierarchical attention network for so many words and classes.
pub(super) fn han(said: &HanModel, vocabulary: usize, classes: usize) -> HanConfig {
    HanConfig::new(vocabulary, classes)
        .with_d_embedding(said.d_embedding)
        .with_d_word(said.d_word)
        .with_d_sentence(said.d_sentence)
        .with_d_attention(said.d_attention)
        .with_cell(match said.cell {
            Cell::Gru => zoo_kernels::recurrent::Cell::Gru,
            Cell::Lstm => zoo_kernels::recurrent::Cell::Lstm,
        })
        .with_dropout(said.dropout)
}

/// A GPT for so many tokens.
pub(super) fn gpt(said: &GptModel, vocabulary: usize) -> GptConfig {
    GptConfig::new(vocabulary, said.d_model, said.heads, said.layers)
        .with_kv_heads(said.kv_heads)
        .with_d_feed_forward(said.d_feed_forward)
        .with_mechanism(said.attention)
        .with_positions(positions(&said.positions))
        .with_activation(activation(said.activation))
        .with_tied(said.tied)
        .with_dropout(said.dropout)
        .with_feed_forward_dropout(said.feed_forward_dropout)
        .with_attention_dropout(said.attention_dropout)
        .with_bias(said.bias)
        .with_epsilon(said.epsilon)
}

/// A classifier for so many tokens and classes.
pub(super) fn classifier(
    said: &ClassifierModel,
    vocabulary: usize,
    classes: usize,
) -> ClassifierConfig {
    ClassifierConfig::new(vocabulary, classes, said.d_model, said.heads, said.layers)
        .with_kv_heads(said.kv_heads)
        .with_d_feed_forward(said.d_feed_forward)
        .with_mechanism(said.attention)
        .with_pooling(match said.pooling {
            Pooling::Cls => zoo_models::Pooling::Cls,
            Pooling::Mean => zoo_models::Pooling::Mean,
            Pooling::Attention => zoo_models::Pooling::Attention,
        })
        .with_norm(norm(said.norm))
        .with_final_norm(said.final_norm)
        .with_activation(activation(said.activation))
        .with_positions(positions(&said.positions))
        .with_scale_embeddings(said.scale_embeddings)
        .with_dropout(said.dropout)
        .with_feed_forward_dropout(said.feed_forward_dropout)
        .with_attention_dropout(said.attention_dropout)
        .with_bias(said.bias)
        .with_epsilon(said.epsilon)
}

fn norm(said: Norm) -> zoo_models::Norm {
    match said {
        Norm::Pre => zoo_models::Norm::Pre,
        Norm::Post => zoo_models::Norm::Post,
    }
}

fn activation(said: Activation) -> zoo_models::Activation {
    match said {
        Activation::Relu => zoo_models::Activation::Relu,
        Activation::Gelu => zoo_models::Activation::Gelu,
        Activation::GeluTanh => zoo_models::Activation::GeluTanh,
        Activation::Swiglu => zoo_models::Activation::Swiglu,
    }
}

fn tying(said: Tying) -> zoo_models::Tying {
    match said {
        Tying::None => zoo_models::Tying::None,
        Tying::Decoder => zoo_models::Tying::Decoder,
        Tying::All => zoo_models::Tying::All,
    }
}

fn positions(said: &Positions) -> PositionsConfig {
    match said {
        Positions::None => PositionsConfig::None,
        Positions::Sinusoidal => PositionsConfig::Sinusoidal,
        // A config that was read has every length in it.
        Positions::Learned(said) => PositionsConfig::Learned {
            longest: said.longest.unwrap_or(0),
        },
        Positions::Rotary(said) => PositionsConfig::Rotary { theta: said.theta },
        Positions::Alibi => PositionsConfig::Alibi,
    }
}
