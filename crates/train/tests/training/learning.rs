//! What a run computes, and what it leaves.

use libtest_mimic::Trial;
use zoo_backend::{Dtype, Opened};
use zoo_models::weights::Weights;
use zoo_train::{Ending, Finished, train};

use crate::shared::has;
use crate::support::{Folder, column, config_of, in_half_precisions, quiet, small, trials};

trials! {
    in_f32:
    a_run_leaves_what_it_promises,
    every_model_learns,
    batches_add_up_to_a_large_one,
    clipping_takes_all_gradients_together,
    beams_are_not_for_validations,
    it_stops_when_validation_gets_no_better,
    the_rate_goes_as_the_schedule_says,
    an_entropy_penalty_is_part_of_the_training_loss,
    teacher_forcing_changes_training_alone,
}

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    let mut trials = in_f32(opened);
    trials.extend(in_half_precisions(
        opened,
        "learning::a_pass_keeps_weights_in_f32_in",
        false,
        mixed_precision,
    ));
    trials
}

/// What came of a run, and its folder, which goes away.
fn run(opened: &Opened, changes: &[&str]) -> (Finished, Folder) {
    let (folder, config) = small(opened, changes);
    let finished = train(&config, &quiet());
    (finished.unwrap_or_else(|error| panic!("{error}")), folder)
}

fn a_run_leaves_what_it_promises(opened: &Opened) {
    let (folder, config) = small(opened, &["training.steps = 4", "validation.every = 2"]);
    let finished = train(&config, &quiet()).unwrap();
    assert_eq!((finished.steps, finished.ending), (4, Ending::Complete));
    let run = finished.folder;
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
    // Who may read one of them may read all of them.
    let checkpoint = run.checkpoints().folder_of(4);
    let rights = ["state.json", "weights.safetensors", "optimizer.bpk"].map(|name| {
        let about = std::fs::metadata(checkpoint.join(name)).unwrap();
        about.permissions()
    });
    assert_eq!(rights[0], rights[1]);
    assert_eq!(rights[0], rights[2]);
    // What was resolved reads back to the same.
    assert_eq!(folder.run().config().unwrap(), config);
    let about = run.about().unwrap();
    assert_eq!(about["seed"], 1);
    assert_eq!(about["versions"]["burn"], "0.22.1");
    assert_eq!(about["backend"], opened.word.to_string());
    assert_eq!(about["device"], opened.name);
    let table = std::fs::read_to_string(run.file("train.csv")).unwrap();
    let mut lines = table.lines();
    assert!(
        lines.next().unwrap().starts_with("step,epoch,loss"),
        "{table}"
    );
    assert_eq!(lines.count(), 2, "a line for every second step: {table}");
    let svg = std::fs::read_to_string(run.file("loss.svg")).unwrap();
    has(&svg, "validation");
}

/// All examples in every batch, and nothing forgotten: there is no chance in it.
fn every_model_learns(opened: &Opened) {
    let folder = Folder::new();
    let text = folder.write(
        "text.txt",
        "to be or not to be, that is the question. ".repeat(40),
    );
    let plain = format!(
        "{{ kind = \"plain\", train = {:?} }}",
        text.display().to_string()
    );
    let models = [
        (
            "{ kind = \"copy\", symbols = 3, max_length = 4, train_size = 8, valid_size = 4, test_size = 0 }",
            "{ kind = \"seq2seq\", d_embedding = 8, d_hidden = 8, dropout = 0.0 }",
        ),
        (
            "{ kind = \"listops\", max_length = 12, train_size = 40, valid_size = 4, test_size = 0 }",
            "{ kind = \"classifier\", d_model = 8, heads = 2, layers = 1, dropout = 0.0 }",
        ),
        (
            "{ kind = \"documents\", train_size = 8, valid_size = 4, test_size = 0 }",
            "{ kind = \"han\", d_embedding = 8, d_word = 4, d_sentence = 4, d_attention = 8, dropout = 0.0 }",
        ),
        (
            plain.as_str(),
            "{ kind = \"gpt\", context = 8, d_model = 8, heads = 2, layers = 1 }",
        ),
    ];
    for (at, (data, model)) in models.into_iter().enumerate() {
        let sections = format!(
            "data = {data}\nmodel = {model}\noptimizer.learning_rate = 2e-2\nschedule.warmup = 0\n\
             training.steps = 12\ntraining.log_every = 2\ntraining.batch_size = 40\n\
             validation.every = 12\nvalidation.max_examples = 8\nvalidation.samples = 1"
        );
        let config = config_of(opened, &folder, &format!("model-{at}"), &sections);
        let finished = train(&config, &quiet()).unwrap_or_else(|error| panic!("{model}: {error}"));
        let losses = column(&finished.folder.file("train.csv"), "loss");
        assert!(losses[5] < losses[0], "{model}: {losses:?}");
    }
}

