//! Generation with toys whose every text can be written down.

use burn::tensor::Device;
use zoo_models::generate::generate_streaming;
use zoo_models::{GenerateConfig, Generated, Stop, Strategy, generate};

use crate::support::*;
use crate::toy::{END, SHARES, Toy, countdown, scattered, stammer, unchanging};
use crate::uncached::Text;

fn beam(beams: usize, length_penalty: f64, n_best: usize) -> GenerateConfig {
    GenerateConfig::new(Strategy::Beam {
        beams,
        length_penalty,
        n_best,
    })
}

fn tokens(texts: &[Generated]) -> Vec<Vec<u32>> {
    texts.iter().map(|text| text.tokens.clone()).collect()
}

fn same_texts(got: &[Generated], want: &[Generated]) {
    let is_same = |(got, want): (&Generated, &Generated)| {
        // Logarithms are computed in f32 on the device, a few steps of them.
        let is_near = |got: f64, want: f64| (got - want).abs() < 1e-4;
        got.tokens == want.tokens
            && got.stop == want.stop
            && is_near(got.log_probability, want.log_probability)
            && is_near(got.score, want.score)
    };
    let same = got.len() == want.len() && got.iter().zip(want).all(is_same);
    assert!(same, "{got:?}, not {want:?}");
}

/// Checks that each token of [`SHARES`] is drawn as often as this, by Pearson's chi-square: a
/// token with no share must not be drawn at all.
fn drawn_by(strategy: Strategy, shares: [f64; 5], device: &Device) {
    /// Four degrees of freedom: once in ten thousand by chance, and the seed is fixed.
    const CHI_SQUARE: f64 = 23.5;
    let toy = Toy::new(SHARES.len(), unchanging, device);
    let config = GenerateConfig::new(strategy)
        .with_max_length(16)
        .with_seed(3);
    let mut counts = [0.0; 5];
    let texts = toy.best(&[&[1_u32][..]; 200], &config);
    for token in texts.iter().flat_map(|text| &text.tokens) {
        counts[*token as usize] += 1.0;
    }
    let scale = 3200.0 / shares.iter().sum::<f64>();
    let term = |(count, share): (&f64, &f64)| (count - share * scale).powi(2) / (share * scale);
    let pairs = counts.iter().zip(&shares);
    let seen = pairs.filter(|(count, share)| **share > 0.0 || **count > 0.0);
    let off: f64 = seen.map(term).sum();
    let all = counts.iter().sum::<f64>();
    let is_near = off < CHI_SQUARE && all == 3200.0;
    assert!(
        is_near,
        "{strategy:?}: {counts:?} for {shares:?} are {off} off"
    );
}

/// A config of each strategy, with an end.
fn each_strategy() -> [GenerateConfig; 3] {
    let sample = GenerateConfig::new(Strategy::sample(1.0)).with_seed(5);
    [GenerateConfig::default(), sample, beam(3, 0.6, 2)]
        .map(|config| config.with_end(Some(END)).with_max_length(7))
}

fn has_repeated(text: &[u32], size: usize) -> bool {
    let ngrams: Vec<_> = text.windows(size).collect();
    (1..ngrams.len()).any(|at| ngrams[..at].contains(&ngrams[at]))
}

