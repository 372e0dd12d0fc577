//! Generation with toy models, whose texts can be enumerated.

use std::ops::ControlFlow;

use zoo_models::generate::generate_streaming;
use zoo_models::{GenerateConfig, GeneratedSequence, Stop, Strategy, generate};

use crate::support::*;
use crate::uncached::{
    END, PROBS, Text, Toy, assert_texts_close, constant, countdown, pseudorandom, repetitive,
};

/// Prompts of different lengths.
const PROMPTS: [&[u32]; 2] = [&[1], &[2, 3]];

fn beam(beams: usize, length_penalty: f64, n_best: usize) -> GenerateConfig {
    GenerateConfig::new(Strategy::Beam {
        beams,
        length_penalty,
        n_best,
    })
}

fn tokens(texts: &[GeneratedSequence]) -> Vec<Vec<u32>> {
    texts.iter().map(|text| text.tokens.clone()).collect()
}

fn assert_same_texts(got: &[GeneratedSequence], want: &[GeneratedSequence]) {
    // Sums of a few logarithms in f32.
    assert_texts_close(1e-4, got, want);
}

/// Checks by Pearson's chi-squared test that tokens are sampled with these probabilities, up to a
/// factor. Tokens with probability 0 must not be sampled.
fn check_frequencies(strategy: Strategy, probs: [f64; 5], device: &Device) {
    /// p = 1e-4 with four degrees of freedom; the seed is fixed.
    const CHI_SQUARE: f64 = 23.5;
    let toy = Toy::new(PROBS.len(), constant, device);
    let config = GenerateConfig::new(strategy)
        .with_max_length(16)
        .with_seed(3);
    let mut counts = [0.0; 5];
    let texts = toy.best(&[&[1_u32][..]; 200], &config);
    for token in texts.iter().flat_map(|text| &text.tokens) {
        counts[*token as usize] += 1.0;
    }
    let scale = 3200.0 / probs.iter().sum::<f64>();
    let term = |(count, prob): (&f64, &f64)| (count - prob * scale).powi(2) / (prob * scale);
    let pairs = counts.iter().zip(&probs);
    let relevant = pairs.filter(|(count, prob)| **prob > 0.0 || **count > 0.0);
    let statistic: f64 = relevant.map(term).sum();
    let all = counts.iter().sum::<f64>();
    let is_plausible = statistic < CHI_SQUARE && all == 3200.0;
    let case = format!("{strategy:?}: {counts:?} for {probs:?}");
    assert!(is_plausible, "{case}, chi-squared {statistic}");
}

/// A config of each strategy with an end token.
fn each_strategy() -> [GenerateConfig; 3] {
    let sample = GenerateConfig::new(Strategy::sample(1.0)).with_seed(5);
    [GenerateConfig::default(), sample, beam(3, 0.6, 2)]
        .map(|config| config.with_end(Some(END)).with_max_length(7))
}

fn has_repeated(text: &[u32], size: usize) -> bool {
    let ngrams: Vec<_> = text.windows(size).collect();
    (1..ngrams.len()).any(|i| ngrams[..i].contains(&ngrams[i]))
}