/// All weights of the last checkpoint, one after the other.
fn weights(finished: &Finished) -> Vec<f32> {
    let step = finished.steps;
    let folder = finished.folder.checkpoints().folder_of(step);
    let weights = Weights::read(folder.join("weights.safetensors")).unwrap();
    let numbers = weights
        .keys()
        .flat_map(|key| weights.get(key).unwrap().iter::<f32>().collect::<Vec<_>>());
    numbers.collect()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

/// A step of plain descent by one batch of all six examples, without anything drawn.
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

fn one_step(opened: &Opened, clipping: &str, changes: &[&str]) -> Vec<f32> {
    let clipping = format!("optimizer.clipping = {clipping}");
    let changes = [&ONE_STEP, &[clipping.as_str()][..], changes].concat();
    weights(&run(opened, &changes).0)
}

fn batches_add_up_to_a_large_one(opened: &Opened) {
    let large = one_step(opened, "\"none\"", &["training.batch_size = 6"]);
    let small = one_step(
        opened,
        "\"none\"",
        &["training.batch_size = 2", "training.accumulate = 3"],
    );
    let other = one_step(opened, "\"none\"", &["training.batch_size = 2"]);
    let scale = distance(&large, &vec![0.0; large.len()]);
    // Sums in another order, in f32.
    let off = distance(&large, &small) / scale;
    assert!(off < 1e-5, "{off}");
    let off = distance(&large, &other) / scale;
    assert!(off > 1e-3, "a part of the batch is another step: {off}");
}

fn clipping_takes_all_gradients_together(opened: &Opened) {
    let near = one_step(opened, "{ kind = \"norm\", at = 0.01 }", &[]);
    let far = one_step(opened, "{ kind = \"norm\", at = 0.03 }", &[]);
    // Along one line, at distances of 0.01 and 0.03 from where both began.
    let between = distance(&near, &far);
    assert!((between - 0.02).abs() < 1e-5, "{between}");
    // Every number by itself: none moves further.
    let by_value = one_step(opened, "{ kind = \"value\", at = 1e-3 }", &[]);
    let twice = one_step(opened, "{ kind = \"value\", at = 2e-3 }", &[]);
    let largest = by_value
        .iter()
        .zip(&twice)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!((largest - 1e-3).abs() < 1e-6, "{largest}");
}

/// A validation by other means than the test says so, once.
fn beams_are_not_for_validations(opened: &Opened) {
    let note = "validation: by greedy decoding, beams = 3 are for the test and for use";
    for (strategy, times) in [("{ kind = \"beam\", beams = 3 }", 1), ("\"greedy\"", 0)] {
        let strategy = format!("decoding.strategy = {strategy}");
        let changes = ["training.steps = 2", "validation.every = 1", &strategy];
        let (finished, _folder) = run(opened, &changes);
        let log = std::fs::read_to_string(finished.folder.file("log.txt")).unwrap();
        assert_eq!(log.matches(note).count(), times, "{log}");
    }
}

fn it_stops_when_validation_gets_no_better(opened: &Opened) {
    let changes = [
        "training.steps = 50",
        "validation.every = 1",
        "validation.metric = \"loss\"",
        "validation.patience = 2",
        "validation.samples = 0",
        "optimizer.learning_rate = 3.0",
        "schedule.warmup = 0",
    ];
    let (finished, _folder) = run(opened, &changes);
    assert_eq!(finished.ending, Ending::Early);
    assert!(finished.steps < 50, "{}", finished.steps);
    let best = finished.best.unwrap();
    assert_eq!(finished.steps, best.step + 2);
}

/// Each schedule by itself is tested where it is written; here is what a run makes of one that
/// follows from the model, and of one that follows from validations.
fn the_rate_goes_as_the_schedule_says(opened: &Opened) {
    let rates = |changes: &[&str]| {
        let always = ["training.log_every = 1", "validation.samples = 0"];
        let (finished, _folder) = run(opened, &[&always, changes].concat());
        column(&finished.folder.file("train.csv"), "rate")
    };
    let noam = rates(&[
        "training.steps = 4",
        "schedule.kind = \"noam\"",
        "schedule.warmup = 2",
        "optimizer.learning_rate = 1.0",
    ]);
    // By steps, and d_model = 8.
    let rising = [1.0, 2.0, 3.0, 4.0]
        .map(|step: f64| 8_f64.powf(-0.5) * step.powf(-0.5).min(step * 2_f64.powf(-1.5)));
    assert_eq!(noam.len(), rising.len(), "{noam:?}");
    for (got, want) in noam.iter().zip(rising) {
        assert!((got - want).abs() < 1e-6 * want, "{noam:?}, not {rising:?}");
    }
    // So large a rate makes it worse at once, and then hardly better.
    let plateau = rates(&[
        "training.steps = 12",
        "schedule.kind = \"plateau\"",
        "schedule.warmup = 0",
        "schedule.patience = 1",
        "schedule.factor = 0.5",
        "schedule.final_share = 0.0",
        "validation.every = 1",
        "validation.metric = \"loss\"",
        "optimizer.learning_rate = 3.0",
    ]);
    assert_eq!(plateau[0], 3.0);
    assert!(plateau[11] < 3.0, "{plateau:?}");
    for pair in plateau.windows(2) {
        let share = pair[1] / pair[0];
        assert!(share == 1.0 || share == 0.5, "{plateau:?}");
    }
}

/// The first losses of a run in which nothing is sampled.
fn first_losses(opened: &Opened, model: &str) -> [f64; 2] {
    let folder = Folder::new();
    let sections = format!(
        "data = {{ kind = \"copy\", symbols = 3, max_length = 4, train_size = 8, valid_size = 4, \
         test_size = 0 }}\nmodel = {model}\ntraining.steps = 1\ntraining.log_every = 1\n\
         validation.every = 1\noptimizer.learning_rate = 1e-9\nschedule.warmup = 0"
    );
    let config = config_of(opened, &folder, "one", &sections);
    let finished = train(&config, &quiet()).unwrap_or_else(|error| panic!("{model}: {error}"));
    ["train.csv", "valid.csv"].map(|table| column(&finished.folder.file(table), "loss")[0])
}

fn an_entropy_penalty_is_part_of_the_training_loss(opened: &Opened) {
    let of = |penalty: f64| {
        let sizes = "d_model = 8, heads = 2, layers = 1, dropout = 0.0";
        let model = format!("{{ kind = \"transformer\", {sizes}, entropy_penalty = {penalty:?} }}");
        first_losses(opened, &model)
    };
    let [[plain, valid], [once, valid_once], [twice, _]] = [0.0, 1.0, 2.0].map(of);
    assert!(once > plain + 0.1, "{plain} and {once}");
    assert!(
        (twice - plain - 2.0 * (once - plain)).abs() < 1e-4,
        "{plain}, {once}, {twice}"
    );
    assert!(
        (valid - valid_once).abs() < 1e-5,
        "{valid} and {valid_once}"
    );
}

fn teacher_forcing_changes_training_alone(opened: &Opened) {
    let of = |teacher_forcing: f64| {
        let sizes = "d_embedding = 8, d_hidden = 8, dropout = 0.0";
        let model =
            format!("{{ kind = \"seq2seq\", {sizes}, teacher_forcing = {teacher_forcing:?} }}");
        first_losses(opened, &model)
    };
    let [[always, valid], [never, valid_never]] = [1.0, 0.0].map(of);
    assert!((always - never).abs() > 1e-4, "{always} and {never}");
    assert!(
        (valid - valid_never).abs() < 1e-5,
        "{valid} and {valid_never}"
    );
}

fn mixed_precision(opened: &Opened, precision: Dtype) {
    let precision = format!("training.precision = \"{precision}\"");
    let changes = [
        "training.steps = 10",
        precision.as_str(),
        "optimizer.learning_rate = 2e-2",
        "schedule.warmup = 0",
    ];
    let (finished, _folder) = run(opened, &changes);
    let losses = column(&finished.folder.file("train.csv"), "loss");
    assert!(losses[4] < losses[0], "{losses:?}");
    let step = finished.folder.checkpoints().folder_of(10);
    let weights = Weights::read(step.join("weights.safetensors")).unwrap();
    for key in weights.keys() {
        assert_eq!(
            weights.get(key).unwrap().dtype(),
            burn::tensor::DType::F32,
            "{key}"
        );
    }
}
