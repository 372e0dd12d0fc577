//! Random features of Performer that are resampled in training.

use burn::module::Module;
use burn::store::ModuleRecord;
use zoo_attention::mechanisms::Performer;
use zoo_attention::with_seed;

use crate::multi_head::{check_training, decode_all, self_attention};
use crate::prelude::*;

/// Few features, so that other features change the result.
fn performer(resample: usize) -> MechanismConfig {
    let performer = Performer {
        n_features: 12,
        seed: 4,
        resample: Some(resample),
    };
    performer.into()
}

fn layer(mechanism: MechanismConfig, device: &Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(8, 2)
        .with_mechanism(mechanism)
        .init(device)
}

fn input(device: &Device) -> Tensor<3> {
    random_normal([2, 5, 8], device)
}

fn pass(layer: &MultiHeadAttention, x: &Tensor<3>) -> Tensor<3> {
    self_attention(layer, x, Pattern::Causal)
}

fn assert_differ(a: Tensor<3>, b: Tensor<3>) {
    let largest = (a - b).abs().max().into_scalar::<f32>();
    assert!(largest > 1e-3, "largest difference {largest}");
}

fn check_pairs(results: &[Tensor<3>], equal: &[(usize, usize)], different: &[(usize, usize)]) {
    for &(a, b) in equal {
        assert_close(results[a].clone(), results[b].clone());
    }
    for &(a, b) in different {
        assert_differ(results[a].clone(), results[b].clone());
    }
}

/// On a device with autodiff.
pub(crate) const TESTS: &[(&str, Test)] = &[
    ("redraws-after-the-interval", |device| {
        let (layer, x) = (layer(performer(3), device), input(device));
        let results: Vec<Tensor<3>> = (0..7).map(|_| pass(&layer, &x)).collect();
        let equal = [(0, 1), (0, 2), (3, 4), (3, 5)];
        check_pairs(&results, &equal, &[(2, 3), (5, 6), (0, 6)]);
    }),
    ("redraws-at-explicit-steps", |device| {
        let (layer, x) = (layer(performer(3), device), input(device));
        let passes = (1..8).map(|step| {
            layer.resample_features_before(step);
            // Copies, as for other devices, do not count steps and have the same features.
            let copies = [0, 1].map(|_| layer.valid().fork(&device.clone().inner()).train());
            let result = pass(&layer, &x);
            for copy in copies {
                for _ in 0..4 {
                    assert_close(pass(&copy, &x), result.clone());
                }
            }
            result
        });
        let results: Vec<Tensor<3>> = passes.collect();
        let equal = [(0, 1), (2, 4), (5, 6)];
        check_pairs(&results, &equal, &[(1, 2), (4, 5), (1, 5)]);
    }),
    ("inference-does-not-resample", |device| {
        let (layer, x) = (layer(performer(2), device), input(device));
        let plain = x.clone().inner();
        let first = pass(&layer, &x);
        let (valid, frozen) = (layer.valid(), layer.clone().freeze());
        for _ in 0..5 {
            assert_close(pass(&valid, &plain), first.clone().inner());
            assert_close(pass(&frozen, &x), first.clone());
        }
        // Inference passes do not count: the features change in the third training pass.
        let layer = frozen.unfreeze();
        assert_close(pass(&layer, &x), first.clone());
        assert_differ(pass(&layer, &x), first)
    }),
    ("first-features-are-sampled", |device| {
        let reference = layer(performer(0), device);
        let with_weights = |seed: u64, interval: usize| {
            let mut attention = reference.clone();
            attention.params = with_seed(seed, || layer(performer(interval), device)).params;
            attention
        };
        let x = input(device);
        let first = |seed: u64| pass(&with_weights(seed, 1), &x);
        assert_close(first(1), first(1));
        assert_differ(first(1), first(2));
        let resampled = with_weights(1, 1);
        assert_differ(pass(&resampled, &x), pass(&resampled, &x));
        // An interval of 0 never resamples, and has the features of the config's seed.
        assert_close(pass(&with_weights(1, 0), &x), pass(&with_weights(2, 0), &x))
    }),
    ("saved-features-are-restored", |device| {
        let (layer, x) = (layer(performer(2), device), input(device));
        let first = pass(&layer, &x);
        pass(&layer, &x);
        let third = pass(&layer, &x);
        assert_differ(first, third.clone());

        let bytes = must(layer.clone().into_record().into_bytes());
        let record = must(ModuleRecord::from_bytes(bytes));
        let loaded = self::layer(performer(2), device).load_record(record);
        let in_inference = pass(&loaded.valid(), &x.clone().inner());
        assert_close(in_inference, third.clone().inner());
        // The step count restarts, and the next features are the same.
        for _ in 0..2 {
            assert_close(pass(&loaded, &x), third.clone());
        }
        assert_close(pass(&layer, &x), third.clone());
        let next = pass(&layer, &x);
        assert_differ(next.clone(), third);
        assert_close(pass(&loaded, &x), next)
    }),
    ("decoding-uses-the-current-features", |device| {
        let (layer, x) = (layer(performer(1), device), input(device));
        let first = pass(&layer, &x);
        let second = pass(&layer, &x);
        assert_differ(first, second.clone());
        let (layer, x) = (layer.valid(), x.inner());
        let mut cache = must(layer.decode_cache(1));
        assert_close(decode_all(&layer, &x, &mut cache), second.inner());
    }),
    ("only-resampled-features-are-saved", |device| {
        let count = |mechanism: MechanismConfig| layer(mechanism, device).into_record().len();
        let base = count(Mechanism::Flash.into());
        let counts = [count(performer(0)), count(performer(5))];
        assert_eq!(counts, [base, base + 1]);
    }),
    ("trains", |device| check_training(performer(4), device)),
];
