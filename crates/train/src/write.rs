//! Texts written by a model: from tokens in, to tokens out, a batch at a time.

use burn::tensor::Device;
use zoo_config::{Config, Strategy as Said};
use zoo_data::{BEGIN, END, PAD, UNKNOWN};
use zoo_models::{
    GenerateConfig, Generated, ModelError, Seq2Seq, Strategy, Tokens, Transformer, generate,
};

/// Texts that are written side by side: enough to keep a device busy, few enough for the
/// caches of long ones.
const ROWS: usize = 64;

/// A model that writes a text for a text.
pub trait Translates {
    /// The texts that come of each source, the best first.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if a source is too long, or the strategy cannot be.
    fn translate(
        &self,
        sources: &[&[u32]],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Vec<Generated>>, ModelError>;
}

impl Translates for Transformer {
    fn translate(
        &self,
        sources: &[&[u32]],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Vec<Generated>>, ModelError> {
        by_length(sources, |rows| {
            let state = self.start(&Tokens::new(rows, self.source_limits(), device)?)?;
            generate(self, state, &vec![[BEGIN]; rows.len()], config)
        })
    }
}

impl Translates for Seq2Seq {
    fn translate(
        &self,
        sources: &[&[u32]],
        config: &GenerateConfig,
        device: &Device,
    ) -> Result<Vec<Vec<Generated>>, ModelError> {
        by_length(sources, |rows| {
            let state = self.start(&Tokens::new(rows, self.source_limits(), device)?);
            generate(self, state, &vec![[BEGIN]; rows.len()], config)
        })
    }
}

/// Does something for batches of about the same length, and gives the results in the order
/// they were asked for.
fn by_length<T>(
    sources: &[&[u32]],
    mut of_batch: impl FnMut(&[&[u32]]) -> Result<Vec<T>, ModelError>,
) -> Result<Vec<T>, ModelError> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|at| sources[*at].len());
    let mut results: Vec<Option<T>> = sources.iter().map(|_| None).collect();
    for places in order.chunks(ROWS) {
        let rows: Vec<&[u32]> = places.iter().map(|at| sources[*at]).collect();
        for (at, result) in places.iter().zip(of_batch(&rows)?) {
            results[*at] = Some(result);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// How texts are written, as the config's `[decoding]` says.
///
/// # Panics
///
/// If the model writes none; the config has no such section then.
pub(crate) fn generate_config(config: &Config) -> GenerateConfig {
    let (Some(decoding), Some(strategy)) = (&config.decoding, config.strategy()) else {
        panic!("decoding: a {} writes no text", config.model.word());
    };
    // Running text has no end in it that a model could learn. No text is better for saying
    // that a word is not known.
    let (end, never) = match config.model {
        zoo_config::Model::Gpt(_) => (None, vec![PAD, UNKNOWN, BEGIN, END]),
        _ => (Some(END), vec![PAD, UNKNOWN, BEGIN]),
    };
    GenerateConfig::new(strategy_of(&strategy))
        .with_end(end)
        .with_never(never)
        .with_min_length(decoding.min_length)
        .with_max_length(decoding.max_length)
        .with_no_repeat_ngram(decoding.no_repeat_ngram)
        .with_seed(decoding.seed)
}

fn strategy_of(said: &Said) -> Strategy {
    match said {
        Said::Greedy => Strategy::Greedy,
        Said::Beam(beam) => Strategy::Beam {
            beams: beam.beams,
            length_penalty: beam.length_penalty,
            n_best: beam.n_best,
        },
        Said::Sample(sample) => Strategy::Sample {
            temperature: sample.temperature,
            top_k: sample.top_k,
            top_p: sample.top_p,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_in_the_order_of_what_was_asked() {
        let long: Vec<Vec<u32>> = (0..200_u32)
            .map(|at| vec![at; (at as usize * 7) % 31])
            .collect();
        let sources: Vec<&[u32]> = long.iter().map(Vec::as_slice).collect();
        let mut batches = 0;
        let lengths = by_length(&sources, |rows| {
            batches += 1;
            assert!(rows.is_sorted_by_key(|row| row.len()));
            Ok(rows.iter().map(|row| row.len()).collect())
        });
        let expected: Vec<usize> = long.iter().map(Vec::len).collect();
        assert_eq!(lengths, Ok(expected));
        assert_eq!(batches, 4);
    }
}
