//! Classes of texts, told by a run that was trained.

use burn::tensor::{Tensor, TensorData};
use zoo_data::{BatchSize, Batching, Encoded, Labelled, Labels, Parts};
use zoo_models::{Documents, ModelError, Tokens};

use crate::{AnyModel, Examples, Texts, Tokenizers, TrainError, Trained};

/// Texts that are looked at side by side.
const ROWS: usize = 64;

/// What classes a text may be of.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    /// Every class with its probability, the likeliest first.
    pub classes: Vec<(String, f64)>,
}

impl Classified {
    /// The likeliest class.
    pub fn label(&self) -> &str {
        self.classes.first().map_or("", |(label, _)| label)
    }
}

impl Trained {
    /// The classes of texts, in their order, and what was cut off: lines to show. Texts are
    /// shortened as those that were learned from.
    ///
    /// # Errors
    ///
    /// [`TrainError::WrongModel`] if the model tells none, [`TrainError::Model`] if a text is too
    /// long for it.
    pub fn classify(&self, texts: &[&str]) -> Result<(Vec<Classified>, Vec<String>), TrainError> {
        let (examples, notes) = self.encoded_documents(texts)?;
        let labels = self.labels()?;
        let device = &self.opened.device;
        let logits = match (&self.model, &examples) {
            (AnyModel::Classifier(model), Examples::Labelled(parts)) => {
                in_batches(&parts.test, |rows| {
                    let rows: Vec<&[u32]> = rows.iter().map(|row| row.ids.as_slice()).collect();
                    Ok(model.forward(&Tokens::new(&rows, model.limits(), device)?))
                })?
            }
            (AnyModel::Han(model), Examples::Documents(parts)) => {
                in_batches(&parts.test, |rows| {
                    let rows: Vec<&[Vec<u32>]> = rows.iter().map(|row| &*row.sentences).collect();
                    let documents = Documents::new(&rows, model.limits(), device)?;
                    Ok(model.forward(&documents).logits)
                })?
            }
            _ => return Err(self.cannot("classify")),
        };
        let classified = logits.iter().map(|logits| ranked(labels, logits));
        Ok((classified.collect(), notes))
    }

    /// The classes that the model knows.
    pub(crate) fn labels(&self) -> Result<&Labels, TrainError> {
        match &self.tokenizers {
            Tokenizers::Labelled(_, labels) => Ok(labels),
            Tokenizers::Pair(_) | Tokenizers::Plain(_) => Err(self.cannot("classify")),
        }
    }

    /// Texts of any class as the model reads them, as the test's part.
    pub(crate) fn encoded_documents(
        &self,
        texts: &[&str],
    ) -> Result<(Examples, Vec<String>), TrainError> {
        // Examples have a class, which nobody looks at here.
        let any = self.labels()?.name(0).unwrap_or_default();
        let texts = Texts::Labelled(Parts {
            train: vec![],
            valid: vec![],
            test: texts.iter().map(|text| Labelled::new(any, *text)).collect(),
        });
        self.tokenizers.encode(&self.config, &texts)
    }
}

/// What is said of each example, in their order, computed by batches of about the same length.
fn in_batches<E: Encoded>(
    examples: &[E],
    logits: impl Fn(&[&E]) -> Result<Tensor<2>, ModelError>,
) -> Result<Vec<Vec<f64>>, TrainError> {
    let mut said = vec![vec![]; examples.len()];
    if examples.is_empty() {
        return Ok(said);
    }
    let extents = examples.iter().map(Encoded::extent).collect();
    let plan = Batching::new(BatchSize::Examples(ROWS), 0).plan(extents)?;
    for places in plan.in_order() {
        let rows: Vec<&E> = places.iter().map(|at| &examples[*at]).collect();
        let data = logits(&rows)
            .map_err(TrainError::model("text"))?
            .into_data();
        let classes = data.shape().to_vec()[1];
        let numbers = numbers(&data);
        for (at, row) in places.iter().zip(numbers.chunks(classes)) {
            said[*at] = row.to_vec();
        }
    }
    Ok(said)
}

/// Numbers of a tensor, row by row.
fn numbers(data: &TensorData) -> Vec<f64> {
    data.iter::<f64>().collect()
}

/// Every class with its probability, the likeliest first; of equals, the first.
pub(crate) fn ranked(labels: &Labels, logits: &[f64]) -> Classified {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f64 = shares.iter().sum();
    let names = labels.names().iter().cloned();
    let mut classes: Vec<_> = names.zip(shares.iter().map(|share| share / sum)).collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    Classified { classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_the_likeliest_is_first() {
        let labels = Labels::of(&[Labelled::new("a", ""), Labelled::new("b", "")]).unwrap();
        let said = ranked(&labels, &[1000.0, 1000.0 + 3_f64.ln()]);
        assert_eq!(said.label(), "b");
        let shares: Vec<f64> = said.classes.iter().map(|(_, share)| *share).collect();
        assert!((shares[0] - 0.75).abs() < 1e-12 && (shares[1] - 0.25).abs() < 1e-12);
    }
}
