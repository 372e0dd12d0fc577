//! `cargo xtask bench --list`: what can be chosen.

use std::fmt::Write;

use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Model, Setup, Shape, Size};
use zoo_bench_core::plan::Suite;
use zoo_oracle::{Problem, catalogue, only_measured};
use zoo_spec::{Backend, Dtype, Mechanism};

/// Every word that `bench` takes, with what it stands for.
pub(super) fn everything() -> String {
    let mut text = String::new();
    let mut group = |flag: &str, entries: Vec<(String, String)>| {
        let width = entries.iter().map(|(word, _)| word.len()).max();
        let width = width.unwrap_or_default();
        let _ = writeln!(text, "{flag}");
        for (word, meaning) in entries {
            let line = format!("  {word:width$}  {meaning}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    };
    let words = |words: &[&str]| {
        let entry = |word: &&str| ((*word).to_owned(), String::new());
        words.iter().map(entry).collect::<Vec<_>>()
    };
    let entry = |word: &str, meaning: &str| (word.to_owned(), meaning.to_owned());

    group("--backend", words(&Backend::ALL.map(Backend::word)));
    group(
        "--suite",
        Suite::ALL
            .map(|suite| entry(suite.word(), suite.summary()))
            .to_vec(),
    );
    group(
        "--mechanism",
        Mechanism::ALL
            .map(|mechanism| entry(mechanism.word(), &meaning(mechanism)))
            .to_vec(),
    );
    let problems: Vec<_> = catalogue().into_iter().chain(only_measured()).collect();
    group(
        "--problem",
        problems
            .iter()
            .map(|problem| (problem.name.to_owned(), sizes(problem)))
            .collect(),
    );
    group(
        "--model",
        Model::ALL
            .into_iter()
            .flat_map(|model| Size::ALL.map(|size| Setup::new(model, size)))
            .map(|setup| (setup.name(), model_sizes(&setup)))
            .collect(),
    );
    group(
        "--pass",
        words(&[&Pass::ALL.map(Pass::word)[..], &["both"]].concat()),
    );
    group("--dtype", words(&Dtype::ALL.map(Dtype::word)));
    group("--vs", words(&["pytorch"]));
    text
}

/// What a mechanism computes, and what else it is called.
fn meaning(mechanism: Mechanism) -> String {
    let computes = mechanism.summary();
    match mechanism.aliases() {
        [] => computes.to_owned(),
        names => format!("{computes}; also called {}", names.join(", ")),
    }
}

fn sizes(problem: &Problem) -> String {
    let Problem {
        batch,
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = problem;
    let mut text = format!("batch {batch}, {heads} heads");
    if kv_heads != heads {
        let _ = write!(text, " over {kv_heads}");
    }
    let _ = write!(text, ", {seq_q} x {seq_k}, d_head {d_head}");
    if d_value != d_head {
        let _ = write!(text, ", d_value {d_value}");
    }
    if problem.at_length(seq_k + 1).is_some() {
        text.push_str("; takes --seq");
    }
    text
}

fn model_sizes(setup: &Setup) -> String {
    let Setup {
        batch,
        n,
        vocabulary,
        ..
    } = setup;
    let shape = match &setup.shape {
        Shape::Documents {
            embedding,
            hidden,
            sentences,
            ..
        } => format!("{sentences} sentences, embedding {embedding}, hidden {hidden}"),
        Shape::Recurrent { embedding, hidden } => {
            format!("embedding {embedding}, hidden {hidden}")
        }
        Shape::Layers {
            d_model,
            heads,
            d_hidden,
            layers,
            ..
        } => {
            let layers = match (setup.model, layers) {
                (Model::Transformer, _) => format!("{layers} + {layers} layers"),
                (_, 1) => "one layer".to_owned(),
                _ => format!("{layers} layers"),
            };
            format!("{layers}, d_model {d_model}, {heads} heads, d_hidden {d_hidden}")
        }
    };
    let passes = setup.model.usual_passes().iter().map(|pass| pass.word());
    let passes: Vec<&str> = passes.collect();
    format!(
        "batch {batch}, n {n}, {vocabulary} tokens, {shape}; {}",
        passes.join(" and ")
    )
}
