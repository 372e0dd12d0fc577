//! The number of kernels that a training pass launches.
//!
//! A program with a single test, since other tests would launch kernels at the same time.
// The feature `vulkan` compiles shaders to SPIR-V, which software adapters do not accept.
#![cfg(all(feature = "wgpu", not(feature = "vulkan")))]

use burn::tensor::{Device, DeviceKind, Tensor};
use zoo_attention::mechanisms::linear::linear;
use zoo_attention::mechanisms::retention::{retention, retention_decays};
use zoo_attention::mechanisms::{Lsh, lsh};
use zoo_attention::scan::FeatureMap;
use zoo_attention::{AttentionOptions, Mechanism, Pattern, attend, kernel_launches};

#[test]
fn mechanisms_launch_few_kernels() {
    let device = Device::wgpu(DeviceKind::DefaultDevice).autodiff();
    let options = AttentionOptions::new().with_pattern(Pattern::Causal);
    let launches_at = |seq: usize, attend: &dyn Fn([Tensor<4>; 3]) -> Tensor<4>| {
        let tensors =
            [0.5, 1.0, 2.0].map(|x| Tensor::<4>::full([1, 2, seq, 8], x, &device).require_grad());
        let start = kernel_launches();
        let context = attend(tensors.clone());
        // Reading a result executes the fusion queue.
        let _ = context.clone().into_data();
        let middle = kernel_launches();
        let gradients = context.sum().backward();
        for tensor in &tensors {
            let gradient = tensor.grad(&gradients);
            let _ = gradient.map(|gradient| gradient.into_data());
        }
        [middle - start, kernel_launches() - middle]
    };
    let launches = |attend: &dyn Fn([Tensor<4>; 3]) -> Tensor<4>| launches_at(130, attend);
    let by_linear =
        launches(&|[query, key, value]| linear(query, key, value, FeatureMap::Elu1, &options));
    assert_eq!(by_linear, [3, 8]);
    let decays = retention_decays(2);
    let by_retention =
        launches(&|[query, key, value]| retention(query, key, value, &decays, &options));
    assert_eq!(by_retention, [3, 7]);
    // Sort, indices, masks, positions that attend to themselves, three gathers, flash attention, and
    // merging: as many for any number of rounds. Backward two of merging, three of flash attention, and
    // three sums of copies.
    for rounds in [1, 4] {
        let hashing = Lsh::new(16, rounds, 0);
        let by_lsh = launches(&|[query, _, value]| lsh(query, value, &hashing, &options));
        assert_eq!(by_lsh, [9, 8]);
    }
    // The recurrence over chunks, and with the delta rule the inverse within them: as many for any number of
    // chunks. Backward the recurrence, and the sum of the gradients of decays.
    for seq in [130, 700] {
        for (mechanism, expected) in [
            (Mechanism::Mamba2, [1, 2]),
            (Mechanism::Gla, [1, 2]),
            (Mechanism::Delta, [2, 1]),
            (Mechanism::GatedDelta, [2, 2]),
            (Mechanism::Kda, [2, 2]),
        ] {
            let by_recurrence = launches_at(seq, &|[query, key, value]| {
                attend(mechanism, query, key, value, &options)
            });
            assert_eq!(by_recurrence, expected, "{mechanism:?}, {seq}");
        }
    }
    leave_without_cleanup();
}

/// Lets the process end without the cleanup of drivers and libraries, which crashed in some runs of
/// programs that contain both wgpu and LibTorch. Only called if the test has passed.
#[cfg(unix)]
fn leave_without_cleanup() {
    extern "C" fn leave() {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: the handler neither returns nor panics. It was registered last, so it is called first.
    let result = unsafe { libc::atexit(leave) };
    assert_eq!(result, 0, "the handler could not be registered");
}

#[cfg(not(unix))]
fn leave_without_cleanup() {}
