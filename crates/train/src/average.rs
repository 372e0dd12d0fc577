//! Checkpoint averaging: the mean of the weights of several checkpoints.
//!
//! ```text
//! w = (w_1 + ... + w_K) / K        in f64, whatever the dtype of the weights
//! ```
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017, average
//! the last 5 to 20 checkpoints.

use burn::tensor::TensorData;
use zoo_models::weights::Weights;

use crate::{AVERAGE, Result, RunFolder, TrainError, files};

/// Averages the checkpoints of these steps and writes the weights to the run folder. An existing
/// file is replaced atomically. No steps, and missing or damaged checkpoints, are errors.
pub fn average(folder: &RunFolder, steps: &[usize]) -> Result<Weights> {
    let [first, others @ ..] = steps else {
        let reason = "averaging needs at least one step, got none";
        return Err(TrainError::Refused(reason.to_owned()));
    };
    let checkpoints = folder.checkpoints();
    let usage = |nearest: usize| {
        let intact = steps.iter().filter(|step| checkpoints.is_intact(**step));
        let intact: Vec<String> = intact.map(ToString::to_string).collect();
        if intact.is_empty() {
            return format!("use --steps {nearest}");
        }
        format!("--steps {} omits the damaged checkpoints", intact.join(","))
    };
    // One at a time: a checkpoint may be large.
    let mut sums = Sums::new(checkpoints.read_or_suggest(*first, usage)?.weights);
    for step in others {
        let added = sums.add(&checkpoints.read_or_suggest(*step, usage)?.weights);
        added.map_err(TrainError::content(checkpoints.checkpoint_dir(*step)))?;
    }
    let mean = sums.mean();
    files::replace_weights(&folder.file(AVERAGE), &mean)?;
    Ok(mean)
}

struct Sums {
    tensors: Vec<Sum>,
    count: usize,
}

struct Sum {
    key: String,
    /// The first checkpoint's tensor: its shape and dtype.
    first: TensorData,
    /// None for integer and boolean tensors, which are not averaged.
    values: Option<Vec<f64>>,
}

impl Sums {
    fn new(weights: Weights) -> Self {
        let sum = |key: &str| {
            let first = weights.get(key)?.clone();
            let is_float = first.dtype().is_float();
            let values = is_float.then(|| first.iter::<f64>().collect());
            Some(Sum {
                key: key.to_owned(),
                first,
                values,
            })
        };
        Self {
            tensors: weights.keys().filter_map(sum).collect(),
            count: 1,
        }
    }

    fn add(&mut self, weights: &Weights) -> Result<(), String> {
        if weights.keys().count() != self.tensors.len() {
            return Err("its tensors are not those of the first checkpoint".to_owned());
        }
        for Sum { key, first, values } in &mut self.tensors {
            let more = weights.get(key).ok_or_else(|| format!("it has no {key}"))?;
            if more.shape() != first.shape() {
                let (got, expected) = (more.shape().to_vec(), first.shape().to_vec());
                return Err(format!(
                    "the shape of {key} is {got:?}, in the first checkpoint {expected:?}"
                ));
            }
            match values {
                Some(values) => {
                    for (sum, value) in values.iter_mut().zip(more.iter::<f64>()) {
                        *sum += value;
                    }
                }
                // Such as step counters: the last checkpoint's value.
                None => *first = more.clone(),
            }
        }
        self.count += 1;
        Ok(())
    }

    fn mean(self) -> Weights {
        let count = self.count as f64;
        let tensors = self.tensors.into_iter().map(|sum| {
            let data = match sum.values {
                Some(mut values) => {
                    values.iter_mut().for_each(|value| *value /= count);
                    let shape = sum.first.shape().to_vec();
                    TensorData::new(values, shape).convert_dtype(sum.first.dtype())
                }
                None => sum.first,
            };
            (sum.key, data)
        });
        Weights::from_tensors(tensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(values: &[f32], counter: i64) -> Weights {
        let values = TensorData::new(values.to_vec(), [values.len()]);
        let counter = TensorData::new(vec![counter], [1]);
        Weights::from_tensors([("w".to_owned(), values), ("counter".to_owned(), counter)])
    }

    #[test]
    fn floats_are_averaged_and_integers_are_the_last() {
        // A sum in f32 would lose the small values next to the large one.
        let mut sums = Sums::new(weights(&[1e8, 1.0], 1));
        for (values, counter) in [([1.0, 2.0], 2), ([1.0, 6.0], 3), ([-1e8, -1.0], 4)] {
            sums.add(&weights(&values, counter)).unwrap();
        }
        let mean = sums.mean();
        let values: Vec<f32> = mean.get("w").unwrap().iter::<f32>().collect();
        assert_eq!(values, [0.5, 2.0]);
        assert_eq!(mean.get("counter").unwrap().iter::<i64>().next(), Some(4));
    }

    #[test]
    fn mismatched_checkpoints_are_rejected() {
        let mut sums = Sums::new(weights(&[1.0], 0));
        let message = sums.add(&weights(&[1.0, 2.0], 0)).unwrap_err();
        let expected = "the shape of w is [2], in the first checkpoint [1]";
        assert_eq!(message, expected);
        let other = Weights::from_tensors([("w".to_owned(), TensorData::new(vec![1.0_f32], [1]))]);
        assert!(sums.add(&other).is_err());
    }
}
