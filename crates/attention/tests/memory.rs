//! Memory of a training pass, measured at the allocator: it grows with the sequence length as the
//! declaration of each mechanism states.
//!
//! A program of its own, since other tests would allocate at the same time.
#![cfg(feature = "flex")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::mechanisms::Performer;
use zoo_attention::{AttentionOptions, Mechanism, MechanismConfig, Pattern, attend};

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

/// Peak bytes beyond the inputs of a forward and backward pass.
fn training_peak(mechanism: &MechanismConfig, seq: usize) -> usize {
    let device = Device::flex().autodiff();
    let normal = Distribution::Normal(0.0, 1.0);
    let kv_heads = mechanism.kv_heads(HEADS);
    let kv_heads = kv_heads.unwrap_or(HEADS);
    let inputs = [HEADS, kv_heads, kv_heads]
        .map(|heads| Tensor::<4>::random([1, heads, seq, D_HEAD], normal, &device).require_grad());
    let options = AttentionOptions::new().with_pattern(match mechanism.capabilities().causal {
        Ok(()) => Pattern::Causal,
        Err(_) => Pattern::Full,
    });
    let before = CURRENT.load(Relaxed);
    PEAK.store(before, Relaxed);
    let [query, key, value] = inputs.clone();
    let gradients = attend(*mechanism, query, key, value, &options)
        .sum()
        .backward();
    assert!(inputs[2].grad(&gradients).is_some());
    PEAK.load(Relaxed) - before
}

/// One test for all mechanisms: they would disturb each other's measurements.
#[test]
fn training_memory_grows_as_stated() {
    for mechanism in Mechanism::ALL {
        let config = match mechanism {
            // Four features for each element, as in the benchmarks.
            Mechanism::Performer => MechanismConfig::Performer(Performer {
                n_features: 4 * D_HEAD,
                ..Performer::default()
            }),
            other => MechanismConfig::from(other),
        };
        training_peak(&config, 256); // buffers that threads reuse
        let [short, long] = [2_048, 4_096].map(|seq| training_peak(&config, seq));
        let exponent = (long as f64 / short as f64).log2();
        let stated = mechanism.about().memory;
        println!("{mechanism}: n^{exponent:.2}, stated: {stated}");
        // Sums of linear terms and buffers of constant size.
        let is_as_stated = match stated {
            "n²" => (1.7..2.1).contains(&exponent),
            _ => exponent < 1.1,
        };
        assert!(
            is_as_stated,
            "{mechanism}: memory grows as n^{exponent:.2}, stated: {stated}"
        );
        let is_scan = matches!(
            mechanism,
            Mechanism::Linear | Mechanism::Performer | Mechanism::Retention | Mechanism::Lightning
        );
        if is_scan {
            let tensor = 4 * HEADS * 2_048 * D_HEAD;
            // The context or its gradient, and the gradients of query, key and value.
            let tensors = short as f64 / tensor as f64;
            assert!(
                tensors < 4.5,
                "{mechanism}: a training pass needs the memory of {tensors:.2} tensors"
            );
        }
    }
}