fn refused(toy: &Toy, prompts: &[&[u32]], config: GenerateConfig, why: &str) {
    let refused = generate(
        &toy.model,
        vec![Text::default(); prompts.len()],
        prompts,
        &config,
    );
    let said = refused.err().map(|error| error.to_string());
    assert_eq!(said.as_deref(), Some(why));
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("a-beam-of-everything-is-exhaustive", |device| {
        let toy = Toy::new(4, scattered, device);
        let prompts: [&[u32]; 2] = [&[1], &[2, 3]];
        for max_length in 1..=4 {
            for length_penalty in [0.0, 0.6, 1.5] {
                for n_best in [1, 3] {
                    // 3 · 3 · 3 · 4 tokens are looked at in the last step.
                    let config = beam(108, length_penalty, n_best)
                        .with_end(Some(END))
                        .with_max_length(max_length);
                    let got = toy.texts(&prompts, &config);
                    for (prompt, got) in prompts.iter().zip(&got) {
                        let all = toy.all_texts(prompt, max_length, length_penalty);
                        same_texts(got, &all[..n_best]);
                    }
                }
            }
        }
    }),
    ("what-never-comes-is-as-if-it-were-not-there", |device| {
        let fewer = Toy::new(4, scattered, device);
        let toy = Toy::new(6, scattered, device);
        let prompts: [&[u32]; 2] = [&[1], &[2, 3]];
        for config in each_strategy() {
            let want = fewer.texts(&prompts, &config);
            let got = toy.texts(&prompts, &config.clone().with_never(vec![4, 5]));
            for (got, want) in got.iter().zip(&want) {
                same_texts(got, want);
            }
            // And they would have come.
            let all = toy.texts(&prompts, &config).concat();
            let comes = all.iter().flat_map(|text| &text.tokens).any(|id| *id > 3);
            assert!(comes, "{config:?}: {all:?}");
        }
    }),
    ("a-narrow-beam-keeps-what-it-finishes", |device| {
        // What it finds is among all texts, in order, and not worse than a narrower one's.
        let toy = Toy::new(4, scattered, device);
        let all = toy.all_texts(&[2], 4, 0.6);
        let mut last = f64::NEG_INFINITY;
        for beams in [2, 8, 32] {
            let config = beam(beams, 0.6, 2).with_end(Some(END)).with_max_length(4);
            let found = toy.texts(&[&[2]], &config).concat();
            for text in &found {
                let is_text =
                    |known: &&Generated| known.tokens == text.tokens && known.stop == text.stop;
                let known = all.iter().find(is_text).expect("one of all texts");
                same_texts(std::slice::from_ref(text), std::slice::from_ref(known));
            }
            let scores: Vec<f64> = found.iter().map(|text| text.score).collect();
            let is_fine = found.len() == 2 && scores[0] >= scores[1] && scores[0] >= last;
            assert!(is_fine, "{beams} beams: {scores:?} after {last}");
            last = scores[0];
        }
    }),
    ("a-beam-of-one-is-greedy", |device| {
        let toy = Toy::new(6, scattered, device);
        let prompts: Vec<Vec<u32>> = (1..6).map(|token| vec![token, 2]).collect();
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        for max_length in [1, 3, 12] {
            let sized =
                |config: GenerateConfig| config.with_end(Some(END)).with_max_length(max_length);
            let greedy = toy.best(&prompts, &sized(GenerateConfig::default()));
            same_texts(&toy.best(&prompts, &sized(beam(1, 0.0, 1))), &greedy);
            // By way of the host: nothing this long can come twice.
            let on_host = sized(GenerateConfig::default()).with_no_repeat_ngram(Some(99));
            same_texts(&toy.best(&prompts, &on_host), &greedy);
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
    ("of-equal-tokens-the-first-is-taken", |device| {
        let toy = Toy::new(4, |_, token| f64::from(token.min(2)), device);
        let config = GenerateConfig::default().with_max_length(2);
        for config in [config.clone(), config.with_no_repeat_ngram(Some(9))] {
            let got = tokens(&toy.best(&[&[1]], &config));
            assert!(got == [[2, 2]], "{got:?}");
        }
    }),
    ("draws-are-as-likely-as-the-model-says", |device| {
        let squares = SHARES.map(|share| share * share);
        drawn_by(Strategy::sample(1.0), SHARES, device);
        drawn_by(Strategy::sample(0.5), squares, device);
        drawn_by(Strategy::sample(2.0), SHARES.map(f64::sqrt), device);
    }),
    ("the-top-alone-is-drawn", |device| {
        let two = [0.0, 0.4, 0.0, 0.3, 0.0];
        let three = [0.0, 0.4, 0.0, 0.3, 0.15];
        for (top_k, top_p, shares) in [
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
            drawn_by(strategy, shares, device);
        }
    }),
    ("nothing-comes-twice-that-must-not", |device| {
        let toy = Toy::new(5, stammer, device);
        let prompts: [&[u32]; 2] = [&[1, 2], &[3]];
        let free = GenerateConfig::default().with_max_length(12);
        let got = &toy.best(&prompts, &free)[0].tokens;
        assert!(has_repeated(got, 2), "{got:?} does not stammer");
        for strategy in [free.strategy, Strategy::sample(0.7), Strategy::beam(3)] {
            for size in [1, 2, 3] {
                let config = GenerateConfig::new(strategy)
                    .with_max_length(12)
                    .with_no_repeat_ngram(Some(size));
                for (prompt, made) in prompts.iter().zip(toy.best(&prompts, &config)) {
                    let text = [prompt, made.tokens.as_slice()].concat();
                    assert!(!has_repeated(&text, size), "{size}: {text:?}");
                    // Five tokens are soon used up, pairs of them later.
                    let stop = match size {
                        1 => Stop::NoChoice,
                        _ => Stop::Length,
                    };
                    assert!(made.stop == stop, "{size}: {made:?}");
                }
            }
        }
    }),
    ("texts-are-as-long-as-they-may-be", |device| {
        // The end is by far the likeliest.
        let toy = Toy::new(
            4,
            |text, token| scattered(text, token) + 9.0 * f64::from(token == END),
            device,
        );
        for config in each_strategy() {
            for least in [0, 1, 4, 7] {
                let config = config.clone().with_min_length(least);
                let made = toy.best(&[&[1]], &config).remove(0);
                let stop = match least {
                    7 => Stop::Length,
                    _ => Stop::End,
                };
                let is_fine = made.tokens.len() == least && made.stop == stop;
                assert!(is_fine, "{config:?}: {made:?}");
            }
        }
        // And without an end there is none: the token is one like the others.
        let endless = GenerateConfig::default().with_max_length(3);
        let made = toy.best(&[&[1]], &endless).remove(0);
        let is_endless = made.tokens == [END; 3] && made.stop == Stop::Length;
        assert!(is_endless, "{made:?}");
    }),
    ("a-model-without-more-positions-stops", |device| {
        let endless = |text: &[u32], token| scattered(text, token) - 99.0 * f64::from(token == END);
        let toy = Toy::new(4, endless, device).with_longest(5);
        // The last token that is made needs no position.
        for config in each_strategy() {
            let made = toy.best(&[&[1, 2, 3], &[1; 5]], &config);
            let lengths: Vec<usize> = made.iter().map(|made| made.tokens.len()).collect();
            let is_fine = lengths == [3, 1] && made.iter().all(|made| made.stop == Stop::Length);
            assert!(is_fine, "{config:?}: {made:?}");
        }
    }),
    ("a-seed-says-what-is-drawn", |device| {
        let toy = Toy::new(6, scattered, device);
        let config = GenerateConfig::new(Strategy::sample(1.5)).with_max_length(12);
        let prompts: [&[u32]; 2] = [&[1], &[1]];
        let draw = |seed| toy.best(&prompts, &config.clone().with_seed(seed));
        let (one, again, other) = (draw(1), draw(1), draw(2));
        same_texts(&one, &again);
        assert!(tokens(&one) != tokens(&other), "seeds change nothing");
        // Rows with the same prompt have a stream each.
        assert!(one[0].tokens != one[1].tokens, "rows are alike");
    }),
    ("rows-know-nothing-of-each-other", |device| {
        let toy = Toy::new(5, scattered, device);
        for config in each_strategy() {
            let prompts: [&[u32]; 3] = [&[1, 2, 3, 4], &[2], &[4, 4, 1]];
            let together = toy.texts(&prompts, &config);
            for (row, prompt) in prompts.iter().enumerate() {
                // As the same row among others, all of one length.
                let others = toy.texts(&[*prompt; 3], &config);
                same_texts(&together[row], &others[row]);
                if !matches!(config.strategy, Strategy::Sample { .. }) {
                    same_texts(&together[row], &toy.texts(&[prompt], &config)[0]);
                }
            }
        }
    }),
    ("finished-rows-cost-nothing", |device| {
        let prompts: [&[u32]; 4] = [&[2], &[4], &[1], &[4, 4]];
        for (config, rows) in [
            // The last row is given one token more.
            (GenerateConfig::default(), vec![4, 3, 2, 2, 1]),
            (beam(1, 0.0, 1), vec![4, 3, 2, 2, 1]),
        ] {
            let toy = Toy::new(5, countdown, device);
            let made = toy.best(&prompts, &config.with_end(Some(END)));
            let expected: [&[u32]; 4] = [&[1], &[3, 2, 1], &[], &[3, 2, 1]];
            assert!(tokens(&made) == expected, "{made:?}");
            let counted = toy.rows.take();
            assert!(counted == rows, "{counted:?}, not {rows:?}");
        }
        // A beam of three holds three rows at most, and one for a prompt.
        let toy = Toy::new(5, scattered, device);
        let config = beam(3, 0.0, 1).with_max_length(4);
        toy.best(&[&[1], &[2, 3]], &config);
        let counted = toy.rows.take();
        assert!(counted == [2, 4, 6, 6, 3], "{counted:?}");
    }),
    ("tokens-are-told-as-they-come", |device| {
        let toy = Toy::new(5, scattered, device);
        let prompts: [&[u32]; 3] = [&[1, 2, 3], &[2], &[4]];
        for config in each_strategy() {
            let mut told = vec![vec![]; 3];
            let state = vec![Text::default(); 3];
            let told_each = |row: usize, token| told[row].push(token);
            let made = generate_streaming(&toy.model, state, &prompts, &config, told_each);
            let made = must(made);
            let best: Vec<_> = made.iter().map(|texts| texts[0].tokens.clone()).collect();
            assert_eq!(told, best);
        }
    }),
    ("what-cannot-be-continued-is-refused", |device| {
        let toy = Toy::new(4, scattered, device).with_longest(3);
        let config = GenerateConfig::default;
        let no_prompt = "row 1 has no prompt: a text is continued from one token at least";
        let outside =
            "token 4 at place 1 of row 1 is outside of the vocabulary: it has 4 tokens, 0 to 3";
        let too_long = "row 0 has 4 tokens, and the model has positions for 3 of them";
        let no_end = "end must be below the 4 tokens there are, got 4";
        refused(&toy, &[&[1], &[]], config(), no_prompt);
        refused(&toy, &[&[1], &[2, 4]], config(), outside);
        refused(&toy, &[&[1; 4]], config(), too_long);
        refused(&toy, &[&[1]], config().with_end(Some(4)), no_end);
        let none = toy.texts(&[], &config());
        assert!(none.is_empty() && toy.rows.take().is_empty(), "{none:?}");
    }),
];