fn assert_rejected(toy: &Toy, prompts: &[&[u32]], config: GenerateConfig, expected: &str) {
    let state = vec![Text::default(); prompts.len()];
    assert_error(generate(&toy.model, state, prompts, &config), expected);
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("widest-beam-is-exhaustive", |device| {
        let toy = Toy::new(4, pseudorandom, device);
        for max_length in 1..=4 {
            for length_penalty in [0.0, 0.6, 1.5] {
                for n_best in [1, 3] {
                    // The last step has 3 · 3 · 3 · 4 candidates.
                    let config = beam(108, length_penalty, n_best)
                        .with_end(Some(END))
                        .with_max_length(max_length);
                    let got = toy.texts(&PROMPTS, &config);
                    for (prompt, got) in PROMPTS.iter().zip(&got) {
                        let all = toy.all_texts(prompt, max_length, length_penalty);
                        assert_same_texts(got, &all[..n_best]);
                    }
                }
            }
        }
    }),
    ("excluded-tokens-are-never-generated", |device| {
        let fewer = Toy::new(4, pseudorandom, device);
        let toy = Toy::new(6, pseudorandom, device);
        for config in each_strategy() {
            let want = fewer.texts(&PROMPTS, &config);
            let got = toy.texts(&PROMPTS, &config.clone().with_never(vec![4, 5]));
            for (got, want) in got.iter().zip(&want) {
                assert_same_texts(got, want);
            }
            // They would have been generated.
            let all = toy.texts(&PROMPTS, &config).concat();
            let has_excluded = all.iter().flat_map(|text| &text.tokens).any(|id| *id > 3);
            assert!(has_excluded, "{config:?}: {all:?}");
        }
    }),
    ("wider-beams-are-not-worse", |device| {
        // Results are valid texts, sorted by score.
        let toy = Toy::new(4, pseudorandom, device);
        let all = toy.all_texts(&[2], 4, 0.6);
        let mut last = f64::NEG_INFINITY;
        for beams in [2, 8, 32] {
            let config = beam(beams, 0.6, 2).with_end(Some(END)).with_max_length(4);
            let found = toy.texts(&[&[2]], &config).concat();
            for text in &found {
                let is_text = |known: &&GeneratedSequence| {
                    known.tokens == text.tokens && known.stop == text.stop
                };
                let known = all.iter().find(is_text).expect("one of all texts");
                assert_same_texts(std::slice::from_ref(text), std::slice::from_ref(known));
            }
            let scores: Vec<f64> = found.iter().map(|text| text.score).collect();
            let is_valid = found.len() == 2 && scores[0] >= scores[1] && scores[0] >= last;
            assert!(is_valid, "{beams} beams: {scores:?} after {last}");
            last = scores[0];
        }
    }),
    ("beam-of-one-is-greedy", |device| {
        let toy = Toy::new(6, pseudorandom, device);
        let prompts: Vec<Vec<u32>> = (1..6).map(|token| vec![token, 2]).collect();
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        for max_length in [1, 3, 12] {
            let sized =
                |config: GenerateConfig| config.with_end(Some(END)).with_max_length(max_length);
            let greedy = toy.best(&prompts, &sized(GenerateConfig::default()));
            assert_same_texts(&toy.best(&prompts, &sized(beam(1, 0.0, 1))), &greedy);
            // An n-gram size that never repeats selects tokens on the host.
            let on_host = sized(GenerateConfig::default()).with_no_repeat_ngram(Some(99));
            assert_same_texts(&toy.best(&prompts, &on_host), &greedy);
            for (prompt, greedy) in prompts.iter().zip(&greedy) {
                let mut text = prompt.to_vec();
                for token in &greedy.tokens {
                    let logs = toy.logs(&text);
                    let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    assert!(logs[*token as usize] == best, "{greedy:?}");
                    text.push(*token);
                }
            }
        }
    }),
    ("first-of-equal-tokens-is-selected", |device| {
        let toy = Toy::new(4, |_, token| f64::from(token.min(2)), device);
        let config = GenerateConfig::default().with_max_length(2);
        for config in [config.clone(), config.with_no_repeat_ngram(Some(9))] {
            let got = tokens(&toy.best(&[&[1]], &config));
            assert!(got == [[2, 2]], "{got:?}");
        }
    }),
    ("samples-follow-the-distribution", |device| {
        let squares = PROBS.map(|prob| prob * prob);
        check_frequencies(Strategy::sample(1.0), PROBS, device);
        check_frequencies(Strategy::sample(0.5), squares, device);
        check_frequencies(Strategy::sample(2.0), PROBS.map(f64::sqrt), device);
    }),
    ("top-k-and-top-p", |device| {
        let two = [0.0, 0.4, 0.0, 0.3, 0.0];
        let three = [0.0, 0.4, 0.0, 0.3, 0.15];
        for (top_k, top_p, probs) in [
            (Some(2), None, two),
            (Some(3), None, three),
            (None, Some(0.65), two),
            (None, Some(0.8), three),
            (Some(3), Some(0.8), two),
        ] {
            let strategy = Strategy::Sample {
                temperature: 1.0,
                top_k,
                top_p,
            };
            check_frequencies(strategy, probs, device);
        }
    }),
    ("no-repeat-ngram", |device| {
        let toy = Toy::new(5, repetitive, device);
        let prompts: [&[u32]; 2] = [&[1, 2], &[3]];
        let free = GenerateConfig::default().with_max_length(12);
        let got = &toy.best(&prompts, &free)[0].tokens;
        assert!(has_repeated(got, 2), "{got:?} has no repetition");
        for strategy in [free.strategy, Strategy::sample(0.7), Strategy::beam(3)] {
            for size in [1, 2, 3] {
                let config = GenerateConfig::new(strategy)
                    .with_max_length(12)
                    .with_no_repeat_ngram(Some(size));
                for (prompt, output) in prompts.iter().zip(toy.best(&prompts, &config)) {
                    let text = [prompt, output.tokens.as_slice()].concat();
                    assert!(!has_repeated(&text, size), "{size}: {text:?}");
                    // Five tokens are exhausted before the maximum length, pairs of them are not.
                    let stop = if size == 1 {
                        Stop::NoChoice
                    } else {
                        Stop::Length
                    };
                    assert!(output.stop == stop, "{size}: {output:?}");
                }
            }
        }
    }),
    ("min-and-max-length", |device| {
        // The end token is by far the most likely.
        let toy = Toy::new(
            4,
            |text, token| pseudorandom(text, token) + 9.0 * f64::from(token == END),
            device,
        );
        for config in each_strategy() {
            for min in [0, 1, 4, 7] {
                let config = config.clone().with_min_length(min);
                let output = toy.best(&[&[1]], &config).remove(0);
                let stop = if min == 7 { Stop::Length } else { Stop::End };
                let is_valid = output.tokens.len() == min && output.stop == stop;
                assert!(is_valid, "{config:?}: {output:?}");
            }
        }
        // Without an end token, it is an ordinary token.
        let endless = GenerateConfig::default().with_max_length(3);
        let output = toy.best(&[&[1]], &endless).remove(0);
        let is_endless = output.tokens == [END; 3] && output.stop == Stop::Length;
        assert!(is_endless, "{output:?}");
    }),
    ("stops-at-the-context-length", |device| {
        let endless =
            |text: &[u32], token| pseudorandom(text, token) - 99.0 * f64::from(token == END);
        let toy = Toy::new(4, endless, device).with_longest(5);
        // The last generated token needs no position.
        for config in each_strategy() {
            let texts = toy.best(&[&[1, 2, 3], &[1; 5]], &config);
            let lengths: Vec<usize> = texts.iter().map(|text| text.tokens.len()).collect();
            let is_valid = lengths == [3, 1] && texts.iter().all(|text| text.stop == Stop::Length);
            assert!(is_valid, "{config:?}: {texts:?}");
        }
    }),
    ("seed-determines-samples", |device| {
        let toy = Toy::new(6, pseudorandom, device);
        let config = GenerateConfig::new(Strategy::sample(1.5)).with_max_length(12);
        let prompts: [&[u32]; 2] = [&[1], &[1]];
        let sample = |seed| toy.best(&prompts, &config.clone().with_seed(seed));
        let (one, again, other) = (sample(1), sample(1), sample(2));
        assert_same_texts(&one, &again);
        assert!(tokens(&one) != tokens(&other), "the seed has no effect");
        // Each row has its own random stream.
        assert!(one[0].tokens != one[1].tokens, "rows are equal");
    }),
    ("rows-are-independent", |device| {
        let toy = Toy::new(5, pseudorandom, device);
        for config in each_strategy() {
            let prompts: [&[u32]; 3] = [&[1, 2, 3, 4], &[2], &[4, 4, 1]];
            let together = toy.texts(&prompts, &config);
            for (row, prompt) in prompts.iter().enumerate() {
                // The same row of a batch of equal lengths.
                let others = toy.texts(&[*prompt; 3], &config);
                assert_same_texts(&together[row], &others[row]);
                if !matches!(config.strategy, Strategy::Sample { .. }) {
                    assert_same_texts(&together[row], &toy.texts(&[prompt], &config)[0]);
                }
            }
        }
    }),
    ("finished-rows-are-removed", |device| {
        let prompts: [&[u32]; 4] = [&[2], &[4], &[1], &[4, 4]];
        for (config, rows) in [
            // The last prompt has one token more.
            (GenerateConfig::default(), vec![4, 3, 2, 2, 1]),
            (beam(1, 0.0, 1), vec![4, 3, 2, 2, 1]),
        ] {
            let toy = Toy::new(5, countdown, device);
            let texts = toy.best(&prompts, &config.with_end(Some(END)));
            let expected: [&[u32]; 4] = [&[1], &[3, 2, 1], &[], &[3, 2, 1]];
            assert!(tokens(&texts) == expected, "{texts:?}");
            let counted = toy.rows.take();
            assert!(counted == rows, "{counted:?}, expected {rows:?}");
        }
        // A beam of three has at most three rows per prompt, and one in the first step.
        let toy = Toy::new(5, pseudorandom, device);
        let config = beam(3, 0.0, 1).with_max_length(4);
        toy.best(&[&[1], &[2, 3]], &config);
        let counted = toy.rows.take();
        assert!(counted == [2, 4, 6, 6, 3], "{counted:?}");
    }),
    ("tokens-are-streamed", |device| {
        let toy = Toy::new(5, pseudorandom, device);
        let prompts: [&[u32]; 3] = [&[1, 2, 3], &[2], &[4]];
        for config in each_strategy() {
            let mut streamed = vec![vec![]; 3];
            let state = vec![Text::default(); 3];
            let on_token = |row: usize, token| {
                streamed[row].push(token);
                ControlFlow::Continue(())
            };
            let texts = generate_streaming(&toy.model, state, &prompts, &config, on_token);
            let best = must(texts).into_iter().map(|mut texts| texts.remove(0));
            let best: Vec<GeneratedSequence> = best.collect();
            assert_eq!(streamed, tokens(&best));
        }
    }),
    ("the-callback-stops-generation", |device| {
        let toy = Toy::new(5, pseudorandom, device);
        let config = GenerateConfig::default().with_max_length(50);
        let mut streamed = vec![];
        let state = vec![Text::default()];
        let texts = generate_streaming(&toy.model, state, &[[1]], &config, |_, token| {
            streamed.push(token);
            match streamed.len() {
                3 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        let text = must(texts).remove(0).remove(0);
        assert_eq!((streamed.len(), &text.tokens), (3, &streamed));
        assert_eq!(text.stop, Stop::Interrupted);
        // The third token is not fed back.
        assert_eq!(toy.rows.take(), [1; 3]);
    }),
    ("invalid-prompts-are-rejected", |device| {
        let toy = Toy::new(4, pseudorandom, device).with_longest(3);
        let config = GenerateConfig::default;
        let no_prompt = "row 1 has an empty prompt; generation needs at least one token";
        let outside =
            "token 4 at position 1 of row 1 is outside of the vocabulary: it has 4 tokens, 0 to 3";
        let too_long = "row 0 has 4 tokens; the model's context is 3";
        let no_end = "end must be below the vocabulary size 4, got 4";
        assert_rejected(&toy, &[&[1], &[]], config(), no_prompt);
        assert_rejected(&toy, &[&[1], &[2, 4]], config(), outside);
        assert_rejected(&toy, &[&[1; 4]], config(), too_long);
        assert_rejected(&toy, &[&[1]], config().with_end(Some(4)), no_end);
        let none = toy.texts(&[], &config());
        assert!(none.is_empty() && toy.rows.take().is_empty(), "{none:?}");
    }),
];
