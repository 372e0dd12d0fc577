//! Gradients in half precision, random features in several precisions, and what is sampled.

use std::collections::BTreeMap;

use burn::tensor::{Distribution, Tensor, TensorData};
use libtest_mimic::Trial;
use zoo_attention::{Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern, with_seed};
use zoo_backend::{Dtype, Opened};
use zoo_models::weights::Weights;
use zoo_train::train;

use crate::support::{Folder, config_of, in_half_precisions, quiet, trained, trials};

trials! {
    in_f32:
    a_device_seed_decides_what_attention_samples,
    features_are_redrawn_every_so_many_steps,
}

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    let mut trials = in_f32(opened);
    trials.extend(in_half_precisions(
        opened,
        "numerics::features_are_redrawn_at_the_same_steps_in",
        true,
        redrawn,
    ));
    trials.extend(in_half_precisions(
        opened,
        "numerics::accumulated_gradients_lose_nothing_in",
        true,
        accumulated,
    ));
    trials
}

fn a_device_seed_decides_what_attention_samples(opened: &Opened) {
    let device = &opened.device.clone().autodiff();
    let config = MultiHeadAttentionConfig::new(8, 2);
    let layers = [
        config.clone().with_dropout(0.5),
        config.with_mechanism(Mechanism::Hard.into()),
    ];
    for config in layers {
        let layer: MultiHeadAttention = config.init(device);
        let x = Tensor::<3>::random([2, 9, 8], Distribution::Normal(0.0, 1.0), device);
        let pass = || {
            layer
                .forward(x.clone(), x.clone(), x.clone(), Pattern::Full)
                .into_data()
        };
        // Weights are initialised when they are first used, by the same generator.
        pass();
        let seeded = |seed: u64| {
            device.seed(seed);
            [pass(), pass()]
        };
        let [first, second] = seeded(3);
        assert_ne!(first, second, "every pass samples anew");
        assert_eq!(seeded(3), [first.clone(), second.clone()]);
        assert_ne!(seeded(4), [first.clone(), second.clone()]);
        // Whichever thread it is.
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| seeded(3)).join().unwrap());
        assert_eq!(elsewhere, [first.clone(), second]);
        let scoped = || with_seed(5, pass);
        let once = scoped();
        device.seed(7);
        assert_eq!(scoped(), once);
        // And it ends with its scope.
        assert_eq!(seeded(3)[0], first);
    }
}

/// The random features of every attention in the checkpoint of each step, as their bits.
fn features(opened: &Opened, precision: Dtype) -> Vec<BTreeMap<String, TensorData>> {
    let performer = "{ kind = \"performer\", features = 6, redraw = 3 }";
    let [encoder, decoder] =
        ["encoder", "decoder"].map(|part| format!("model.{part}_attention = {performer}"));
    let precision = format!("training.precision = \"{precision}\"");
    let changes = [
        &encoder,
        &decoder,
        &precision,
        "model.attention_dropout = 0.0",
        "training.steps = 7",
        // Batches of a step are one batch to the features.
        "training.accumulate = 2",
        "training.checkpoint_every = 1",
        "training.keep = 7",
    ];
    let (folder, _) = trained(opened, &changes);
    let checkpoints = folder.run().checkpoints();
    let of_step = |step: usize| {
        let weights = checkpoints.read(step).unwrap().weights;
        let keys = weights.keys().filter(|key| key.contains("features"));
        keys.map(|key| (key.to_owned(), weights.get(key).unwrap().clone()))
            .collect()
    };
    (1..=7).map(of_step).collect()
}

fn features_are_redrawn_every_so_many_steps(opened: &Opened) {
    redrawn(opened, Dtype::F32);
}

fn redrawn(opened: &Opened, precision: Dtype) {
    let drawn = features(opened, precision);
    assert_eq!(drawn[0].len(), 2, "of the encoder and of the decoder");
    for key in drawn[0].keys() {
        let redrawn: Vec<usize> = (1..7)
            .filter(|at| drawn[*at][key] != drawn[at - 1][key])
            .collect();
        // Indices: of the steps 3 and 6.
        assert_eq!(redrawn, [2, 5], "{key}");
    }
    if precision != Dtype::F32 {
        assert_eq!(drawn, features(opened, Dtype::F32), "not those of f32");
    }
}

/// Sixty-four batches that are alike have the gradient of one, to the last digit: a 64th of it
/// is exact in every float.
fn accumulated(opened: &Opened, precision: Dtype) {
    let folder = Folder::new();
    let path = folder.write("same.tsv", "a b c d\td c b a\n".repeat(64));
    let path = path.display().to_string();
    let weights = |name: &str, rate: f64, accumulate: usize| {
        let sections = format!(
            "data = {{ kind = \"parallel\", train = {path:?}, valid = {path:?} }}\n\
             model = {{ kind = \"transformer\", d_model = 8, heads = 2, layers = 1, dropout = 0.0 }}\n\
             optimizer = {{ kind = \"sgd\", learning_rate = {rate}, momentum = 0.0, clipping = \"none\" }}\n\
             schedule.warmup = 0\ntraining.steps = 1\ntraining.batch_size = 1\n\
             training.accumulate = {accumulate}\ntraining.precision = \"{precision}\"\n\
             training.loss_scale = {{ kind = \"fixed\", scale = 1024.0 }}\n\
             validation.max_examples = 1"
        );
        let config = config_of(opened, &folder, name, &sections);
        let finished = train(&config, &quiet()).unwrap_or_else(|error| panic!("{error}"));
        let checkpoint = finished.folder.checkpoints().read(1).unwrap();
        let numbers = |weights: &Weights| -> Vec<f64> {
            let tensors = weights.keys().map(|key| weights.get(key).unwrap());
            tensors
                .flat_map(|data| data.iter::<f64>().collect::<Vec<_>>())
                .collect()
        };
        numbers(&checkpoint.weights)
    };
    let distance = |a: &[f64], b: &[f64]| {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let one = weights("one", 1.0, 1);
    // A step that is twice as long is one more gradient away.
    let gradient = distance(&one, &weights("two", 2.0, 1));
    let off = distance(&one, &weights("many", 1.0, 64)) / gradient;
    assert!(gradient > 0.1, "there is hardly a gradient: {gradient}");
    // What weights of f32 round a step to. Sums in bf16 are off by 1e-2, in f16 by 1e-3.
    assert!(off < 1e-5, "off by {off} of the gradient");
}
