//! ListOps: nested operations on digits, classified by their value.
//!
//! ```text
//! [MAX 2 9 [MIN 4 7 ] 0 ]  ->  9
//! ```
//!
//! `MAX` and `MIN` are maximum and minimum, `MED` is the median (the mean of the middle two,
//! rounded down), and `SM` is the sum modulo 10. Nangia and Bowman,
//! [ListOps](https://arxiv.org/abs/1804.06028), 2018.

use std::fmt;

use zoo_config::ListOps;
use zoo_spec::SplitMix64;

use super::Generate;
use super::splits::generate_splits;
use crate::{DataError, Labelled, Splits};

/// Name and function of an operation on sorted digits.
type Operation = (&'static str, fn(&[u8]) -> u8);

const OPERATIONS: [Operation; 4] = [
    ("MAX", |sorted| sorted[sorted.len() - 1]),
    ("MIN", |sorted| sorted[0]),
    ("MED", |sorted| {
        let last = sorted.len() - 1;
        (sorted[last / 2] + sorted[last.div_ceil(2)]) / 2
    }),
    ("SM", |sorted| {
        let sum: u32 = sorted.iter().map(|digit| u32::from(*digit)).sum();
        (sum % 10) as u8
    }),
];

enum Expression {
    Digit(u8),
    List(Operation, Vec<Expression>),
}

impl Expression {
    fn value(&self) -> u8 {
        match self {
            Self::Digit(digit) => *digit,
            Self::List((_, operation), inner) => {
                let mut digits: Vec<u8> = inner.iter().map(Self::value).collect();
                digits.sort_unstable();
                operation(&digits)
            }
        }
    }

    fn num_tokens(&self) -> usize {
        match self {
            Self::Digit(_) => 1,
            Self::List(_, inner) => 2 + inner.iter().map(Self::num_tokens).sum::<usize>(),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digit(digit) => write!(f, "{digit}"),
            Self::List((name, _), inner) => {
                write!(f, "[{name}")?;
                for expression in inner {
                    write!(f, " {expression}")?;
                }
                f.write_str(" ]")
            }
        }
    }
}

/// Expressions with a maximum depth and between two lengths, labelled with their values.
impl Generate for ListOps {
    type Example = Labelled;

    fn generate(&self, seed: u64) -> Result<Splits<Vec<Labelled>>, DataError> {
        DataError::at_least("max_depth", 1, self.max_depth)?;
        DataError::at_least("max_arguments", 2, self.max_arguments)?;
        DataError::at_least("max_length", self.min_length.max(4), self.max_length)?;
        DataError::at_most("min_length", max_tokens(self), self.min_length)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let sample = |rng: &mut SplitMix64| {
            let expression = expression(self, rng)?;
            let value = expression.value().to_string();
            Some(Labelled::new(value, expression.to_string()))
        };
        generate_splits("listops", counts, seed, sample, [|it| it.text.clone(); 2])
    }
}

/// Number of tokens of the largest possible expression.
fn max_tokens(task: &ListOps) -> usize {
    (0..task.max_depth).fold(1_usize, |tokens, _| {
        tokens.saturating_mul(task.max_arguments).saturating_add(2)
    })
}

/// Grows an expression from one list: digits are replaced by lists until a random target length is
/// reached, so that lengths are distributed uniformly at any depth. `None` if the expression is too
/// short.
fn expression(task: &ListOps, rng: &mut SplitMix64) -> Option<Expression> {
    let max = task.max_length.min(max_tokens(task));
    let target = rng.within(task.min_length.clamp(4, max), max);
    let mut root = list(rng, task.max_arguments, target);
    let mut tokens = root.num_tokens();
    // The smallest list has four tokens and replaces one.
    while tokens + 3 <= target {
        let mut leaves = vec![];
        expandable_digits(&mut root, task.max_depth, &mut leaves);
        if leaves.is_empty() {
            break;
        }
        let chosen = rng.below(leaves.len());
        *leaves.swap_remove(chosen) = list(rng, task.max_arguments, target - tokens + 1);
        tokens = root.num_tokens();
    }
    (tokens >= task.min_length).then_some(root)
}

/// A random list of digits with at most `tokens` tokens.
fn list(rng: &mut SplitMix64, arguments: usize, tokens: usize) -> Expression {
    let operation = *rng.choose(&OPERATIONS);
    let count = rng.within(2, arguments.min(tokens - 2));
    let digit = |_| Expression::Digit(rng.below(10) as u8);
    Expression::List(operation, (0..count).map(digit).collect())
}

/// Collects the digits that can be replaced by a list without exceeding the depth.
fn expandable_digits<'a>(
    expression: &'a mut Expression,
    depth: usize,
    leaves: &mut Vec<&'a mut Expression>,
) {
    match expression {
        Expression::Digit(_) if depth > 0 => leaves.push(expression),
        Expression::Digit(_) => {}
        Expression::List(_, inner) => {
            for expression in inner {
                expandable_digits(expression, depth.saturating_sub(1), leaves);
            }
        }
    }
}

#[cfg(test)]
mod tests;
