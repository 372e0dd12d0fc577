//! Runs, checkpoints and files, and what is made of several.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use burn::tensor::TensorData;
use libtest_mimic::Trial;
use zoo_models::weights::Weights;
use zoo_train::cli::average::Average;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::new::New;
use zoo_train::cli::translate::Translate;

use crate::runs::{Kind, Runs, printed, refused};
use crate::shared::{ends, has, starts};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("average::it_is_the_mean_of_checkpoints", average),
        runs.trial("inspect::a_run_is_described", a_run),
        runs.trial("inspect::a_checkpoint_is_described", a_checkpoint),
        runs.trial("inspect::a_file_is_enough", a_file),
        runs.trial("inspect::its_time_is_linear_in_the_tensors", many_tensors),
        runs.trial("new::a_template_is_a_config", new),
    ]
}

fn average(runs: &Runs) {
    let finished = runs.finished(Kind::Seq2Seq);
    let said = runs.printed::<Average>(Kind::Seq2Seq, &[]);
    ends(&said, "the mean of step 2 alone\n");
    let one = Weights::read(finished.folder.file("average.safetensors")).unwrap();
    let last = finished.folder.checkpoints().read(2).unwrap().weights;
    for key in last.keys() {
        assert_eq!(one.get(key), last.get(key), "{key}");
    }

    let finished = runs.finished(Kind::Transformer);
    let checkpoints = finished.folder.checkpoints();
    assert_eq!(checkpoints.steps().unwrap(), [2, 4, 6]);
    let file = runs.given("averaged.txt", "a b\n");
    let words = ["--checkpoint", "average", "--file", &file];
    let said = runs.refused::<Translate>(Kind::Transformer, &words);
    has(&said, "has no averaged weights: `zoo average");
    let said = runs.printed::<Average>(Kind::Transformer, &["--last", "2"]);
    ends(&said, "average.safetensors: the mean of steps 4 and 6\n");
    let numbers = |weights: &Weights, key: &str| -> Vec<f64> {
        weights.get(key).unwrap().iter::<f64>().collect()
    };
    let mean = Weights::read(finished.folder.file("average.safetensors")).unwrap();
    let [four, six] = [4, 6].map(|step| checkpoints.read(step).unwrap().weights);
    assert_eq!(mean.keys().count(), four.keys().count());
    let mut has_moved = false;
    for key in four.keys() {
        let both = numbers(&four, key).into_iter().zip(numbers(&six, key));
        for ((four, six), mean) in both.zip(numbers(&mean, key)) {
            assert_eq!(((four + six) / 2.0) as f32, mean as f32, "{key}");
            has_moved |= four != six;
        }
    }
    assert!(has_moved, "both checkpoints are the same");
    let text = runs.printed::<Translate>(Kind::Transformer, &words);
    assert_eq!(text.lines().count(), 1);

    let said = runs.refused::<Average>(Kind::Transformer, &["--last", "4"]);
    starts(&said, "--last must be from 1 to 3");
    let said = runs.refused::<Average>(Kind::Transformer, &["--steps", "2,5"]);
    ends(
        &said,
        "has no checkpoint of step 5; it has those of 2, 4, 6",
    );
}

fn inspect(words: &[&str]) -> String {
    printed::<Inspect>(words)
}

fn a_run(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let text = inspect(&[&run]);
    for part in [
        "transformer on copy",
        "Burn 0.22.1",
        "Transformer of 1 + 1 layers",
        "parameters",
        "checkpoints\n",
        "step 6",
        "best: exact",
        "last numbers\n",
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
    let run = &runs.finished(Kind::Transformer).folder;
    let path = run.checkpoints().folder_of(4);
    let path = path.to_str().unwrap();
    let text = inspect(&[path]);
    for part in [
        "step-00000004, ",
        "transformer on copy",
        "4, in epoch 2, after ",
        "best      exact ",
        "Transformer of 1 + 1 layers",
        "last numbers\n",
        "valid  step 4",
        "--weights lists them",
    ] {
        has(&text, part);
    }
    assert!(!text.contains("step 6"), "what came later: {text}");
    let config = inspect(&[path, "--config"]);
    has(&config, "[model]\nkind = \"transformer\"");
    let weights = inspect(&[path, "--weights"]);
    has(&weights, "encoder.layers.0.attention.query.weight");
}

fn a_file(runs: &Runs) {
    let checkpoint = runs
        .finished(Kind::Classifier)
        .folder
        .checkpoints()
        .folder_of(2);
    let file = checkpoint.join("weights.safetensors");
    let of_file = inspect(&[file.to_str().unwrap()]);
    // A checkpoint that was taken out of its run is a file of weights.
    let alone = runs.file("alone");
    std::fs::create_dir_all(&alone).unwrap();
    std::fs::copy(&file, alone.join("weights.safetensors")).unwrap();
    let of_folder = inspect(&[alone.to_str().unwrap()]);
    let after_name = |text: &str| text.split_once(", ").unwrap().1.to_owned();
    assert_eq!(after_name(&of_folder), after_name(&of_file));
    has(&of_file, "layers");
    has(&of_file, "--weights lists them");
    // The same as another format.
    let other = runs.file("weights.bpk");
    Weights::read(&file).unwrap().write(&other).unwrap();
    let all = inspect(&[other.to_str().unwrap(), "--weights"]);
    has(&all, "embedding.weight");
    let said = refused::<Inspect>(&[file.to_str().unwrap(), "--config"]);
    has(&said, "is a file of weights");
    let broken = runs.written("broken.safetensors", "no weights");
    let said = refused::<Inspect>(&[broken.to_str().unwrap()]);
    has(&said, "not a whole safetensors file");
}

/// The time that this thread has computed for, not waited: other programs do not count.
fn computed() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|it| it.parse().ok());
    match nanoseconds {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => START.elapsed(),
    }
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Of 100,000 parts. Comparing each with all others takes more than 10 s.
fn many_tensors(runs: &Runs) {
    let tensor = |at: usize| {
        (
            format!("part{at}.weight"),
            TensorData::new(vec![1_f32], [1]),
        )
    };
    let path = runs.file("many.safetensors");
    Weights::of_tensors((0..100_000).map(tensor))
        .replace(&path)
        .unwrap();
    let start = computed();
    let text = inspect(&[path.to_str().unwrap()]);
    let took = computed() - start;
    assert!(text.ends_with("  100,000 numbers in 100,000 tensors; --weights lists them\n"));
    assert_eq!(text.lines().count(), 100_002);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn new(_: &Runs) {
    for kind in zoo_config::TEMPLATES {
        let text = printed::<New>(&[kind]);
        zoo_config::Config::parse("my.toml", &text, &[]).unwrap();
    }
    let said = refused::<New>(&["tranformer"]);
    has(&said, "did you mean transformer?");
    let said = refused::<New>(&[]);
    has(&said, "transformer, seq2seq, han, gpt, classifier");
}
