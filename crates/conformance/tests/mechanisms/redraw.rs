//! Random features that are drawn anew while a layer learns, and only then.

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::Performer;
use zoo_attention::{
    Mechanism, MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig, Pattern,
};
use zoo_conformance::*;

use crate::multi_head::{by_steps, learns, to_itself};

/// Few features: another draw is another result.
fn performer(redraw: usize) -> MechanismConfig {
    let performer = Performer {
        features: 12,
        seed: 4,
        redraw: Some(redraw),
    };
    performer.into()
}

fn layer(mechanism: MechanismConfig, device: &Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(8, 2)
        .with_mechanism(mechanism)
        .init(device)
}

fn input(device: &Device) -> Tensor<3> {
    normal([2, 5, 8], device)
}

fn pass(layer: &MultiHeadAttention, x: &Tensor<3>) -> Tensor<3> {
    to_itself(layer, x, Pattern::Causal)
}

fn differ(a: Tensor<3>, b: Tensor<3>) {
    let largest = (a - b).abs().max().into_scalar::<f32>();
    assert!(largest > 1e-3, "another draw changed {largest} at most");
}

fn draws_of(results: &[Tensor<3>], equal: &[(usize, usize)], others: &[(usize, usize)]) {
    for &(a, b) in equal {
        same(results[a].clone(), results[b].clone());
    }
    for &(a, b) in others {
        differ(results[a].clone(), results[b].clone());
    }
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("after-so-many-training-passes", |device| {
        let device = &device.clone().autodiff();
        let (layer, x) = (layer(performer(3), device), input(device));
        let results: Vec<Tensor<3>> = (0..7).map(|_| pass(&layer, &x)).collect();
        let equal = [(0, 1), (0, 2), (3, 4), (3, 5)];
        draws_of(&results, &equal, &[(2, 3), (5, 6), (0, 6)]);
    }),
    ("before-the-passes-that-a-loop-says", |device| {
        let device = &device.clone().autodiff();
        let (layer, x) = (layer(performer(3), device), input(device));
        let passes = (1..8).map(|number| {
            layer.redraw_features_before(number);
            // Copies of it, as for other devices, count nothing and have the same features.
            let copies = [0, 1].map(|_| layer.valid().fork(&device.clone().inner()).train());
            let result = pass(&layer, &x);
            for copy in copies {
                for _ in 0..4 {
                    same(pass(&copy, &x), result.clone());
                }
            }
            result
        });
        let results: Vec<Tensor<3>> = passes.collect();
        let equal = [(0, 1), (2, 4), (5, 6)];
        draws_of(&results, &equal, &[(1, 2), (4, 5), (1, 5)]);
    }),
    ("not-in-inference", |device| {
        let training = &device.clone().autodiff();
        let x = input(training);
        let plain = x.clone().inner();
        let layer = layer(performer(2), training);
        let first = pass(&layer, &x);
        let (valid, frozen) = (layer.valid(), layer.clone().freeze());
        for _ in 0..5 {
            same(pass(&valid, &plain), first.clone().inner());
            same(pass(&frozen, &x), first.clone());
        }
        // These did not count: the second training pass is by the same draw, the third not.
        let layer = frozen.unfreeze();
        same(pass(&layer, &x), first.clone());
        differ(pass(&layer, &x), first)
    }),
    ("begins-with-the-seed", |device| {
        let device = &device.clone().autodiff();
        let (drawn, mut never) = (layer(performer(1), device), layer(performer(0), device));
        never.query = drawn.query.clone();
        never.key = drawn.key.clone();
        never.value = drawn.value.clone();
        never.output = drawn.output.clone();
        let x = input(device);
        let of_seed = pass(&never, &x);
        same(pass(&drawn, &x), of_seed.clone());
        differ(pass(&drawn, &x), of_seed.clone());
        // And without an interval it stays.
        same(pass(&never, &x), of_seed)
    }),
    ("what-was-saved-computes-the-same", |device| {
        let device = &device.clone().autodiff();
        let (layer, x) = (layer(performer(2), device), input(device));
        let first = pass(&layer, &x);
        pass(&layer, &x);
        let third = pass(&layer, &x);
        differ(first, third.clone());

        let bytes = must(layer.clone().into_record().into_bytes());
        let record = must(ModuleRecord::from_bytes(bytes));
        let loaded = self::layer(performer(2), device).load_record(record);
        let in_inference = pass(&loaded.valid(), &x.clone().inner());
        same(in_inference, third.clone().inner());
        // Passes are counted from there, and the next draw is the same.
        for _ in 0..2 {
            same(pass(&loaded, &x), third.clone());
        }
        same(pass(&layer, &x), third.clone());
        let next = pass(&layer, &x);
        differ(next.clone(), third);
        same(pass(&loaded, &x), next)
    }),
    ("decodes-by-the-draw-in-use", |device| {
        let training = &device.clone().autodiff();
        let (layer, x) = (layer(performer(1), training), input(training));
        let first = pass(&layer, &x);
        let second = pass(&layer, &x);
        differ(first, second.clone());
        let (layer, x) = (layer.valid(), x.inner());
        let mut cache = must(layer.decode_cache(1));
        same(by_steps(&layer, &x, &mut cache), second.inner());
    }),
    ("others-have-no-such-state", |device| {
        let count = |mechanism: MechanismConfig| layer(mechanism, device).into_record().len();
        let usual = count(Mechanism::Flash.into());
        let counts = [count(performer(0)), count(performer(5))];
        assert_eq!(counts, [usual, usual + 1]);
    }),
    ("learns", |device| {
        learns(performer(4), &device.clone().autodiff())
    }),
];
