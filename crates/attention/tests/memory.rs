//! Memory of a training pass, measured at the allocator: linear in the sequence length.
//!
//! A program of its own, since other tests would allocate at the same time.
#![cfg(feature = "flex")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::mechanisms::linear::linear;
use zoo_attention::mechanisms::retention::{retention, retention_decays};
use zoo_attention::scan::{FeatureMap, RandomFeatures};
use zoo_attention::{AttentionOptions, Pattern};

/// The system's allocator, with the bytes in use and their peak.
struct Counting;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let current = CURRENT.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(current, Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HEADS: usize = 4;
const D_HEAD: usize = 32;

/// Peak bytes beyond the inputs of a forward and backward pass of a causal mechanism.
fn training_peak(
    seq: usize,
    attend: impl Fn([Tensor<4>; 3], &AttentionOptions) -> Tensor<4>,
) -> usize {
    let device = Device::flex().autodiff();
    let normal = Distribution::Normal(0.0, 1.0);
    let inputs = [(); 3]
        .map(|()| Tensor::<4>::random([1, HEADS, seq, D_HEAD], normal, &device).require_grad());
    let options = AttentionOptions::new().with_pattern(Pattern::Causal);
    let before = CURRENT.load(Relaxed);
    PEAK.store(before, Relaxed);
    let gradients = attend(inputs.clone(), &options).sum().backward();
    assert!(inputs.iter().all(|input| input.grad(&gradients).is_some()));
    PEAK.load(Relaxed) - before
}

/// One test for all mechanisms: they would disturb each other's measurements.
#[test]
fn training_memory_of_linear_attention_is_linear() {
    type Attend = fn([Tensor<4>; 3], &AttentionOptions) -> Tensor<4>;
    let mechanisms: [(&str, Attend); 3] = [
        ("linear", |[query, key, value], options| {
            linear(query, key, value, FeatureMap::Elu1, options)
        }),
        ("performer", |[query, key, value], options| {
            let features = FeatureMap::FavorPlus(RandomFeatures::new(4 * D_HEAD, 1));
            linear(query, key, value, features, options)
        }),
        ("retention", |[query, key, value], options| {
            retention(query, key, value, &retention_decays(HEADS), options)
        }),
    ];
    for (name, attend) in mechanisms {
        training_peak(256, attend); // buffers that threads reuse
        let [short, long] = [4_096, 8_192].map(|seq| training_peak(seq, attend));
        let tensor = 4 * HEADS * 4_096 * D_HEAD;
        // The context or its gradient, and the gradients of query, key and value.
        let tensors = short as f64 / tensor as f64;
        println!("{name}: {tensors:.2} tensors");
        assert!(
            tensors < 4.5,
            "{name}: a training pass needs the memory of {tensors:.2} tensors"
        );
        let growth = long as f64 / short as f64;
        assert!(
            growth < 2.05,
            "{name}: twice the length needs {growth:.2} times the memory"
        );
    }
}
