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
    let mut text = format!("batch {}, {} heads", problem.batch, problem.heads);
    if problem.kv_heads != problem.heads {
        let _ = write!(text, " over {}", problem.kv_heads);
    }
    let (rows, columns) = (problem.seq_q, problem.seq_k);
    let _ = write!(text, ", {rows} x {columns}, d_head {}", problem.d_head);
    if problem.d_value != problem.d_head {
        let _ = write!(text, ", d_value {}", problem.d_value);
    }
    if problem.at_length(columns + 1).is_some() {
        text.push_str("; takes --seq");
    }
    text
}

fn model_sizes(setup: &Setup) -> String {
    let (d_model, d_hidden, layers) = (setup.d_model, setup.d_hidden, setup.layers);
    let recurrent = format!("embedding {d_model}, hidden {d_hidden}");
    let attention = format!(
        "d_model {d_model}, {} heads, d_hidden {d_hidden}",
        setup.heads
    );
    let shape = match (setup.model, layers) {
        (Model::Han, _) => format!("{} sentences, {recurrent}", setup.sentences),
        (Model::Seq2Seq, _) => recurrent,
        (Model::Transformer, _) => format!("{layers} + {layers} layers, {attention}"),
        (_, 1) => format!("one layer, {attention}"),
        _ => format!("{layers} layers, {attention}"),
    };
    let (batch, n, vocabulary) = (setup.batch, setup.n, setup.vocabulary);
    let passes = setup.model.usual_passes().iter().map(|pass| pass.word());
    let passes = passes.collect::<Vec<&str>>().join(" and ");
    format!("batch {batch}, n {n}, {vocabulary} tokens, {shape}; {passes}")
}
