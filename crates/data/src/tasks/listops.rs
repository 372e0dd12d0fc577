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

use super::parts::{Counts, Drawn, parts};
use crate::draw::Draw;
use crate::words::words;
use crate::{DataError, Labelled, Parts};

words! {
    /// What is done with a list of digits.
    pub enum Operation of "operation" {
        /// The largest.
        Max = "MAX",
        /// The least.
        Min = "MIN",
        /// The one in the middle, rounded down between two.
        Median = "MED",
        /// The last digit of their sum.
        SumModulo = "SM",
    }
}

impl Operation {
    fn of(self, digits: &[u8]) -> u8 {
        let mut sorted = digits.to_vec();
        sorted.sort_unstable();
        match (self, sorted.as_slice()) {
            (_, []) => 0,
            (Self::Max, [.., last]) => *last,
            (Self::Min, [first, ..]) => *first,
            (Self::Median, sorted) => {
                let middle = sorted.len() / 2;
                match sorted.len() % 2 {
                    1 => sorted[middle],
                    _ => (sorted[middle - 1] + sorted[middle]) / 2,
                }
            }
            (Self::SumModulo, sorted) => {
                let sum: u32 = sorted.iter().map(|digit| u32::from(*digit)).sum();
                (sum % 10) as u8
            }
        }
    }
}

/// A digit, or an operation on expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// 0 to 9.
    Digit(u8),
    /// What is done with what.
    List(Operation, Vec<Expression>),
}

impl Expression {
    /// What it comes to, 0 to 9.
    pub fn value(&self) -> u8 {
        match self {
            Self::Digit(digit) => *digit,
            Self::List(operation, inner) => {
                let digits: Vec<u8> = inner.iter().map(Self::value).collect();
                operation.of(&digits)
            }
        }
    }

    /// How many brackets deep it is; a digit is none.
    pub fn depth(&self) -> usize {
        match self {
            Self::Digit(_) => 0,
            Self::List(_, inner) => 1 + inner.iter().map(Self::depth).max().unwrap_or(0),
        }
    }

    /// How many words it is written with.
    pub fn words(&self) -> usize {
        match self {
            Self::Digit(_) => 1,
            Self::List(_, inner) => 2 + inner.iter().map(Self::words).sum::<usize>(),
        }
    }

    /// Reads what `to_string` writes.
    ///
    /// # Errors
    ///
    /// [`ListOpsError`] with the word that does not belong there.
    pub fn parse(text: &str) -> Result<Self, ListOpsError> {
        let mut open: Vec<(Operation, Vec<Self>)> = vec![];
        let mut words = text.split_whitespace().enumerate();
        for (place, word) in words.by_ref() {
            let wrong = |why| ListOpsError {
                place,
                word: word.to_owned(),
                why,
            };
            let complete = match word {
                "]" => {
                    let (operation, inner) = open.pop().ok_or_else(|| wrong("no list is open"))?;
                    if inner.is_empty() {
                        return Err(wrong("the list is empty"));
                    }
                    Self::List(operation, inner)
                }
                word => match word.strip_prefix('[') {
                    Some(name) => {
                        let operation = name
                            .parse()
                            .map_err(|_| wrong("no operation is called that"))?;
                        open.push((operation, vec![]));
                        continue;
                    }
                    None => match word.as_bytes() {
                        [digit @ b'0'..=b'9'] => Self::Digit(digit - b'0'),
                        _ => return Err(wrong("it is no digit")),
                    },
                },
            };
            match open.last_mut() {
                Some((_, inner)) => inner.push(complete),
                None => {
                    return match words.next() {
                        None => Ok(complete),
                        Some((place, word)) => Err(ListOpsError {
                            place,
                            word: word.to_owned(),
                            why: "the expression is over before it",
                        }),
                    };
                }
            }
        }
        Err(ListOpsError {
            place: text.split_whitespace().count(),
            word: String::new(),
            why: "the expression is not over",
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digit(digit) => write!(f, "{digit}"),
            Self::List(operation, inner) => {
                write!(f, "[{}", operation.word())?;
                for expression in inner {
                    write!(f, " {expression}")?;
                }
                f.write_str(" ]")
            }
        }
    }
}

/// A text that is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("word {place}, \"{word}\": {why}")]
pub struct ListOpsError {
    /// Which word, counted from 0.
    pub place: usize,
    /// The word.
    pub word: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Expressions up to a depth and between two lengths, with their values as labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOps {
    depth: usize,
    arguments: usize,
    shortest: usize,
    longest: usize,
}

impl Default for ListOps {
    fn default() -> Self {
        Self {
            depth: 4,
            arguments: 5,
            shortest: 4,
            longest: 100,
        }
    }
}

impl ListOps {
    /// Up to 4 deep, up to 5 arguments, 4 to 100 words long.
    pub fn new() -> Self {
        Self::default()
    }

    /// How deep brackets may be. Default: 4.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// How many arguments an operation may have; it has two at least. Default: 5.
    #[must_use]
    pub fn with_arguments(mut self, arguments: usize) -> Self {
        self.arguments = arguments;
        self
    }

    /// The least and the largest number of words. Default: 4 and 100.
    #[must_use]
    pub fn with_lengths(mut self, shortest: usize, longest: usize) -> Self {
        self.shortest = shortest;
        self.longest = longest;
        self
    }

    /// Makes them up.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size makes no sense, [`DataError::TaskTooSmall`] if there are
    /// not as many.
    pub fn generate(&self, counts: Counts, seed: u64) -> Result<Parts<Vec<Labelled>>, DataError> {
        DataError::at_least("depth", 1, self.depth)?;
        DataError::at_least("arguments", 2, self.arguments)?;
        DataError::at_least("longest", self.shortest.max(4), self.longest)?;
        DataError::at_most("shortest", self.most_words(), self.shortest)?;
        parts("listops", counts, seed, |draw| {
            let expression = self.expression(draw)?;
            let text = expression.to_string();
            Some(Drawn {
                example: Labelled::new(expression.value().to_string(), text.clone()),
                identity: text.clone(),
                secret: text,
            })
        })
    }

    /// Words of the largest expression there is.
    fn most_words(&self) -> usize {
        (0..self.depth).fold(1_usize, |words, _| {
            words.saturating_mul(self.arguments).saturating_add(2)
        })
    }

    /// Grows an expression from one list: a digit becomes a list as long as the length that was
    /// drawn is not reached. So every length comes about as often, however deep it may be.
    /// Nothing if it came out too short.
    fn expression(&self, draw: &mut Draw) -> Option<Expression> {
        let most = self.longest.min(self.most_words());
        let wanted = draw.within(self.shortest.clamp(4, most), most);
        let mut grown = self.list(draw, wanted);
        let mut words = grown.words();
        // The least list has four words, in the place of one.
        while words + 3 <= wanted {
            let mut places = vec![];
            digits(&mut grown, self.depth, &mut places);
            if places.is_empty() {
                break;
            }
            let chosen = draw.below(places.len());
            *places.swap_remove(chosen) = self.list(draw, wanted - words + 1);
            words = grown.words();
        }
        (words >= self.shortest).then_some(grown)
    }

    /// A list of digits of at most that many words.
    fn list(&self, draw: &mut Draw, words: usize) -> Expression {
        let operation = *draw.choose(&Operation::ALL);
        let count = draw.within(2, self.arguments.min(words - 2));
        let digit = |_| Expression::Digit(draw.below(10) as u8);
        Expression::List(operation, (0..count).map(digit).collect())
    }
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
