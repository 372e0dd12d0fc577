//! The hierarchical attention network: it learns, padding is nothing to it, and what is
//! empty has an answer.

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use zoo_models::Cell;
use zoo_models::han::Judged;
use zoo_models::{Documents, Han, HanConfig, Limits};
use zoo_oracle::Precision;

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    for cell in [Cell::Gru, Cell::Lstm] {
        let name = format!("han/overfits-with-{cell}");
        suite.add_training(name, move |device| overfits(cell, device));
    }
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

fn four() -> [Document; 4] {
    [
        vec![vec![1, 2, 3], vec![4]],
        vec![vec![5, 6]],
        vec![vec![2, 1], vec![3, 7, 8]],
        vec![vec![6], vec![5]],
    ]
}

fn overfits(cell: Cell, device: &Device) {
    let model: Han = config().with_cell(cell).init(device);
    let documents = batch(&four(), device);
    let classes = Tensor::<1, Int>::from_data([0, 1, 1, 0], device).reshape([4, 1]);
    crate::support::overfits(0.1, model, |model| {
        let logits = model.forward(&documents).logits;
        -log_softmax(logits, 1).gather(1, classes.clone()).mean()
    })
}

fn same(what: &str, got: &[f32], want: &[f32]) {
    // Two recurrences and two attentions, one after the other.
    must(Precision::F32.backward(8.0).compare(what, got, want));
}

fn rows(judged: &Judged, document: usize) -> [Vec<f32>; 3] {
    let own = document..document + 1;
    [
        numbers(judged.logits.clone().slice_dim(0, own.clone())),
        numbers(judged.word_weights.clone().slice_dim(0, own.clone())),
        numbers(judged.sentence_weights.clone().slice_dim(0, own)),
    ]
}

const TESTS: &[(&str, Test)] = &[
    ("padding-changes-nothing", |device| {
        let model = config().init(device);
        let documents = four();
        let together = model.forward(&batch(&documents, device));
        let [_, sentences, words] = together.word_weights.dims();
        for (at, document) in documents.iter().enumerate() {
            let alone = batch(std::slice::from_ref(document), device);
            let [_, own_sentences, own_words] = alone.dims();
            let [logits, word_weights, sentence_weights] = rows(&model.forward(&alone), 0);
            let got = rows(&together, at);
            same("logits", &got[0], &logits);
            // The weights alone, with zeros where the others go on.
            let mut padded = vec![0.0; sentences * words];
            let own = word_weights.chunks_exact(own_words);
            for (sentence, weights) in padded.chunks_exact_mut(words).zip(own) {
                sentence[..own_words].copy_from_slice(weights);
            }
            same("word weights", &got[1], &padded);
            let mut padded = vec![0.0; sentences];
            padded[..own_sentences].copy_from_slice(&sentence_weights);
            same("sentence weights", &got[2], &padded);
        }
    }),
    ("weights-are-shares-of-what-is-there", |device| {
        let model = config().init(device);
        let documents = four();
        let judged = model.forward(&batch(&documents, device));
        for (at, document) in documents.iter().enumerate() {
            let [_, words, sentences] = rows(&judged, at);
            let longest = words.len() / sentences.len();
            same("of the document", &[sentences.iter().sum()], &[1.0]);
            for (sentence, weights) in words.chunks_exact(longest).enumerate() {
                let count = document.get(sentence).map_or(0, Vec::len);
                let there = weights[..count].iter().all(|weight| *weight > 0.0);
                let rest = weights[count..].iter().all(|weight| *weight == 0.0);
                assert!(
                    there && rest,
                    "document {at}, sentence {sentence}: {weights:?}"
                );
                let whole = if count > 0 { 1.0 } else { 0.0 };
                same("of a sentence", &[weights.iter().sum()], &[whole]);
            }
        }
    }),
    ("what-is-empty-has-an-answer", |device| {
        let device = &device.clone().autodiff();
        let model = config().init(device);
        let documents = batch(&[vec![], vec![vec![1], vec![], vec![2, 3]]], device);
        let judged = model.forward(&documents);
        let [logits, words, sentences] = rows(&judged, 0);
        let bias = model.classifier.bias.as_ref().expect("no bias").val();
        same("no sentences", &logits, &numbers(bias.unsqueeze::<2>()));
        let weights = [words, sentences].concat();
        assert!(weights.iter().all(|weight| *weight == 0.0), "{weights:?}");
        let [_, words, sentences] = rows(&judged, 1);
        // The sentence without words has a place and no words.
        same("three sentences", &[sentences.iter().sum()], &[1.0]);
        assert_eq!(words[2..4], [0.0, 0.0]);
        assert_ne!(sentences[1], 0.0);
        let gradients = judged.logits.sum().backward();
        let embedding = model.embedding.weight.val().grad(&gradients);
        let embedding = numbers(embedding.expect("a gradient"));
        assert!(embedding.iter().all(|x| x.is_finite()), "{embedding:?}");
        assert!(embedding.iter().any(|x| *x != 0.0));
        // Nothing at all, and nothing but an empty sentence.
        let judged = model.forward(&batch(&[vec![]], device));
        same("nothing", &numbers(judged.logits), &logits);
        let judged = model.forward(&batch(&[vec![vec![]]], device));
        let sentences = numbers(judged.sentence_weights);
        same("an empty sentence alone", &sentences, &[1.0]);
    }),
    ("a-word-that-is-none-is-named", |device| {
        let model = config().init(device);
        let documents = [vec![vec![1_u32]], vec![vec![2], vec![3, 9]]];
        let refused = Documents::new(&documents, model.limits(), device).err();
        let said = refused.map(|error| error.to_string());
        let reason = "token 9 at place 1 of sentence 1 of document 1 is outside of the \
                      vocabulary: it has 9 tokens, 0 to 8";
        assert_eq!(said.as_deref(), Some(reason));
    }),
    ("it-says-what-it-is", |device| {
        let model = config().init(device);
        let text = "HAN: 9 words, 2 classes
  embedding           9 x 6                 54
  word encoder        6 -> 8, gru both ways  288
  word attention      8, compared by 5      50
  sentence encoder    8 -> 6, gru both ways  234
  sentence attention  6, compared by 5      40
  classifier          6 -> 2                14
  parameters                               680";
        let said = model.to_string();
        let plain = |text: &str| -> String { text.split_whitespace().collect() };
        assert_eq!(plain(&said), plain(text), "{said}");
        assert_eq!(model.parameters(), model.num_params());
        // 2 documents of 3 sentences of 4 words: 24 words, 6 sentences.
        let words = 2 * 24 * (2 * 3 * 4 * (6 + 4) + (8 * 5 + 5 + 8));
        let sentences = 2 * 6 * (2 * 3 * 3 * (8 + 3) + (6 * 5 + 5 + 6));
        let by_hand = f64::from(words + sentences + 2 * 2 * 6 * 2);
        assert_eq!(model.flops(2, 3, 4), by_hand);
    }),
];
