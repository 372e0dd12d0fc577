//! Generation of distinct examples in disjoint splits.

use std::collections::HashSet;

use zoo_spec::SplitMix64;

use crate::{DataError, Splits};

/// Consecutive samples without a new example after which a task is considered exhausted.
const MAX_MISSES: usize = 2000;

/// Samples examples until every split has its size. No two examples have the same `identity`, and
/// no training example has a `held_out` key of another split. Each split has its own random stream,
/// so that a larger training split does not change the other splits.
pub(super) fn generate_splits<T>(
    task: &'static str,
    counts: [usize; 3],
    seed: u64,
    sample: impl Fn(&mut SplitMix64) -> Option<T>,
    keys: [fn(&T) -> String; 2],
) -> Result<Splits<Vec<T>>, DataError> {
    let sample = |rng: &mut SplitMix64, _| sample(rng);
    generate_splits_by_use(task, counts, seed, sample, keys)
}

/// What an example is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Training,
    Evaluation,
}

/// [`generate_splits`] with training examples of another distribution.
pub(super) fn generate_splits_by_use<T>(
    task: &'static str,
    [train, valid, test]: [usize; 3],
    seed: u64,
    sample: impl Fn(&mut SplitMix64, Use) -> Option<T>,
    [identity, held_out]: [fn(&T) -> String; 2],
) -> Result<Splits<Vec<T>>, DataError> {
    DataError::at_least("train_size", 1, train)?;
    let requested = train + valid + test;
    let mut identities = HashSet::new();
    let mut held_out_keys = HashSet::new();
    let mut generate = |name: &str, count: usize, used_for: Use| {
        let mut examples = vec![];
        let mut misses = 0;
        for index in 0.. {
            if examples.len() == count {
                break;
            }
            let mut rng = SplitMix64::new(seed, &format!("{task} {name}"), index);
            let new = sample(&mut rng, used_for).filter(|example| {
                let is_training = used_for == Use::Training;
                let leaks = is_training && held_out_keys.contains(&held_out(example));
                !leaks && identities.insert(identity(example))
            });
            let Some(example) = new else {
                misses += 1;
                if misses == MAX_MISSES {
                    return Err(DataError::Invalid(format!(
                        "the task {task} has only about {} distinct examples, {requested} requested\n  \
                         help: request fewer examples or increase the sizes of the task",
                        identities.len()
                    )));
                }
                continue;
            };
            misses = 0;
            if used_for == Use::Evaluation {
                held_out_keys.insert(held_out(&example));
            }
            examples.push(example);
        }
        Ok(examples)
    };
    Ok(Splits {
        test: generate("test", test, Use::Evaluation)?,
        valid: generate("valid", valid, Use::Evaluation)?,
        train: generate("train", train, Use::Training)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(counts: [usize; 3], seed: u64) -> Result<Splits<Vec<usize>>, DataError> {
        let sample = |rng: &mut SplitMix64| Some(rng.below(100));
        let keys: [fn(&usize) -> String; 2] = [usize::to_string, |it| (it / 2).to_string()];
        generate_splits("numbers", counts, seed, sample, keys)
    }

    #[test]
    fn examples_are_distinct_and_held_out_keys_do_not_leak() {
        let splits = numbers([50, 10, 10], 1).unwrap();
        let is_leaked = |number: &usize| {
            let other = number ^ 1;
            splits.valid.contains(&other) || splits.test.contains(&other)
        };
        assert!(!splits.train.iter().any(is_leaked));
        let all = [&splits.train, &splits.valid, &splits.test];
        let all: HashSet<_> = all.into_iter().flatten().collect();
        assert_eq!(all.len(), 70);
    }

    #[test]
    fn larger_training_splits_do_not_change_the_others() {
        let few = numbers([5, 10, 0], 1).unwrap();
        let many = numbers([50, 10, 0], 1).unwrap();
        assert_eq!(few.valid, many.valid);
        assert_eq!(few.train, many.train[..5]);
        assert_ne!(few, numbers([5, 10, 0], 2).unwrap());
    }

    #[test]
    fn exhausted_tasks_are_rejected() {
        let error = |counts| numbers(counts, 1).unwrap_err().to_string();
        assert_eq!(error([0, 3, 0]), "train_size must be at least 1, got 0");
        assert_eq!(
            error([120, 0, 0]),
            "the task numbers has only about 100 distinct examples, 120 requested\n  help: \
             request fewer examples or increase the sizes of the task"
        );
    }
}
