//! ListOps: nested operations on digits, to classify by their value.
//!
//! ```text
//! [MAX 2 9 [MIN 4 7 ] 0 ]  ->  9
//! ```
//!
//! `MAX` and `MIN` are what they are called, `MED` is the median, rounded down between two in
//! the middle, and `SM` is the sum modulo 10. Nangia and Bowman,
//! [ListOps](https://arxiv.org/abs/1804.06028), 2018.

use std::fmt;

use zoo_config::ListOps;
use zoo_spec::Draw;

use super::Generate;
use super::parts::parts;
use crate::{DataError, Labelled, Parts};

/// What is done with digits, which are sorted, and how it is written.
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
    /// What it comes to, 0 to 9.
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

    /// How many words it is written with.
    fn words(&self) -> usize {
        match self {
            Self::Digit(_) => 1,
            Self::List(_, inner) => 2 + inner.iter().map(Self::words).sum::<usize>(),
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digit(digit) => write!(f, "{digit}"),
            Self::List((word, _), inner) => {
                write!(f, "[{word}")?;
                for expression in inner {
                    write!(f, " {expression}")?;
                }
                f.write_str(" ]")
            }
        }
    }
}

/// Expressions up to a depth and between two lengths, with their values as labels.
impl Generate for ListOps {
    type Example = Labelled;

    fn generate(&self, seed: u64) -> Result<Parts<Vec<Labelled>>, DataError> {
        DataError::at_least("depth", 1, self.max_depth)?;
        DataError::at_least("arguments", 2, self.max_arguments)?;
        DataError::at_least("longest", self.min_length.max(4), self.max_length)?;
        DataError::at_most("shortest", most_words(self), self.min_length)?;
        let counts = [self.train_size, self.valid_size, self.test_size];
        let draw = |draw: &mut Draw| {
            let expression = expression(self, draw)?;
            let value = expression.value().to_string();
            Some(Labelled::new(value, expression.to_string()))
        };
        parts("listops", counts, seed, draw, [|it| it.text.clone(); 2])
    }
}

/// Words of the largest expression there is.
fn most_words(task: &ListOps) -> usize {
    (0..task.max_depth).fold(1_usize, |words, _| {
        words.saturating_mul(task.max_arguments).saturating_add(2)
    })
}

/// Grows an expression from one list: a digit becomes a list as long as the length that was
/// drawn is not reached. So every length comes about as often, however deep it may be.
/// Nothing if it came out too short.
fn expression(task: &ListOps, draw: &mut Draw) -> Option<Expression> {
    let most = task.max_length.min(most_words(task));
    let wanted = draw.within(task.min_length.clamp(4, most), most);
    let mut grown = list(draw, task.max_arguments, wanted);
    let mut words = grown.words();
    // The least list has four words, in the place of one.
    while words + 3 <= wanted {
        let mut places = vec![];
        digits(&mut grown, task.max_depth, &mut places);
        if places.is_empty() {
            break;
        }
        let chosen = draw.below(places.len());
        *places.swap_remove(chosen) = list(draw, task.max_arguments, wanted - words + 1);
        words = grown.words();
    }
    (words >= task.min_length).then_some(grown)
}

/// A list of digits of at most that many words.
fn list(draw: &mut Draw, arguments: usize, words: usize) -> Expression {
    let operation = *draw.choose(&OPERATIONS);
    let count = draw.within(2, arguments.min(words - 2));
    let digit = |_| Expression::Digit(draw.below(10) as u8);
    Expression::List(operation, (0..count).map(digit).collect())
}

/// The digits that may become lists: those with room below them.
fn digits<'a>(expression: &'a mut Expression, depth: usize, places: &mut Vec<&'a mut Expression>) {
    match expression {
        Expression::Digit(_) if depth > 0 => places.push(expression),
        Expression::Digit(_) => {}
        Expression::List(_, inner) => {
            for expression in inner {
                digits(expression, depth.saturating_sub(1), places);
            }
        }
    }
}

#[cfg(test)]
mod tests;
