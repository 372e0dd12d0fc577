//! LibTorch: the library that was loaded, and whether it sees CUDA.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use zoo_spec::{Backend, BackendWord, libtorch_version};

use crate::open::{Opened, on_cpu};
use crate::{BackendError, cpu};

#[allow(deprecated)] // Burn 0.22 is the last to carry LibTorch; we carry it.
pub(crate) fn reach(word: BackendWord) -> Result<Opened, BackendError> {
    let on_cuda = match word.backend {
        Backend::Tch => tch::Cuda::is_available(),
        other => other == Backend::TchCuda,
    };
    let word = BackendWord {
        backend: if on_cuda {
            Backend::TchCuda
        } else {
            Backend::TchCpu
        },
        ..word
    };
    if !on_cuda {
        let mut reached = on_cpu(word, Device::libtorch());
        reached.name = format!("{}, {}", loaded(), reached.name);
        return Ok(reached);
    }
    if !tch::Cuda::is_available() {
        let (reason, remedy) = why_no_cuda();
        return Err(BackendError(format!(
            "\"{word}\": {} has no CUDA device: {reason}\n  do: {remedy}, or write \"tch-cpu\"",
            loaded()
        )));
    }
    let count = usize::try_from(tch::Cuda::device_count()).unwrap_or(0);
    let index = word.index.unwrap_or(0);
    if index >= count {
        return Err(BackendError(format!(
            "\"{word}\": LibTorch sees {count} CUDA device(s), counted from 0\n  \
             do: write tch-cuda:{}",
            count - 1
        )));
    }
    let word = BackendWord {
        index: Some(index),
        ..word
    };
    let name = format!("{}, {}", loaded(), card(index));
    Ok(Opened::reached(word, Device::libtorch_cuda(index), name))
}

/// Which LibTorch this process runs, for people: version and folder.
fn loaded() -> String {
    let Some(folder) = folder() else {
        return "LibTorch".to_owned();
    };
    match libtorch_version(&folder) {
        Some(version) => format!("LibTorch {version} at {}", folder.display()),
        None => format!("LibTorch at {}", folder.display()),
    }
}

/// The folder above `lib/libtorch_cpu.so`, from the list of what the process has mapped.
fn folder() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name == "libtorch_cpu.so")
        })?;
    Some(library.parent()?.parent()?.to_owned())
}

/// Why a LibTorch without CUDA devices has none, and what would help.
fn why_no_cuda() -> (&'static str, &'static str) {
    if !tch::utils::has_cuda() && !folder().is_some_and(|f| f.join("lib/libtorch_cuda.so").exists())
    {
        return (
            "it was built for the CPU only",
            "set LIBTORCH to one built with CUDA (pip install torch brings it)",
        );
    }
    if !Path::new("/proc/driver/nvidia/version").exists() {
        return (
            "it was built with CUDA, but no NVIDIA driver is loaded on this machine",
            "install the driver of your NVIDIA GPU",
        );
    }
    (
        "it was built with CUDA and a driver is loaded, but no device answers",
        "look at nvidia-smi and at CUDA_VISIBLE_DEVICES; the driver may be older than this \
         LibTorch's CUDA",
    )
}

/// The card's name, where the driver tells it beyond doubt.
fn card(index: usize) -> String {
    let cards: Vec<_> = fs::read_dir("/proc/driver/nvidia/gpus")
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    // With several cards CUDA may count them in another order than the driver does.
    let model = match cards.as_slice() {
        [card] => fs::read_to_string(card.path().join("information"))
            .ok()
            .and_then(|text| cpu::field(&text, "Model")),
        _ => None,
    };
    match model {
        Some(model) => format!("CUDA device {index}: {model}"),
        None => format!("CUDA device {index}"),
    }
}
