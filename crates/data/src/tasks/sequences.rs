//! Copy, reverse, sort: symbols, arranged anew.
//!
//! ```text
//! copy     a c b  ->  a c b
//! reverse  a c b  ->  b c a
//! sort     a c b  ->  a b c
//! ```

use super::parts::{Counts, Drawn, parts};
use crate::draw::Draw;
use crate::{DataError, Pair, Parts};

/// What is done to symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Nothing.
    Copy,
    /// The last comes first.
    Reverse,
    /// The least comes first.
    Sort,
}

impl Arrangement {
    fn word(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Reverse => "reverse",
            Self::Sort => "sort",
        }
    }

    fn apply(self, symbols: &mut [usize]) {
        match self {
            Self::Copy => {}
            Self::Reverse => symbols.reverse(),
            Self::Sort => symbols.sort_unstable(),
        }
    }
}

/// Sequences of symbols and their arrangements, with spaces between the symbols: letters, or
/// numbers where there are more than 26.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequences {
    arrangement: Arrangement,
    symbols: usize,
    shortest: usize,
    longest: usize,
}

impl Sequences {
    /// Sequences of 1 to 10 of 26 letters.
    pub fn new(arrangement: Arrangement) -> Self {
        Self {
            arrangement,
            symbols: 26,
            shortest: 1,
            longest: 10,
        }
    }

    /// How many different symbols there are. Default: 26.
    #[must_use]
    pub fn with_symbols(mut self, symbols: usize) -> Self {
        self.symbols = symbols;
        self
    }

    /// The least and the largest number of symbols of a sequence. Default: 1 and 10.
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
    pub fn generate(&self, counts: Counts, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::at_least("symbols", 2, self.symbols)?;
        DataError::at_least("shortest", 1, self.shortest)?;
        DataError::at_least("longest", self.shortest, self.longest)?;
        parts(self.arrangement.word(), counts, seed, |draw| {
            let example = self.pair(draw);
            Some(Drawn {
                identity: example.source.clone(),
                secret: example.source.clone(),
                example,
            })
        })
    }

    fn pair(&self, draw: &mut Draw) -> Pair {
        let length = draw.within(self.shortest, self.longest);
        let mut symbols: Vec<usize> = (0..length).map(|_| draw.below(self.symbols)).collect();
        let source = self.written(&symbols);
        self.arrangement.apply(&mut symbols);
        Pair::new(source, self.written(&symbols))
    }

    fn written(&self, symbols: &[usize]) -> String {
        let letters = self.symbols <= 26;
        let written = symbols.iter().map(|symbol| match letters {
            true => char::from(b'a' + *symbol as u8).to_string(),
            false => symbol.to_string(),
        });
        written.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_what_its_name_says() {
        for symbols in [3, 26, 40] {
            for (arrangement, expected) in [
                (
                    Arrangement::Copy,
                    (|_: &mut Vec<u32>| ()) as fn(&mut Vec<u32>),
                ),
                (Arrangement::Reverse, |it| it.reverse()),
                (Arrangement::Sort, |it| it.sort_unstable()),
            ] {
                let drawn = Sequences::new(arrangement)
                    .with_symbols(symbols)
                    .with_lengths(3, 7)
                    .generate(Counts::new(300, 20), 5)
                    .unwrap();
                for pair in drawn.train.iter().chain(&drawn.valid) {
                    let mut read = read(&pair.source, symbols);
                    assert!((3..=7).contains(&read.len()), "{pair:?}");
                    assert!(read.iter().all(|symbol| *symbol < symbols as u32));
                    expected(&mut read);
                    assert_eq!(read, self::read(&pair.target, symbols), "{pair:?}");
                }
            }
        }
    }

    fn read(text: &str, symbols: usize) -> Vec<u32> {
        let symbol = |word: &str| match symbols <= 26 {
            true => u32::from(word.parse::<char>().unwrap()) - u32::from('a'),
            false => word.parse().unwrap(),
        };
        text.split(' ').map(symbol).collect()
    }
}
