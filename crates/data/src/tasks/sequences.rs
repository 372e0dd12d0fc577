//! Copy, reverse and sort sequences of symbols.
//!
//! ```text
//! copy     a c b  ->  a c b
//! reverse  a c b  ->  b c a
//! sort     a c b  ->  a b c
//! ```
//!
//! Symbols are separated by spaces. They are letters, or numbers if there are more than 26.

use zoo_config::Sequences;
use zoo_spec::SplitMix64;

use super::splits::generate_splits;
use crate::{DataError, Pair, Splits};

/// Operation on a sequence of symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SequenceTask {
    /// Copy the sequence.
    Copy,
    /// Reverse the sequence.
    Reverse,
    /// Sort the symbols.
    Sort,
}

impl SequenceTask {
    /// Generates all splits, with the errors of [`Generate::generate`](super::Generate::generate).
    pub fn generate(self, sizes: &Sequences, seed: u64) -> Result<Splits<Vec<Pair>>, DataError> {
        DataError::at_least("symbols", 2, sizes.symbols)?;
        DataError::at_least("min_length", 1, sizes.min_length)?;
        DataError::at_least("max_length", sizes.min_length, sizes.max_length)?;
        let counts = [sizes.train_size, sizes.valid_size, sizes.test_size];
        let sample = |rng: &mut SplitMix64| {
            let length = rng.within(sizes.min_length, sizes.max_length);
            let mut symbols: Vec<usize> = (0..length).map(|_| rng.below(sizes.symbols)).collect();
            let source = format_symbols(&symbols, sizes.symbols);
            match self {
                Self::Copy => {}
                Self::Reverse => symbols.reverse(),
                Self::Sort => symbols.sort_unstable(),
            }
            Some(Pair::new(source, format_symbols(&symbols, sizes.symbols)))
        };
        let name = match self {
            Self::Copy => "copy",
            Self::Reverse => "reverse",
            Self::Sort => "sort",
        };
        generate_splits(name, counts, seed, sample, [|it| it.source.clone(); 2])
    }
}

fn format_symbols(symbols: &[usize], alphabet_size: usize) -> String {
    let names = symbols.iter().map(|symbol| {
        if alphabet_size <= 26 {
            char::from(b'a' + *symbol as u8).to_string()
        } else {
            symbol.to_string()
        }
    });
    names.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_copied_reversed_or_sorted() {
        let tasks = [
            SequenceTask::Copy,
            SequenceTask::Reverse,
            SequenceTask::Sort,
        ];
        let functions: [fn(&mut [u32]); 3] = [|_| (), |it| it.reverse(), |it| it.sort_unstable()];
        for symbols in [3, 26, 40] {
            let sequences = Sequences {
                symbols,
                min_length: 3,
                max_length: 7,
                train_size: 300,
                valid_size: 20,
                test_size: 0,
            };
            for (task, expected) in tasks.into_iter().zip(functions) {
                let splits = task.generate(&sequences, 5).unwrap();
                for pair in splits.train.iter().chain(&splits.valid) {
                    let mut source = parse(&pair.source, symbols);
                    assert!((3..=7).contains(&source.len()), "{pair:?}");
                    assert!(source.iter().all(|symbol| *symbol < symbols as u32));
                    expected(&mut source);
                    assert_eq!(source, parse(&pair.target, symbols), "{pair:?}");
                }
            }
        }
    }

    fn parse(text: &str, symbols: usize) -> Vec<u32> {
        let symbol = |word: &str| match symbols {
            0..=26 => u32::from(word.parse::<char>().unwrap()) - u32::from('a'),
            _ => word.parse().unwrap(),
        };
        text.split(' ').map(symbol).collect()
    }
}
