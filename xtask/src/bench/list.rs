//! `cargo xtask bench --list`: the values of each flag.

use std::fmt::Write;

use zoo_bench_core::case::Pass;
use zoo_bench_core::library::Library;
use zoo_bench_core::model::{Model, Setup};
use zoo_bench_core::plan::Suite;
use zoo_oracle::{Problem, bench_only, catalogue};
use zoo_spec::keys::Variant;
use zoo_spec::{Backend, Dtype, Mechanism};

pub(super) fn everything() -> String {
    let mut text = String::new();
    let mut group = |flag: &str, entries: Vec<(String, String)>| {
        let width = entries.iter().map(|(name, _)| name.len()).max();
        let width = width.unwrap_or_default();
        let _ = writeln!(text, "{flag}");
        for (name, description) in entries {
            let line = format!("  {name:width$}  {description}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    };
    let names = |names: &[&str]| -> Vec<(String, String)> {
        let entry = |name: &&str| ((*name).to_owned(), String::new());
        names.iter().map(entry).collect()
    };

    group("--backend", names(&Backend::ALL.map(Backend::name)));
    let described = |variants: &[Variant]| -> Vec<(String, String)> {
        let entry = |it: &Variant| (it.name.to_owned(), it.about.trim().to_owned());
        variants.iter().map(entry).collect()
    };
    group("--suite", described(Suite::NAMES));
    let mechanism = |mechanism: Mechanism| {
        let summary = mechanism.summary();
        let description = match mechanism.aliases() {
            [] => summary.to_owned(),
            aliases => format!("{summary} (aliases: {})", aliases.join(", ")),
        };
        (mechanism.to_string(), description)
    };
    group("--mechanism", Mechanism::ALL.map(mechanism).to_vec());
    let problems = catalogue().into_iter().chain(bench_only());
    let problem = |problem: Problem| (problem.name.to_owned(), sizes(&problem));
    group("--problem", problems.map(problem).collect());
    let model = |setup: &Setup| (setup.name(), model_sizes(setup));
    group("--model", Setup::all().iter().map(model).collect());
    let passes = [&Pass::ALL.map(Pass::name)[..], &["both"]].concat();
    group("--pass", names(&passes));
    group("--dtype", names(&Dtype::ALL.map(Dtype::name)));
    group("--vs", described(Library::NAMES));
    text
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
    let (d_model, d_hidden) = (setup.d_model, setup.d_hidden);
    let (heads, layers) = (setup.heads, setup.layers);
    let recurrent = format!("embedding {d_model}, hidden {d_hidden}");
    let attention = format!("d_model {d_model}, {heads} heads, d_hidden {d_hidden}");
    let shape = match (setup.model, layers) {
        (Model::Han, _) => format!("{} sentences, {recurrent}", setup.sentences),
        (Model::Seq2Seq, _) => recurrent,
        (Model::Transformer, _) => format!("{layers} + {layers} layers, {attention}"),
        (_, 1) => format!("one layer, {attention}"),
        _ => format!("{layers} layers, {attention}"),
    };
    let (batch, n, vocabulary) = (setup.batch, setup.n, setup.vocabulary);
    let passes = setup.model.default_passes().iter().map(|pass| pass.name());
    let passes = passes.collect::<Vec<&str>>().join(" and ");
    format!("batch {batch}, n {n}, {vocabulary} tokens, {shape}; {passes}")
}
