//! Random features that are drawn anew while a layer learns, and only then.

use zoo_attention::mechanisms::Performer;

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::{Device, Distribution, Tensor};
use libtest_mimic::Failed;
use zoo_attention::{
    Mechanism, MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig, Pattern,
};
use zoo_conformance::{Test, same};

use crate::multi_head::learns;

/// Few features: another draw is another result.
fn performer(redraw: usize) -> MechanismConfig {
    MechanismConfig::Performer(Performer {
        features: 12,
        seed: 4,
        redraw: Some(redraw),
    })
}

fn layer(mechanism: MechanismConfig, device: &Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(8, 2)
        .with_mechanism(mechanism)
        .init(device)
}

fn input(device: &Device) -> Tensor<3> {
    Tensor::random([2, 5, 8], Distribution::Normal(0.0, 1.0), device)
}

fn pass(layer: &MultiHeadAttention, x: &Tensor<3>) -> Tensor<3> {
    layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal)
}

fn differ(a: Tensor<3>, b: Tensor<3>) -> Result<(), Failed> {
    let largest = (a - b).abs().max().into_scalar::<f32>();
    assert!(
        largest > 1e-3,
        "another draw changed nothing by more than {largest}"
    );
    Ok(())
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("after-so-many-training-passes", |device| {
        let device = &device.clone().autodiff();
        let (layer, x) = (layer(performer(3), device), input(device));
        let results: Vec<Tensor<3>> = (0..7).map(|_| pass(&layer, &x)).collect();
        let result = |at: usize| results[at].clone();
        for (a, b) in [(0, 1), (0, 2), (3, 4), (3, 5)] {
            same(result(a), result(b))?;
        }
        for (a, b) in [(2, 3), (5, 6), (0, 6)] {
            differ(result(a), result(b))?;
        }
        Ok(())
    }),
    ("before-the-passes-that-a-loop-says", |device| {
        let device = &device.clone().autodiff();
        let (layer, x) = (layer(performer(3), device), input(device));
        let results: Vec<Tensor<3>> = (1..8)
            .map(|number| {
                layer.redraw_features_before(number);
                // Copies of it, as for other devices, count nothing and have the same features.
                let copies = [0, 1].map(|_| layer.valid().fork(&device.clone().inner()).train());
                let result = pass(&layer, &x);
                for copy in copies {
                    for _ in 0..4 {
                        same(pass(&copy, &x), result.clone())?;
                    }
                }
                Ok(result)
            })
            .collect::<Result<_, Failed>>()?;
        let result = |number: usize| results[number - 1].clone();
        for (a, b) in [(1, 2), (3, 5), (6, 7)] {
            same(result(a), result(b))?;
        }
        for (a, b) in [(2, 3), (5, 6), (2, 6)] {
            differ(result(a), result(b))?;
        }
        Ok(())
    }),
    ("not-in-inference", |device| {
        let training = &device.clone().autodiff();
        let x = input(training);
        let plain = x.clone().inner();
        let layer = layer(performer(2), training);
        let first = pass(&layer, &x);
        let (valid, frozen) = (layer.valid(), layer.clone().freeze());
        for _ in 0..5 {
            same(pass(&valid, &plain), first.clone().inner())?;
            same(pass(&frozen, &x), first.clone())?;
        }
        // These did not count: the second training pass is by the same draw, the third not.
        let layer = frozen.unfreeze();
        same(pass(&layer, &x), first.clone())?;
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
        same(pass(&drawn, &x), of_seed.clone())?;
        differ(pass(&drawn, &x), of_seed.clone())?;
        // And without an interval it stays.
        same(pass(&never, &x), of_seed)
    }),
    ("what-was-saved-computes-the-same", |device| {
        let device = &device.clone().autodiff();
        let (layer, x) = (layer(performer(2), device), input(device));
        let first = pass(&layer, &x);
        pass(&layer, &x);
        let third = pass(&layer, &x);
        differ(first, third.clone())?;

        let bytes = layer.clone().into_record().into_bytes();
        let bytes = bytes.map_err(|error| error.to_string())?;
        let record = ModuleRecord::from_bytes(bytes).map_err(|error| error.to_string())?;
        let loaded = self::layer(performer(2), device).load_record(record);
        same(
            pass(&loaded.valid(), &x.clone().inner()),
            third.clone().inner(),
        )?;
        // Passes are counted from there, and the next draw is the same.
        for _ in 0..2 {
            same(pass(&loaded, &x), third.clone())?;
        }
        same(pass(&layer, &x), third.clone())?;
        let next = pass(&layer, &x);
        differ(next.clone(), third)?;
        same(pass(&loaded, &x), next)
    }),
    ("decodes-by-the-draw-in-use", |device| {
        let training = &device.clone().autodiff();
        let (layer, x) = (layer(performer(1), training), input(training));
        let first = pass(&layer, &x);
        let second = pass(&layer, &x);
        differ(first, second.clone())?;
        let (layer, x) = (layer.valid(), x.inner());
        let cache = layer.decode_cache(1);
        let mut cache = cache.map_err(|error| error.to_string())?;
        let places = (0..5).map(|at| {
            let place = x.clone().slice_dim(1, at..at + 1);
            layer.step(place, &mut cache)
        });
        same(Tensor::cat(places.collect(), 1), second.inner())
    }),
    ("others-have-no-such-state", |device| {
        let count = |mechanism: MechanismConfig| layer(mechanism, device).into_record().len();
        let usual = count(Mechanism::Flash.into());
        let counts = [count(performer(0)), count(performer(5))];
        assert!(
            counts == [usual, usual + 1],
            "{counts:?} tensors, {usual} of flash"
        );
        Ok(())
    }),
    ("learns", |device| {
        learns(performer(4), &device.clone().autodiff())
    }),
];
