//! Copy, reverse, sort: symbols, arranged anew.
//!
//! ```text
//! copy     a c b  ->  a c b
//! reverse  a c b  ->  b c a
//! sort     a c b  ->  a b c
//! ```
//!
//! There are spaces between the symbols: letters, or numbers where there are more than 26.

use zoo_config::Sequences;
use zoo_spec::Draw;

use super::parts::parts;
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
    /// Makes up sequences and their arrangements by a seed.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if a size makes no sense, [`DataError::Refused`] if there are
    /// not as many.
    pub fn generate(self, of: &Sequences, seed: u64) -> Result<Parts<Vec<Pair>>, DataError> {
        DataError::at_least("symbols", 2, of.symbols)?;
        DataError::at_least("shortest", 1, of.min_length)?;
        DataError::at_least("longest", of.min_length, of.max_length)?;
        let counts = [of.train_size, of.valid_size, of.test_size];
        let draw = |draw: &mut Draw| {
            let length = draw.within(of.min_length, of.max_length);
            let mut symbols: Vec<usize> = (0..length).map(|_| draw.below(of.symbols)).collect();
            let source = written(&symbols, of.symbols);
            self.apply(&mut symbols);
            Some(Pair::new(source, written(&symbols, of.symbols)))
        };
        parts(self.word(), counts, seed, draw, [|it| it.source.clone(); 2])
    }

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

/// Symbols of so many.
fn written(symbols: &[usize], of: usize) -> String {
    let written = symbols.iter().map(|symbol| match of <= 26 {
        true => char::from(b'a' + *symbol as u8).to_string(),
        false => symbol.to_string(),
    });
    written.collect::<Vec<_>>().join(" ")
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
                let sequences = Sequences {
                    symbols,
                    min_length: 3,
                    max_length: 7,
                    train_size: 300,
                    valid_size: 20,
                    test_size: 0,
                };
                let drawn = arrangement.generate(&sequences, 5).unwrap();
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
