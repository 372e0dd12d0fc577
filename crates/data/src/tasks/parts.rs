//! Examples that are all different, in parts that do not overlap.

use std::collections::HashSet;

use zoo_spec::Draw;

use crate::{DataError, Parts};

/// Draws in a row that give nothing new before a task is taken to have no more.
const PATIENCE: usize = 2000;

/// Draws examples until every part has its own: so many to learn from, to validate with and to
/// test with. What gives none is drawn again. No two examples have the same identity, and no example
/// to learn from has a secret that another part has. Each part has a stream of its own, so that more
/// examples to learn from leave those to validate with as they are.
pub(super) fn parts<T>(
    task: &'static str,
    [train, valid, test]: [usize; 3],
    seed: u64,
    draw: impl Fn(&mut Draw) -> Option<T>,
    [identity, secret]: [fn(&T) -> String; 2],
) -> Result<Parts<Vec<T>>, DataError> {
    DataError::at_least("train", 1, train)?;
    let asked = train + valid + test;
    let mut identities = HashSet::new();
    let mut secrets = HashSet::new();
    let mut part = |name: &str, count: usize, holds_back: bool| {
        let mut examples = vec![];
        let mut misses = 0;
        let mut places = 0..;
        while examples.len() < count {
            let place = places.next().unwrap_or_default();
            let drawn = draw(&mut Draw::new(seed, &format!("{task} {name}"), place));
            let new = drawn.filter(|drawn| {
                let known = !holds_back && secrets.contains(&secret(drawn));
                !known && identities.insert(identity(drawn))
            });
            let Some(drawn) = new else {
                misses += 1;
                if misses == PATIENCE {
                    return Err(DataError::Refused(format!(
                        "the task {task} was asked for {asked} different examples and gives about \
                         {}: ask for fewer, or make it larger",
                        identities.len()
                    )));
                }
                continue;
            };
            misses = 0;
            if holds_back {
                secrets.insert(secret(&drawn));
            }
            examples.push(drawn);
        }
        Ok(examples)
    };
    Ok(Parts {
        test: part("test", test, true)?,
        valid: part("valid", valid, true)?,
        train: part("train", train, false)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(counts: [usize; 3], seed: u64) -> Result<Parts<Vec<usize>>, DataError> {
        let draw = |draw: &mut Draw| Some(draw.below(100));
        parts(
            "numbers",
            counts,
            seed,
            draw,
            [usize::to_string, |number| (number / 2).to_string()],
        )
    }

    #[test]
    fn nothing_comes_twice_and_nothing_held_back_is_learned() {
        let drawn = numbers([50, 10, 10], 1).unwrap();
        let held = |number: &usize| {
            let other = number ^ 1;
            drawn.valid.contains(&other) || drawn.test.contains(&other)
        };
        assert!(!drawn.train.iter().any(held));
        let all = [&drawn.train, &drawn.valid, &drawn.test];
        let all: HashSet<_> = all.into_iter().flatten().collect();
        assert_eq!(all.len(), 70);
    }

    #[test]
    fn more_to_learn_from_leaves_the_rest_alone() {
        let few = numbers([5, 10, 0], 1).unwrap();
        let many = numbers([50, 10, 0], 1).unwrap();
        assert_eq!(few.valid, many.valid);
        assert_eq!(few.train, many.train[..5]);
        assert_ne!(few, numbers([5, 10, 0], 2).unwrap());
    }

    #[test]
    fn too_much_is_not_waited_for() {
        for (counts, message) in [
            (
                [120, 0, 0],
                "the task numbers was asked for 120 different examples and gives about 100: ask \
                 for fewer, or make it larger",
            ),
            ([0, 3, 0], "train must be at least 1, got 0"),
        ] {
            assert_eq!(numbers(counts, 1).unwrap_err().to_string(), message);
        }
    }
}
