//! LibTorch devices: the CPU, and CUDA if the loaded library supports it.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use zoo_spec::{Backend, BackendId, libtorch_version};

use crate::open::{OpenDevice, check_cuda_index, cpu_device};
use crate::{BackendError, cpu};

#[allow(deprecated)] // Burn 0.22 is the last release with LibTorch
pub(crate) fn open(mut id: BackendId) -> Result<OpenDevice, BackendError> {
    id.backend = match id.backend {
        Backend::Tch if tch::Cuda::is_available() => Backend::TchCuda,
        Backend::TchCuda => Backend::TchCuda,
        _ => Backend::TchCpu,
    };
    if id.backend == Backend::TchCpu {
        let mut device = cpu_device(id, Device::libtorch());
        device.name = format!("{}, {}", library_name(), device.name);
        return Ok(device);
    }
    if !tch::Cuda::is_available() {
        let (reason, remedy) = missing_cuda();
        return Err(BackendError(format!(
            "\"{id}\": {} has no CUDA device: {reason}\n  help: {remedy}, or use \"tch-cpu\"",
            library_name()
        )));
    }
    let count = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    let index = id.index.unwrap_or(0);
    check_cuda_index(id, "LibTorch", index, count)?;
    id.index = Some(index);
    let name = format!("{}, {}", library_name(), gpu_name(index));
    Ok(OpenDevice::new(id, Device::libtorch_cuda(index), name))
}

/// Version and folder of the loaded LibTorch.
fn library_name() -> String {
    let Some(folder) = library_folder() else {
        return "LibTorch".to_owned();
    };
    match libtorch_version(&folder) {
        Some(version) => format!("LibTorch {version} at {}", folder.display()),
        None => format!("LibTorch at {}", folder.display()),
    }
}

/// The folder above `lib/libtorch_cpu.so`, from the memory map of the process.
fn library_folder() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name == "libtorch_cpu.so")
        })?;
    Some(library.parent()?.parent()?.to_owned())
}

/// Why LibTorch has no CUDA device, and the remedy.
fn missing_cuda() -> (&'static str, &'static str) {
    let has_library = |folder: PathBuf| folder.join("lib/libtorch_cuda.so").exists();
    if !tch::utils::has_cuda() && !library_folder().is_some_and(has_library) {
        return (
            "it was built for the CPU only",
            "set LIBTORCH to a build with CUDA (for example from pip install torch)",
        );
    }
    if !Path::new("/proc/driver/nvidia/version").exists() {
        return (
            "it was built with CUDA, but no NVIDIA driver is loaded on this machine",
            "install the NVIDIA driver",
        );
    }
    (
        "it was built with CUDA and a driver is loaded, but no device is available",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES (the driver may be too old for this \
         LibTorch's CUDA version)",
    )
}

/// The name of a CUDA device, with the GPU model if it is unambiguous.
fn gpu_name(index: usize) -> String {
    let gpus: Vec<_> = fs::read_dir("/proc/driver/nvidia/gpus")
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    // With several GPUs, CUDA and the driver may number them differently.
    let model = match gpus.as_slice() {
        [gpu] => fs::read_to_string(gpu.path().join("information"))
            .ok()
            .and_then(|text| cpu::field(&text, "Model")),
        _ => None,
    };
    match model {
        Some(model) => format!("CUDA device {index}: {model}"),
        None => format!("CUDA device {index}"),
    }
}
