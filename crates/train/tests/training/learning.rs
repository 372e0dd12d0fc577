//! The training loop: losses, gradients, schedules, early stopping, and the files of a run.

use burn::tensor::DType;
use libtest_mimic::Trial;
use zoo_backend::{Dtype, OpenDevice};
use zoo_train::{StopReason, TrainOutput, train};

use crate::support::*;

trials! {
    in_f32(OpenDevice):
    a_run_writes_all_files,
    every_model_learns,
    accumulated_batches_equal_one_large_batch,
    clipping_by_global_norm_and_by_value,
    validation_decodes_greedily,
    early_stopping_after_patience_validations,
    the_learning_rate_follows_the_schedule,
    the_entropy_penalty_is_added_to_the_training_loss,
    teacher_forcing_affects_only_training,
}

pub(crate) fn trials(opened: &OpenDevice) -> Vec<Trial> {
    let mut trials = in_f32(opened);
    let name = "learning::mixed_precision_keeps_f32_weights";
    trials.extend(in_half_precisions(opened, name, false, mixed_precision));
    if let Some(index) = opened.id.index {
        let opened = opened.clone();
        let name = "learning::a_listed_device_trains_like_a_single_one";
        trials.push(Trial::test(name, move || {
            a_listed_device_trains_like_a_single_one(&opened, index);
            Ok(())
        }));
    }
    trials
}

/// On a backend with all-reduce, the gradients of the listed device go through it.
fn a_listed_device_trains_like_a_single_one(opened: &OpenDevice, index: usize) {
    let steps = ["training.steps = 3", "training.gradient_accumulation = 2"];
    let (single, _) = trained_run(opened, &steps);
    let backend = opened.id.backend;
    let name = format!("backend.name = \"{backend}\"");
    let devices = format!("backend.devices = [{index}]");
    let (listed, _) = trained_run(
        opened,
        &[&steps[..], &[name.as_str(), devices.as_str()]].concat(),
    );
    let log = std::fs::read_to_string(listed.run().file("log.txt")).unwrap();
    let how = match backend.has_all_reduce() {
        true => "gradients are summed by NCCL's all-reduce",
        false => "gradients are summed on the first",
    };
    has(&log, format!("data parallelism: {}; {how}", opened.id));
    let [a, b] = [single, listed].map(|folder| last_weights(&folder.run()));
    let norm = distance(&a, &vec![0.0; a.len()]);
    let distance = distance(&a, &b);
    assert!(distance < 1e-4 * norm, "{distance} of {norm}");
}

fn run(opened: &OpenDevice, changes: &[&str]) -> (TrainOutput, TempDir) {
    let (folder, config) = small_run(opened, changes);
    let output = train(&config, &quiet());
    (output.unwrap_or_else(|error| panic!("{error}")), folder)
}

fn a_run_writes_all_files(opened: &OpenDevice) {
    let (folder, config) = small_run(opened, &["training.steps = 4", "validation.every = 2"]);
    let output = train(&config, &quiet()).unwrap();
    assert_eq!(output.stop_reason, StopReason::Completed);
    assert_eq!(output.steps, 4);
    let run = output.folder;
    for name in [
        "config.toml",
        "run.json",
        "log.txt",
        "metrics.jsonl",
        "train.csv",
        "valid.csv",
        "loss.svg",
        "exact.svg",
        "best.json",
        "result.json",
        "tokenizer.source.json",
        "tokenizer.target.json",
    ] {
        assert!(run.file(name).is_file(), "there is no {name}");
    }
    // All files have the same permissions.
    let checkpoint = run.checkpoints().checkpoint_dir(4);
    let metadata = |name: &str| std::fs::metadata(checkpoint.join(name)).unwrap();
    let state = metadata("state.json").permissions();
    for name in ["weights.safetensors", "optimizer.bpk"] {
        assert_eq!(metadata(name).permissions(), state, "{name}");
    }
    // The resolved config survives a round trip.
    assert_eq!(folder.run().config().unwrap(), config);
    let metadata = run.metadata().unwrap();
    assert_eq!(metadata["seed"], 1);
    assert_eq!(metadata["versions"]["burn"], "0.22.1");
    assert_eq!(metadata["backend"], opened.id.to_string());
    assert_eq!(metadata["device"], opened.name);
    let table = std::fs::read_to_string(run.file("train.csv")).unwrap();
    starts(&table, "step,epoch,loss");
    assert_eq!(table.lines().count(), 3, "a header and every second step");
    let svg = std::fs::read_to_string(run.file("loss.svg")).unwrap();
    has(&svg, "validation");
}

