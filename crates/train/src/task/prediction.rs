//! Predicted classes of a text.

use zoo_data::Labels;

/// The predicted class probabilities of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPrediction {
    /// Every class with its probability, most likely first.
    pub classes: Vec<(String, f64)>,
}

impl ClassPrediction {
    /// The most likely class.
    pub fn label(&self) -> &str {
        self.classes.first().map_or("", |(label, _)| label)
    }
}

/// The index of the largest logit; the first one of equals.
pub(super) fn argmax(logits: &[f64]) -> usize {
    let order = |a: &usize, b: &usize| logits[*a].total_cmp(&logits[*b]);
    (0..logits.len()).rev().max_by(order).unwrap_or(0)
}

pub(super) fn predict(labels: &Labels, logits: &[f64]) -> ClassPrediction {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    let names = labels.names().iter().cloned();
    let mut classes: Vec<_> = names.zip(exps.iter().map(|exp| exp / sum)).collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    ClassPrediction { classes }
}

#[cfg(test)]
mod tests {
    use zoo_data::Labelled;

    use super::*;

    #[test]
    fn predictions_are_sorted_probabilities() {
        let labels =
            Labels::from_examples(&[Labelled::new("a", ""), Labelled::new("b", "")]).unwrap();
        let logits = [1000.0, 1000.0 + 3_f64.ln()];
        let prediction = predict(&labels, &logits);
        assert_eq!((prediction.label(), argmax(&logits)), ("b", 1));
        assert_eq!(argmax(&[0.5, 2.0, 2.0, 1.0]), 1, "the first of equals");
        let probs: Vec<f64> = prediction.classes.iter().map(|(_, prob)| *prob).collect();
        assert!((probs[0] - 0.75).abs() < 1e-12 && (probs[1] - 0.25).abs() < 1e-12);
    }
}
