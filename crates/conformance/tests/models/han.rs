//! The hierarchical attention network: training, padding and empty documents.

use burn::tensor::activation::log_softmax;
use zoo_models::han::HanOutput;
use zoo_models::{Cell, Documents, Han, HanConfig};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_each(
        "han/overfits-with-",
        [Cell::Gru, Cell::Lstm],
        check_overfitting,
    );
    suite.add_table("han/", TESTS);
}

/// A model of 9 words and 2 classes.
fn config() -> HanConfig {
    HanConfig::new(9, 2)
        .with_d_embedding(6)
        .with_d_word(4)
        .with_d_sentence(3)
        .with_d_attention(5)
        .with_dropout(0.0)
}

type Document = Vec<Vec<u32>>;

fn batch(documents: &[Document], device: &Device) -> Documents {
    let limits = Limits {
        vocabulary: 9,
        longest: None,
    };
    must(Documents::new(documents, limits, device))
}

fn documents() -> [Document; 4] {
    [
        vec![vec![1, 2, 3], vec![4]],
        vec![vec![5, 6]],
        vec![vec![2, 1], vec![3, 7, 8]],
        vec![vec![6], vec![5]],
    ]
}

fn check_overfitting(cell: Cell, device: &Device) {
    let device = &device.clone().autodiff();
    let model: Han = config().with_cell(cell).init(device);
    let documents = batch(&documents(), device);
    let classes = Tensor::<1, Int>::from_data([0, 1, 1, 0], device).reshape([4, 1]);
    assert_overfits(0.1, model, |model| {
        let logits = model.forward(&documents).logits;
        -log_softmax(logits, 1).gather(1, classes.clone()).mean()
    })
}

fn assert_near(name: &str, got: &[f32], want: &[f32]) {
    // Two recurrences and two attentions in sequence.
    must(Precision::F32.backward(8.0).compare(name, got, want));
}

fn outputs(output: &HanOutput, document: usize) -> [Vec<f32>; 3] {
    let own = || document..document + 1;
    [
        to_vec(output.logits.clone().slice_dim(0, own())),
        to_vec(output.word_weights.clone().slice_dim(0, own())),
        to_vec(output.sentence_weights.clone().slice_dim(0, own())),
    ]
}

const TESTS: &[(&str, Test)] = &[
    ("padding-has-no-effect", |device| {
        let model = config().init(device);
        let documents = documents();
        let batched = model.forward(&batch(&documents, device));
        let [_, sentences, words] = batched.word_weights.dims();
        for (i, document) in documents.iter().enumerate() {
            let single = batch(std::slice::from_ref(document), device);
            let [_, own_sentences, own_words] = single.dims();
            let [logits, word_weights, sentence_weights] = outputs(&model.forward(&single), 0);
            let got = outputs(&batched, i);
            assert_near("logits", &got[0], &logits);
            // The weights without batch, padded with zeros.
            let mut padded = vec![0.0; sentences * words];
            let own = word_weights.chunks_exact(own_words);
            for (sentence, weights) in padded.chunks_exact_mut(words).zip(own) {
                sentence[..own_words].copy_from_slice(weights);
            }
            assert_near("word weights", &got[1], &padded);
            let mut padded = vec![0.0; sentences];
            padded[..own_sentences].copy_from_slice(&sentence_weights);
            assert_near("sentence weights", &got[2], &padded);
        }
    }),
    ("weights-sum-to-one", |device| {
        let model = config().init(device);
        let documents = documents();
        let output = model.forward(&batch(&documents, device));
        for (i, document) in documents.iter().enumerate() {
            let [_, words, sentences] = outputs(&output, i);
            let longest = words.len() / sentences.len();
            assert_near("sum over sentences", &[sentences.iter().sum()], &[1.0]);
            for (sentence, weights) in words.chunks_exact(longest).enumerate() {
                let count = document.get(sentence).map_or(0, Vec::len);
                let are_positive = weights[..count].iter().all(|weight| *weight > 0.0);
                let padding_is_zero = weights[count..].iter().all(|weight| *weight == 0.0);
                let is_valid = are_positive && padding_is_zero;
                assert!(is_valid, "{i}, sentence {sentence}: {weights:?}");
                let sum = if count > 0 { 1.0 } else { 0.0 };
                assert_near("sum over words", &[weights.iter().sum()], &[sum]);
            }
        }
    }),
    ("empty-documents", |device| {
        let device = &device.clone().autodiff();
        let model = config().init(device);
        let documents = batch(&[vec![], vec![vec![1], vec![], vec![2, 3]]], device);
        let output = model.forward(&documents);
        let [logits, words, sentences] = outputs(&output, 0);
        let bias = model.classifier.bias.as_ref().expect("no bias").val();
        assert_near("no sentences", &logits, &to_vec(bias.unsqueeze::<2>()));
        let weights = [words, sentences].concat();
        assert!(weights.iter().all(|weight| *weight == 0.0), "{weights:?}");
        let [_, words, sentences] = outputs(&output, 1);
        // The empty sentence has a sentence weight and no word weights.
        assert_near("three sentences", &[sentences.iter().sum()], &[1.0]);
        assert_eq!(words[2..4], [0.0, 0.0]);
        assert_ne!(sentences[1], 0.0);
        let gradients = output.logits.sum().backward();
        let embedding = model.embedding.weight.val().grad(&gradients);
        let embedding = to_vec(embedding.expect("a gradient"));
        assert!(embedding.iter().all(|x| x.is_finite()), "{embedding:?}");
        assert!(embedding.iter().any(|x| *x != 0.0));
        // Only empty documents, and only an empty sentence.
        let output = model.forward(&batch(&[vec![]], device));
        assert_near("empty document", &to_vec(output.logits), &logits);
        let output = model.forward(&batch(&[vec![vec![]]], device));
        let sentences = to_vec(output.sentence_weights);
        assert_near("empty sentence", &sentences, &[1.0]);
    }),
    ("word-out-of-range-is-named", |device| {
        let model = config().init(device);
        let documents = [vec![vec![1_u32]], vec![vec![2], vec![3, 9]]];
        let message = "token 9 at position 1 of sentence 1 of document 1 is outside of the \
                       vocabulary: it has 9 tokens, 0 to 8";
        assert_error(Documents::new(&documents, model.limits(), device), message);
    }),
    ("summary-table", |device| {
        let model = config().init(device);
        let text = "HAN: 9 words, 2 classes
  embedding           9 x 6                 54
  word encoder        6 -> 8, bidirectional gru  288
  word attention      8, d_attention 5      50
  sentence encoder    8 -> 6, bidirectional gru  234
  sentence attention  6, d_attention 5      40
  classifier          6 -> 2                14
  parameters                               680";
        let table = model.to_string();
        let plain = |text: &str| -> String { text.split_whitespace().collect() };
        assert_eq!(plain(&table), plain(text), "{table}");
        assert_eq!(model.parameters(), model.num_params());
        // 2 documents of 3 sentences of 4 words: 24 words, 6 sentences.
        let words = 2 * 24 * (2 * 3 * 4 * (6 + 4) + (8 * 5 + 5 + 8));
        let sentences = 2 * 6 * (2 * 3 * 3 * (8 + 3) + (6 * 5 + 5 + 6));
        let flops = f64::from(words + sentences + 2 * 2 * 6 * 2);
        assert_eq!(model.flops(2, 3, 4), flops);
    }),
];