/// Full batches without dropout, so that the loss must decrease.
fn every_model_learns(opened: &OpenDevice) {
    let folder = TempDir::new();
    let text = "to be or not to be, that is the question. ".repeat(40);
    let text = folder.write("text.txt", text).display().to_string();
    let plain = format!("{{ kind = \"plain\", train = {text:?} }}");
    let models = [
        (
            "{ kind = \"copy\", symbols = 3, max_length = 4, train_size = 8, valid_size = 4, test_size = 0 }",
            "{ kind = \"seq2seq\", d_embedding = 8, d_hidden = 8, dropout = 0.0 }",
        ),
        (
            "{ kind = \"listops\", max_length = 12, train_size = 40, valid_size = 4, test_size = 0 }",
            "{ kind = \"classifier\", d_model = 8, n_heads = 2, layers = 1, dropout = 0.0 }",
        ),
        (
            "{ kind = \"documents\", train_size = 8, valid_size = 4, test_size = 0 }",
            "{ kind = \"han\", d_embedding = 8, d_word = 4, d_sentence = 4, d_attention = 8, dropout = 0.0 }",
        ),
        (
            plain.as_str(),
            "{ kind = \"gpt\", context = 8, d_model = 8, n_heads = 2, layers = 1 }",
        ),
    ];
    for (i, (data, model)) in models.into_iter().enumerate() {
        let sections = format!(
            "data = {data}\nmodel = {model}\noptimizer.learning_rate = 2e-2\nschedule.warmup = 0\n\
             training.steps = 6\ntraining.log_every = 1\ntraining.batch_size = 40\n\
             validation.every = 6\nvalidation.max_examples = 8\nvalidation.samples = 1"
        );
        let config = parse_config(opened.id, &folder, &format!("model-{i}"), &sections);
        let output = train(&config, &quiet()).unwrap_or_else(|error| panic!("{model}: {error}"));
        let losses = column(&output.folder.file("train.csv"), "loss");
        assert!(losses[5] < losses[0], "{model}: {losses:?}");
    }
}

/// One step of plain gradient descent on all six examples, without dropout.
const ONE_STEP: [&str; 8] = [
    "data.train_size = 6",
    "model.dropout = 0.0",
    "model.attention_dropout = 0.0",
    "training.steps = 1",
    "schedule.warmup = 0",
    "optimizer.kind = \"sgd\"",
    "optimizer.learning_rate = 1.0",
    "optimizer.momentum = 0.0",
];

fn one_step(opened: &OpenDevice, clipping: &str, changes: &[&str]) -> Vec<f64> {
    let clipping = format!("optimizer.clipping = {clipping}");
    let changes = [&ONE_STEP, &[clipping.as_str()][..], changes].concat();
    last_weights(&trained_run(opened, &changes).0.run())
}

fn accumulated_batches_equal_one_large_batch(opened: &OpenDevice) {
    let large = one_step(opened, "\"none\"", &["training.batch_size = 6"]);
    let accumulated = [
        "training.batch_size = 2",
        "training.gradient_accumulation = 3",
    ];
    let small = one_step(opened, "\"none\"", &accumulated);
    let other = one_step(opened, "\"none\"", &["training.batch_size = 2"]);
    let scale = distance(&large, &vec![0.0; large.len()]);
    // f32 sums in a different order.
    let error = distance(&large, &small) / scale;
    assert!(error < 1e-5, "{error}");
    let difference = distance(&large, &other) / scale;
    assert!(difference > 1e-3, "a third of the batch: {difference}");
}

fn clipping_by_global_norm_and_by_value(opened: &OpenDevice) {
    let near = one_step(opened, "{ kind = \"norm\", threshold = 0.01 }", &[]);
    let far = one_step(opened, "{ kind = \"norm\", threshold = 0.03 }", &[]);
    // In the same direction, at distances of 0.01 and 0.03 from the initial weights.
    let between = distance(&near, &far);
    assert!((between - 0.02).abs() < 1e-5, "{between}");
    // By value, every element is clipped separately.
    let by_value = one_step(opened, "{ kind = \"value\", threshold = 1e-3 }", &[]);
    let twice = one_step(opened, "{ kind = \"value\", threshold = 2e-3 }", &[]);
    let differences = by_value.iter().zip(&twice).map(|(a, b)| (a - b).abs());
    let largest = differences.fold(0.0, f64::max);
    assert!((largest - 1e-3).abs() < 1e-6, "{largest}");
}

/// A note, printed once, says that validation does not use beam search.
fn validation_decodes_greedily(opened: &OpenDevice) {
    let note = "validation uses greedy decoding; the test and inference use 3 beams";
    for (strategy, times) in [("{ kind = \"beam\", beams = 3 }", 1), ("\"greedy\"", 0)] {
        let strategy = format!("decoding.strategy = {strategy}");
        let changes = ["training.steps = 2", "validation.every = 1", &strategy];
        let (output, _folder) = run(opened, &changes);
        let log = std::fs::read_to_string(output.folder.file("log.txt")).unwrap();
        assert_eq!(log.matches(note).count(), times, "{log}");
    }
}

