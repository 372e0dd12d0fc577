//! `zoo inspect`, `zoo average` and `zoo new`.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use burn::tensor::TensorData;
use zoo_models::weights::Weights;
use zoo_train::cli::average::Average;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::new::New;
use zoo_train::cli::translate::Translate;

use crate::runs::*;

trials! {
    trials(Runs):
    average_of_checkpoints,
    a_run,
    a_checkpoint,
    a_weights_file,
    time_is_linear_in_the_number_of_tensors,
    new_templates_are_valid_configs,
}

fn average_of_checkpoints(runs: &Runs) {
    let output = runs.train_output(Kind::Seq2Seq);
    let stdout = runs.run_ok::<Average>(Kind::Seq2Seq, &[]);
    ends(&stdout, "mean of step 2\n");
    let one = Weights::read(output.folder.file("average.safetensors")).unwrap();
    let last = output.folder.checkpoints().read(2).unwrap().weights;
    for key in last.keys() {
        assert_eq!(one.get(key), last.get(key), "{key}");
    }

    let output = runs.train_output(Kind::Transformer);
    let checkpoints = output.folder.checkpoints();
    assert_eq!(checkpoints.steps().unwrap(), [2, 4, 6]);
    let file = runs.text_file("averaged.txt", "a b\n");
    let args = ["--checkpoint", "average", "--file", &file];
    let message = runs.run_err::<Translate>(Kind::Transformer, &args);
    let expected = "has no averaged weights\n  help: run `zoo average";
    has(&message, expected);
    let stdout = runs.run_ok::<Average>(Kind::Transformer, &["--last", "2"]);
    ends(&stdout, "average.safetensors: mean of steps 4, 6\n");
    let values = |weights: &Weights, key: &str| -> Vec<f64> {
        weights.get(key).unwrap().iter::<f64>().collect()
    };
    let mean = Weights::read(output.folder.file("average.safetensors")).unwrap();
    let [four, six] = [4, 6].map(|step| checkpoints.read(step).unwrap().weights);
    assert_eq!(mean.keys().count(), four.keys().count());
    let mut has_changed = false;
    for key in four.keys() {
        let both = values(&four, key).into_iter().zip(values(&six, key));
        for ((four, six), mean) in both.zip(values(&mean, key)) {
            assert_eq!(((four + six) / 2.0) as f32, mean as f32, "{key}");
            has_changed |= four != six;
        }
    }
    assert!(has_changed, "both checkpoints are equal");
    let text = runs.run_ok::<Translate>(Kind::Transformer, &args);
    assert_eq!(text.lines().count(), 1);

    let message = runs.run_err::<Average>(Kind::Transformer, &["--last", "4"]);
    starts(&message, "--last must be from 1 to 3");
    let message = runs.run_err::<Average>(Kind::Transformer, &["--steps", "2,5"]);
    ends(&message, "has no checkpoint of step 5 (available: 2, 4, 6)");
}

fn inspect(args: &[&str]) -> String {
    run_ok::<Inspect>(args)
}

fn a_run(runs: &Runs) {
    let run = runs.arg(Kind::Transformer);
    let text = inspect(&[&run]);
    for part in [
        "transformer on copy",
        "Burn 0.22.1",
        "Transformer of 1 + 1 layers",
        "parameters",
        "checkpoints\n",
        "step 6",
        "best: exact",
        "last metrics\n",
        "valid",
    ] {
        has(&text, part);
    }
    let config = inspect(&[&run, "--config"]);
    has(&config, "[model]\nkind = \"transformer\"");
    let weights = inspect(&[&run, "--weights", "--checkpoint", "4"]);
    let tensor = "encoder.layers.0.attention.query.weight";
    let line = weights.lines().find(|line| line.contains(tensor));
    let line = line.unwrap_or_else(|| panic!("{weights}"));
    has(line, "8 x 8");
}

fn a_checkpoint(runs: &Runs) {
    let run = &runs.train_output(Kind::Transformer).folder;
    let path = run.checkpoints().checkpoint_dir(4);
    let path = path.to_str().unwrap();
    let text = inspect(&[path]);
    for part in [
        "step-00000004, ",
        "transformer on copy",
        "4, epoch 2, ",
        "best      exact ",
        "Transformer of 1 + 1 layers",
        "last metrics\n",
        "valid  step 4",
        "(list with --weights)",
    ] {
        has(&text, part);
    }
    assert!(!text.contains("step 6"), "a later step: {text}");
    let config = inspect(&[path, "--config"]);
    has(&config, "[model]\nkind = \"transformer\"");
    let weights = inspect(&[path, "--weights"]);
    has(&weights, "encoder.layers.0.attention.query.weight");
}

fn a_weights_file(runs: &Runs) {
    let run = &runs.train_output(Kind::Classifier).folder;
    let checkpoint = run.checkpoints().checkpoint_dir(2);
    let file = checkpoint.join("weights.safetensors");
    let file_summary = inspect(&[file.to_str().unwrap()]);
    // A checkpoint outside of a run is treated as a weights file.
    let alone = runs.file("alone");
    std::fs::create_dir_all(&alone).unwrap();
    std::fs::copy(&file, alone.join("weights.safetensors")).unwrap();
    let folder_summary = inspect(&[alone.to_str().unwrap()]);
    let after_name = |text: &str| text.split_once(", ").unwrap().1.to_owned();
    assert_eq!(after_name(&folder_summary), after_name(&file_summary));
    has(&file_summary, "layers");
    has(&file_summary, "(list with --weights)");
    // In another format.
    let other = runs.file("weights.bpk");
    Weights::read(&file).unwrap().write(&other).unwrap();
    let all = inspect(&[other.to_str().unwrap(), "--weights"]);
    has(&all, "embedding.weight");
    let message = run_err::<Inspect>(&[file.to_str().unwrap(), "--config"]);
    has(&message, "is a weights file");
    let broken = runs.write("broken.safetensors", "no weights");
    let message = run_err::<Inspect>(&[broken.to_str().unwrap()]);
    has(&message, "invalid or truncated safetensors file");
}

/// The CPU time of this thread, which does not depend on other programs.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    match first.and_then(|it| it.parse().ok()) {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => START.elapsed(),
    }
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// 100,000 modules. Comparing each with all others takes more than 10 s.
fn time_is_linear_in_the_number_of_tensors(runs: &Runs) {
    let tensor = |i: usize| (format!("part{i}.weight"), TensorData::new(vec![1_f32], [1]));
    let path = runs.file("many.safetensors");
    let weights = Weights::from_tensors((0..100_000).map(tensor));
    weights.replace(&path).unwrap();
    let start = cpu_time();
    let text = inspect(&[path.to_str().unwrap()]);
    let took = cpu_time() - start;
    assert!(text.ends_with("  100,000 parameters in 100,000 tensors (list with --weights)\n"));
    assert_eq!(text.lines().count(), 100_002);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn new_templates_are_valid_configs(_: &Runs) {
    for kind in zoo_config::TEMPLATES {
        let text = run_ok::<New>(&[kind]);
        zoo_config::Config::parse("my.toml", &text, &[]).unwrap();
    }
    let message = run_err::<New>(&["tranformer"]);
    has(&message, "did you mean transformer?");
    let message = run_err::<New>(&[]);
    has(&message, "transformer, seq2seq, han, gpt, classifier");
}
