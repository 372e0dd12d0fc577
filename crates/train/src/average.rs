//! The mean of several checkpoints: often better than each of them.
//!
//! ```text
//! w = (w_1 + ... + w_K) / K        in f64, whatever the numbers are kept in
//! ```
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017, average
//! the last 5 to 20 of them.

use burn::tensor::TensorData;
use zoo_models::weights::Weights;

use crate::{AVERAGE, Result, RunFolder, TrainError, files};

/// Averages the checkpoints of these steps, and writes the weights into the run's folder, in the
/// place of those that may be there. They are whole at any time.
///
/// # Errors
///
/// [`TrainError::Refused`] if there are none to average, or one of them does not exist,
/// [`TrainError::Damaged`] if it cannot be read.
pub fn average(folder: &RunFolder, steps: &[usize]) -> Result<Weights> {
    let checkpoints = folder.checkpoints();
    let mut read = steps.iter().map(|step| {
        let others = || {
            let whole = steps.iter().filter(|it| checkpoints.is_whole(**it));
            whole.map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let instead = |nearest: usize| match others() {
            none if none.is_empty() => format!("--steps {nearest} takes it"),
            whole => format!("--steps {whole} leaves the damaged out"),
        };
        let weights = checkpoints.read_or(*step, instead)?.weights;
        Ok::<_, TrainError>((*step, weights))
    });
    let Some(first) = read.next() else {
        return Err(TrainError::Refused(
            "there must be a step to average at least, got none".to_owned(),
        ));
    };
    // One at a time: a checkpoint may be large.
    let mut sums = Sums::of(first?.1);
    for next in read {
        let (step, weights) = next?;
        sums.add(&weights)
            .map_err(TrainError::content(checkpoints.folder_of(step)))?;
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
    /// Of the first: its shape, and what its numbers are kept in.
    like: TensorData,
    /// None for what is not averaged: whole numbers and truths.
    numbers: Option<Vec<f64>>,
}

impl Sums {
    fn of(weights: Weights) -> Self {
        let sum = |key: &str| {
            let like = weights.get(key)?.clone();
            let numbers = like
                .dtype()
                .is_float()
                .then(|| like.iter::<f64>().collect());
            Some(Sum {
                key: key.to_owned(),
                like,
                numbers,
            })
        };
        Self {
            tensors: weights.keys().filter_map(sum).collect(),
            count: 1,
        }
    }

    /// One more, or why it does not belong to the others.
    fn add(&mut self, weights: &Weights) -> Result<(), String> {
        if weights.keys().count() != self.tensors.len() {
            return Err("it has other weights than the first one".to_owned());
        }
        for Sum { key, like, numbers } in &mut self.tensors {
            let more = weights.get(key).ok_or_else(|| format!("it has no {key}"))?;
            if more.shape() != like.shape() {
                let (got, expected) = (more.shape().to_vec(), like.shape().to_vec());
                return Err(format!(
                    "its {key} is {got:?}, that of the first {expected:?}"
                ));
            }
            match numbers {
                Some(numbers) => {
                    let more = more.iter::<f64>();
                    numbers
                        .iter_mut()
                        .zip(more)
                        .for_each(|(sum, more)| *sum += more);
                }
                // Counters and the like: the last says how far the run has come.
                None => *like = more.clone(),
            }
        }
        self.count += 1;
        Ok(())
    }

    fn mean(self) -> Weights {
        let count = self.count as f64;
        let tensors = self.tensors.into_iter().map(|sum| {
            let data = match sum.numbers {
                Some(mut numbers) => {
                    numbers.iter_mut().for_each(|number| *number /= count);
                    let shape = sum.like.shape().to_vec();
                    TensorData::new(numbers, shape).convert_dtype(sum.like.dtype())
                }
                None => sum.like,
            };
            (sum.key, data)
        });
        Weights::of_tensors(tensors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(numbers: &[f32], counter: i64) -> Weights {
        let numbers = TensorData::new(numbers.to_vec(), [numbers.len()]);
        let counter = TensorData::new(vec![counter], [1]);
        Weights::of_tensors([("w".to_owned(), numbers), ("counter".to_owned(), counter)])
    }

    #[test]
    fn numbers_are_averaged_and_counters_are_the_last() {
        // One after the other in f32, the small ones would be lost in the large one.
        let mut sums = Sums::of(weights(&[1e8, 1.0], 1));
        for (numbers, counter) in [([1.0, 2.0], 2), ([1.0, 6.0], 3), ([-1e8, -1.0], 4)] {
            sums.add(&weights(&numbers, counter)).unwrap();
        }
        let mean = sums.mean();
        let numbers: Vec<f32> = mean.get("w").unwrap().iter::<f32>().collect();
        assert_eq!(numbers, [0.5, 2.0]);
        assert_eq!(mean.get("counter").unwrap().iter::<i64>().next(), Some(4));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let mut sums = Sums::of(weights(&[1.0], 0));
        let said = sums.add(&weights(&[1.0, 2.0], 0)).unwrap_err();
        assert_eq!(said, "its w is [2], that of the first [1]");
        let other = Weights::of_tensors([("w".to_owned(), TensorData::new(vec![1.0_f32], [1]))]);
        assert!(sums.add(&other).is_err());
    }
}