fn early_stopping_after_patience_validations(opened: &OpenDevice) {
    let changes = [
        "training.steps = 50",
        "validation.every = 1",
        "validation.metric = \"loss\"",
        "validation.patience = 2",
        "validation.samples = 0",
        "optimizer.learning_rate = 3.0",
        "schedule.warmup = 0",
    ];
    let (output, _folder) = run(opened, &changes);
    assert_eq!(output.stop_reason, StopReason::EarlyStopping);
    assert!(output.steps < 50, "{}", output.steps);
    let best = output.best.unwrap();
    assert_eq!(output.steps, best.step + 2);
}

/// Schedules have unit tests; here are one that depends on the model and one that depends on
/// validations.
fn the_learning_rate_follows_the_schedule(opened: &OpenDevice) {
    let rates = |changes: &[&str]| {
        let always = ["training.log_every = 1", "validation.samples = 0"];
        let (output, _folder) = run(opened, &[&always, changes].concat());
        column(&output.folder.file("train.csv"), "rate")
    };
    let noam = rates(&[
        "training.steps = 4",
        "schedule.kind = \"noam\"",
        "schedule.warmup = 2",
        "optimizer.learning_rate = 1.0",
    ]);
    // d_model = 8.
    let expected = [1.0, 2.0, 3.0, 4.0]
        .map(|step: f64| 8_f64.powf(-0.5) * step.powf(-0.5).min(step * 2_f64.powf(-1.5)));
    let error = distance(&noam, &expected);
    assert!(error < 1e-7, "{noam:?}, not {expected:?}");
    // With such a large learning rate, the loss increases and then hardly improves.
    let plateau = rates(&[
        "training.steps = 12",
        "schedule.kind = \"plateau\"",
        "schedule.warmup = 0",
        "schedule.patience = 1",
        "schedule.factor = 0.5",
        "schedule.min_lr_ratio = 0.0",
        "validation.every = 1",
        "validation.metric = \"loss\"",
        "optimizer.learning_rate = 3.0",
    ]);
    assert_eq!(plateau[0], 3.0);
    assert!(plateau[11] < 3.0, "{plateau:?}");
    for pair in plateau.windows(2) {
        let factor = pair[1] / pair[0];
        assert!(factor == 1.0 || factor == 0.5, "{plateau:?}");
    }
}

/// The first training and validation loss.
fn first_losses(opened: &OpenDevice, model: &str) -> [f64; 2] {
    let folder = TempDir::new();
    let sections = format!(
        "data = {{ kind = \"copy\", symbols = 3, max_length = 4, train_size = 8, valid_size = 4, \
         test_size = 0 }}\nmodel = {model}\ntraining.steps = 1\ntraining.log_every = 1\n\
         validation.every = 1\noptimizer.learning_rate = 1e-9\nschedule.warmup = 0"
    );
    let config = parse_config(opened.id, &folder, "one", &sections);
    let output = train(&config, &quiet()).unwrap_or_else(|error| panic!("{model}: {error}"));
    ["train.csv", "valid.csv"].map(|table| column(&output.folder.file(table), "loss")[0])
}

fn the_entropy_penalty_is_added_to_the_training_loss(opened: &OpenDevice) {
    let losses = |penalty: f64| {
        let sizes = "d_model = 8, n_heads = 2, layers = 1, dropout = 0.0";
        let model = format!("{{ kind = \"transformer\", {sizes}, entropy_penalty = {penalty:?} }}");
        first_losses(opened, &model)
    };
    let [[plain, valid], [once, valid_once], [twice, _]] = [0.0, 1.0, 2.0].map(losses);
    assert!(once > plain + 0.1, "{plain} and {once}");
    let nonlinearity = twice - plain - 2.0 * (once - plain);
    assert!(nonlinearity.abs() < 1e-4, "{plain}, {once}, {twice}");
    let difference = valid - valid_once;
    assert!(difference.abs() < 1e-5, "{valid} and {valid_once}");
}

fn teacher_forcing_affects_only_training(opened: &OpenDevice) {
    let losses = |teacher_forcing: f64| {
        let sizes = "d_embedding = 8, d_hidden = 8, dropout = 0.0";
        let model =
            format!("{{ kind = \"seq2seq\", {sizes}, teacher_forcing = {teacher_forcing:?} }}");
        first_losses(opened, &model)
    };
    let [[always, valid], [never, valid_never]] = [1.0, 0.0].map(losses);
    assert!((always - never).abs() > 1e-4, "{always} and {never}");
    let difference = valid - valid_never;
    assert!(difference.abs() < 1e-5, "{valid} and {valid_never}");
}

fn mixed_precision(opened: &OpenDevice, precision: Dtype) {
    let precision = format!("training.precision = \"{precision}\"");
    let changes = [
        "training.steps = 10",
        precision.as_str(),
        "optimizer.learning_rate = 2e-2",
        "schedule.warmup = 0",
    ];
    let (output, _folder) = run(opened, &changes);
    let losses = column(&output.folder.file("train.csv"), "loss");
    assert!(losses[4] < losses[0], "{losses:?}");
    let weights = output.folder.checkpoints().read(10).unwrap().weights;
    for key in weights.keys() {
        assert_eq!(weights.get(key).unwrap().dtype(), DType::F32, "{key}");
    }
}
