//! Sampling in attention, Performer features and gradient accumulation, in several precisions.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::{Distribution, Tensor, TensorData};
use libtest_mimic::Trial;
use zoo_attention::{
    AttentionInput, Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, with_seed,
};
use zoo_backend::{Backend, Dtype, OpenDevice};
use zoo_kernels::{Activation, allow_tf32, linear};
use zoo_train::train;

use crate::support::*;

trials! {
    in_f32(OpenDevice):
    device_seed_determines_attention_sampling,
    performer_features_are_resampled_periodically,
    tf32_is_used_on_cuda_by_runs_that_select_it,
}

pub(crate) fn trials(opened: &OpenDevice) -> Vec<Trial> {
    let mut trials = in_f32(opened);
    let name = "numerics::performer_features_equal_those_of_f32";
    trials.extend(in_half_precisions(opened, name, true, check_resampling));
    let name = "numerics::gradient_accumulation_is_exact";
    trials.extend(in_half_precisions(opened, name, true, check_accumulation));
    trials
}

fn device_seed_determines_attention_sampling(opened: &OpenDevice) {
    let device = &opened.device.clone().autodiff();
    let config = MultiHeadAttentionConfig::new(8, 2);
    let hard = config.clone().with_mechanism(Mechanism::Hard);
    for config in [config.with_dropout(0.5), hard] {
        let layer: MultiHeadAttention = config.init(device);
        let x = Tensor::<3>::random([2, 9, 8], Distribution::Normal(0.0, 1.0), device);
        let pass = || {
            let input = AttentionInput::self_attn(x.clone());
            layer.forward(input).context.into_data()
        };
        // Weights are initialised when they are first used, by the same generator.
        pass();
        let seeded = |seed: u64| {
            device.seed(seed);
            [pass(), pass()]
        };
        let [first, second] = seeded(3);
        assert_ne!(first, second, "every pass samples again");
        assert_eq!(seeded(3), [first.clone(), second.clone()]);
        assert_ne!(seeded(4), [first.clone(), second.clone()]);
        // On any thread.
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| seeded(3)).join().unwrap());
        assert_eq!(elsewhere, [first.clone(), second]);
        let scoped = || with_seed(5, pass);
        let once = scoped();
        device.seed(7);
        assert_eq!(scoped(), once);
        // The scoped seed has no effect outside its scope.
        assert_eq!(seeded(3)[0], first);
    }
}

/// The random features of every attention layer in the checkpoint of each step.
fn features(opened: &OpenDevice, precision: Dtype) -> Vec<BTreeMap<String, TensorData>> {
    let performer = "{ kind = \"performer\", n_features = 6, resample = 3 }";
    let [encoder, decoder] =
        ["encoder", "decoder"].map(|part| format!("model.{part}_attention = {performer}"));
    let precision = format!("training.precision = \"{precision}\"");
    let changes = [
        &encoder,
        &decoder,
        &precision,
        "model.attention_dropout = 0.0",
        "training.steps = 7",
        // Features are resampled by steps, not by batches.
        "training.gradient_accumulation = 2",
        "training.checkpoint_every = 1",
        "training.keep_checkpoints = 7",
    ];
    let (folder, _) = trained_run(opened, &changes);
    let checkpoints = folder.run().checkpoints();
    let features = |step: usize| {
        let weights = checkpoints.read(step).unwrap().weights;
        let keys = weights.keys().filter(|key| key.contains("features"));
        keys.map(|key| (key.to_owned(), weights.get(key).unwrap().clone()))
            .collect()
    };
    (1..=7).map(features).collect()
}

fn performer_features_are_resampled_periodically(opened: &OpenDevice) {
    check_resampling(opened, Dtype::F32);
}

fn check_resampling(opened: &OpenDevice, precision: Dtype) {
    let by_step = features(opened, precision);
    assert_eq!(by_step[0].len(), 2, "of the encoder and the decoder");
    for key in by_step[0].keys() {
        let has_changed = |i: &usize| by_step[*i][key] != by_step[i - 1][key];
        let resampled: Vec<usize> = (1..7).filter(has_changed).collect();
        // Indices of steps 3 and 6.
        assert_eq!(resampled, [2, 5], "{key}");
    }
    if precision != Dtype::F32 {
        assert_eq!(by_step, features(opened, Dtype::F32), "differ from f32");
    }
}

/// The accumulated gradient of 64 equal batches is exactly that of one batch: division by 64 is
/// exact in floating point.
fn check_accumulation(opened: &OpenDevice, precision: Dtype) {
    let folder = TempDir::new();
    let path = folder.write("same.tsv", "a b c d\td c b a\n".repeat(64));
    let path = path.display().to_string();
    let weights = |name: &str, rate: f64, accumulate: usize| {
        let sections = format!(
            "data = {{ kind = \"parallel\", train = {path:?}, valid = {path:?} }}\n\
             model = {{ kind = \"transformer\", d_model = 8, n_heads = 2, layers = 1, dropout = 0.0 }}\n\
             optimizer = {{ kind = \"sgd\", learning_rate = {rate}, momentum = 0.0, clipping = \"none\" }}\n\
             schedule.warmup = 0\ntraining.steps = 1\ntraining.batch_size = 1\n\
             training.gradient_accumulation = {accumulate}\ntraining.precision = \"{precision}\"\n\
             training.loss_scale = {{ kind = \"fixed\", scale = 1024.0 }}\n\
             validation.max_examples = 1"
        );
        let config = parse_config(opened.id, &folder, name, &sections);
        let output = train(&config, &quiet()).unwrap_or_else(|error| panic!("{error}"));
        last_weights(&output.folder)
    };
    let one = weights("one", 1.0, 1);
    // A learning rate of 2 moves the weights by one more gradient.
    let gradient = distance(&one, &weights("two", 2.0, 1));
    let error = distance(&one, &weights("many", 1.0, 64)) / gradient;
    assert!(gradient > 0.1, "the gradient is too small: {gradient}");
    // Rounding of f32 weights. Sums in bf16 have an error of 1e-2, in f16 of 1e-3.
    assert!(error < 1e-5, "relative error of the gradient: {error}");
}

/// The next run in f32 does not use it, and other backends never do.
fn tf32_is_used_on_cuda_by_runs_that_select_it(opened: &OpenDevice) {
    const SIZE: usize = 64;
    // TF32 rounds it to 1. Sums of 64 are exact in f32.
    let element = 1.0 + 1.0 / f32::from(1u16 << 13);
    let full = |value: f32| Tensor::<2>::full([SIZE, SIZE], value, &opened.device);
    let largest = |product: Tensor<2>| product.max().into_scalar::<f32>();
    let layer = Linear {
        weight: Param::from_tensor(full(1.0)),
        bias: None,
    };
    let product = || largest(linear(&layer, Activation::Identity, full(element)));
    let exact = SIZE as f32 * element;
    if opened.id.backend == Backend::Cuda {
        let steps = "training.steps = 2";
        trained_run(opened, &[steps, "training.precision = \"tf32\""]);
        let burn = largest(full(element).matmul(full(1.0)));
        assert_eq!(product(), burn, "not Burn's matmul");
        trained_run(opened, &[steps]);
    } else {
        allow_tf32(true);
        assert_eq!(product(), exact);
        allow_tf32(false);
    }
    assert_eq!(product(), exact);
}
