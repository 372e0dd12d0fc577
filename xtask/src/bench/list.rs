//! `cargo xtask bench --list`: what can be chosen.

use std::fmt::Write;

use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Model, Setup};
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
    let words = |words: &[&str]| -> Vec<(String, String)> {
        let entry = |word: &&str| ((*word).to_owned(), String::new());
        words.iter().map(entry).collect()
    };

    group("--backend", words(&Backend::ALL.map(Backend::word)));
    let suite = |suite: Suite| (suite.to_string(), suite.summary().to_owned());
    group("--suite", Suite::ALL.map(suite).to_vec());
    let mechanism = |mechanism: Mechanism| (mechanism.to_string(), meaning(mechanism));
    group("--mechanism", Mechanism::ALL.map(mechanism).to_vec());
    let problems = catalogue().into_iter().chain(only_measured());
    let problem = |problem: Problem| (problem.name.to_owned(), sizes(&problem));
    group("--problem", problems.map(problem).collect());
    let model = |setup: &Setup| (setup.name(), model_sizes(setup));
    group("--model", Setup::all().iter().map(model).collect());
    let passes = [&Pass::ALL.map(Pass::word)[..], &["both"]].concat();
    group("--pass", words(&passes));
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
        model,
        batch,
        n,
        vocabulary,
        d_model,
        d_hidden,
        sentences,
        heads,
        layers,
        ..
    } = setup;
    let recurrent = format!("embedding {d_model}, hidden {d_hidden}");
    let attention = format!("d_model {d_model}, {heads} heads, d_hidden {d_hidden}");
    let shape = match (model, layers) {
        (Model::Han, _) => format!("{sentences} sentences, {recurrent}"),
        (Model::Seq2Seq, _) => recurrent,
        (Model::Transformer, _) => format!("{layers} + {layers} layers, {attention}"),
        (_, 1) => format!("one layer, {attention}"),
        _ => format!("{layers} layers, {attention}"),
    };
    let passes = model.usual_passes().iter().map(|pass| pass.word());
    let passes: Vec<&str> = passes.collect();
    format!(
        "batch {batch}, n {n}, {vocabulary} tokens, {shape}; {}",
        passes.join(" and ")
    )
}
