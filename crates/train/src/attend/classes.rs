//! Where models that tell classes look.

use burn::tensor::Tensor;
use zoo_models::{Classifier, Documents, Han, Tokens};
use zoo_viz::{Document, Part, Sentence, Word};

use super::heads::{maps, written};
use super::{Seen, not_empty};
use crate::classify::{Classified, ranked};
use crate::{Examples, Tokenizers, TrainError, Trained};

/// Every layer and head, and what is pooled.
pub(super) fn classifier(
    trained: &Trained,
    model: &Classifier,
    text: &str,
) -> Result<Seen, TrainError> {
    let (examples, cut) = trained.encoded_documents(&[text])?;
    let Examples::Labelled(examples) = &examples else {
        unreachable!("a classifier takes sequences");
    };
    let ids = &examples.test[0].ids;
    not_empty("--text", ids)?;
    let tokens = Tokens::new(&[ids], model.limits(), &trained.opened.device);
    let look = model.look(&tokens.map_err(TrainError::model("--text"))?);
    let Tokenizers::Labelled(tokenizer, _) = &trained.tokenizers else {
        unreachable!("a classifier has labels");
    };
    let tokens = written(tokenizer, ids);
    let mut places = tokens.clone();
    if model.cls.is_some() {
        places.insert(0, "<cls>".to_owned());
    }
    let mut parts = vec![maps("Self-attention", &places, &places, look.layers)?];
    if let Some(pooling) = look.pooling {
        let [_, seq] = pooling.dims();
        let of_one = vec!["the text".to_owned()];
        let weights = vec![pooling.reshape([1, 1, 1, seq])];
        parts.push(maps(
            "Pooling: what of the text is classified",
            &of_one,
            &tokens,
            weights,
        )?);
    }
    let mut notes = vec![told(&classes(trained, look.logits)?)];
    notes.extend(cut);
    Ok(Seen { notes, parts })
}

/// Words and sentences.
pub(super) fn han(trained: &Trained, model: &Han, text: &str) -> Result<Seen, TrainError> {
    let (examples, cut) = trained.encoded_documents(&[text])?;
    let Examples::Documents(examples) = &examples else {
        unreachable!("a HAN takes documents");
    };
    let document = &examples.test[0].sentences;
    not_empty("--text", &document.concat())?;
    let documents = Documents::new(&[document], model.limits(), &trained.opened.device);
    let judged = model.forward(&documents.map_err(TrainError::model("--text"))?);
    let [_, _, most] = judged.word_weights.dims();
    let words: Vec<f32> = judged.word_weights.into_data().iter::<f32>().collect();
    let sentences: Vec<f32> = judged.sentence_weights.into_data().iter::<f32>().collect();
    let Tokenizers::Labelled(tokenizer, _) = &trained.tokenizers else {
        unreachable!("a HAN has labels");
    };
    let sentence = |(at, ids): (usize, &Vec<u32>)| {
        let texts = written(tokenizer, ids).into_iter();
        let weights = words[at * most..].iter();
        let words = texts.zip(weights);
        Sentence {
            weight: sentences[at],
            words: words
                .map(|(text, weight)| Word {
                    text,
                    weight: *weight,
                })
                .collect(),
        }
    };
    let shown = document.iter().enumerate().map(sentence).collect();
    let classified = classes(trained, judged.logits)?;
    let shares = classified.classes.iter();
    let shares = shares.map(|(label, share)| (label.clone(), *share as f32));
    let document = Document::new("Document", shown)?.with_classes(shares.collect());
    let mut notes = vec![told(&classified)];
    notes.extend(cut);
    Ok(Seen {
        notes,
        parts: vec![Part::Document(document)],
    })
}

fn classes(trained: &Trained, logits: Tensor<2>) -> Result<Classified, TrainError> {
    let logits: Vec<f64> = logits.into_data().iter::<f64>().collect();
    Ok(ranked(trained.labels()?, &logits))
}

fn told(classified: &Classified) -> String {
    let share = classified.classes.first().map_or(0.0, |(_, share)| *share);
    format!("taken for {}, {:.1}%", classified.label(), 100.0 * share)
}
