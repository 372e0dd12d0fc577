//! Burn's all-reduce, which sums tensors over devices through NCCL. In Burn 0.22 only `burn-cuda`
//! implements it.

use burn::tensor::Tensor;
use burn::tensor::distributed::{ReduceOperation, all_reduce};

use crate::open::{catch_panic, list};
use crate::{Backend, BackendError, Device, OpenDevice};

/// Sums a number over `devices` of one backend and checks the result.
///
/// # Errors
///
/// If the backend has no all-reduce, NCCL is not installed, or the sum fails.
pub fn check_all_reduce(devices: &[OpenDevice]) -> Result<(), BackendError> {
    let ids: Vec<_> = devices.iter().map(|it| it.id).collect();
    let ids = list(&ids);
    if let Some(other) = devices.iter().find(|it| !it.id.backend.has_all_reduce()) {
        let backends = Backend::ALL.into_iter().filter(|it| it.has_all_reduce());
        return Err(BackendError(format!(
            "Burn has no all-reduce for \"{}\"\n  help: use {}",
            other.id,
            list(&backends.collect::<Vec<_>>())
        )));
    }
    if !devices.iter().all(has_nccl) {
        return Err(BackendError(missing_nccl(&ids)));
    }
    let handles: Vec<Device> = devices.iter().map(|it| it.device.clone()).collect();
    let sums = catch_panic(|| sum_of_ranks(&handles));
    let expected = (1..=devices.len()).sum::<usize>() as f32;
    let reason = match sums {
        Ok(sums) if sums.iter().all(|sum| *sum == expected) => return Ok(()),
        Ok(sums) => format!("the sum is {}, expected {expected}", list(&sums)),
        Err(reason) => reason,
    };
    Err(BackendError(failed(&ids, &reason)))
}

fn missing_nccl(devices: &str) -> String {
    format!(
        "cannot sum gradients over {devices} (backend.devices): the NCCL library was not found\n  \
         help: install NCCL for your CUDA version, such as apt-get install libnccl-dev; libnccl.so must \
         be in a folder of LD_LIBRARY_PATH (where there is only libnccl.so.2, as in Python packages, \
         create a link of that name); or remove backend.devices to train on one device"
    )
}

fn failed(devices: &str, reason: &str) -> String {
    format!(
        "cannot sum gradients over {devices} (backend.devices): NCCL's all-reduce failed: {reason}\n  \
         help: NCCL_DEBUG=INFO prints its reasons; or remove backend.devices to train on one device"
    )
}

/// The sum of 1, 2, ... over the devices, as each of them received it.
fn sum_of_ranks(devices: &[Device]) -> Vec<f32> {
    // Every device waits for the others, so each has a thread.
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..)
            .zip(devices)
            .map(|(rank, device): (u16, _)| {
                scope.spawn(move || {
                    let value = Tensor::<1>::from_data([f32::from(rank)], device);
                    let sum = all_reduce(value, ReduceOperation::Sum, devices.to_vec());
                    sum.resolve().into_scalar::<f32>()
                })
            })
            .collect();
        let results = workers.into_iter().map(|worker| worker.join());
        results
            .map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Whether CubeCL found the NCCL library when it opened the device.
#[cfg(feature = "cuda")]
fn has_nccl(opened: &OpenDevice) -> bool {
    let index = opened.id.index.unwrap_or(0);
    let device = cubecl::Device::Cuda(cubecl::device::CudaDevice { index });
    device.client().has_device_transport()
}

#[cfg(not(feature = "cuda"))]
fn has_nccl(_: &OpenDevice) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_key_and_a_remedy() {
        let error = missing_nccl("cuda:0, cuda:1");
        let what = "cannot sum gradients over cuda:0, cuda:1 (backend.devices): the NCCL library";
        assert!(error.starts_with(what), "{error}");
        let help =
            "\n  help: install NCCL for your CUDA version, such as apt-get install libnccl-dev;";
        assert!(error.contains(help), "{error}");
        let error = failed("cuda:0", "unhandled system error");
        let what =
            "over cuda:0 (backend.devices): NCCL's all-reduce failed: unhandled system error";
        assert!(error.contains(what), "{error}");
        assert!(error.contains("\n  help: NCCL_DEBUG=INFO"), "{error}");
    }
}
