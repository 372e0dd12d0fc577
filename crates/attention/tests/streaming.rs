//! A long text is generated with `sink` in constant memory: every step equals attention to the first
//! keys and the window, recomputed from scratch.
#![cfg(feature = "flex")]

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::flash::flash_with_sink;
use zoo_attention::mechanisms::Sink;
use zoo_attention::{AttentionOptions, DecodeCache};

const STEPS: usize = 100_000;
const FIRST: usize = 4;
const WINDOW: usize = 59;
const HEADS: usize = 2;
const D_HEAD: usize = 8;

#[test]
fn a_long_text_needs_constant_memory() {
    let device = Device::flex();
    let sink = Sink {
        learned: false,
        window: Some(WINDOW),
        first: FIRST,
    };
    let mut cache = DecodeCache::new(sink, 1).expect("it decodes");
    let options = AttentionOptions::new();
    // The text repeats after a prime number of positions, which no size divides.
    const PERIOD: usize = 1009;
    let normal = Distribution::Normal(0.0, 1.0);
    let [query, key, value] =
        [(); 3].map(|()| Tensor::<4>::random([1, HEADS, PERIOD, D_HEAD], normal, &device));
    let row = |tensor: &Tensor<4>, position: usize| {
        let row = position % PERIOD;
        tensor.clone().slice_dim(2, row..row + 1)
    };
    for step in 0..STEPS {
        let [q, k, v] = [&query, &key, &value].map(|tensor| row(tensor, step));
        let got = cache.step(q.clone(), k, v, &options);
        assert_eq!(cache.len(), step + 1);
        let is_checked = step < 200 || step % 997 == 0 || step + 1 == STEPS;
        if !is_checked {
            continue;
        }
        let positions = || {
            let window = step.saturating_sub(WINDOW).max(FIRST)..=step;
            (0..FIRST.min(step + 1)).chain(window)
        };
        let [k, v] = [&key, &value].map(|tensor| {
            let rows = positions().map(|position| row(tensor, position));
            Tensor::cat(rows.collect(), 2)
        });
        let expected = flash_with_sink(q, k, v, Tensor::zeros([HEADS], &device), &options);
        let error: f32 = (got - expected).abs().max().into_scalar();
        assert!(error < 1e-5, "step {step}: {error}");
        let retained = positions().count();
        assert_eq!(cache.num_elements(), 2 * HEADS * D_HEAD * retained);
    }
    assert_eq!(
        cache.num_elements(),
        2 * HEADS * D_HEAD * (FIRST + WINDOW + 1)
    );
}
