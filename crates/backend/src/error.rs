//! Everything that can stand between a word and its device.

use zoo_spec::{Backend, BackendWord, Dtype};

/// Why a device could not be opened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The program was built without this backend.
    #[error(
        "backend \"{backend}\" is not compiled into this program (it has: {})\n  \
         compile it in: {command}",
        list(compiled)
    )]
    NotCompiled {
        backend: Backend,
        compiled: Vec<&'static str>,
        command: String,
    },

    /// No graphics adapter at all.
    #[error(
        "\"{word}\": no Vulkan, Metal, DirectX or OpenGL adapter was found on this machine\n  \
         with a GPU: install its driver (NVIDIA: nvidia-driver; AMD and Intel: mesa-vulkan-drivers)\n  \
         without one: a software driver is enough for \"wgpu\": apt-get install mesa-vulkan-drivers"
    )]
    NoAdapter { word: BackendWord },

    /// A GPU was asked for, and the machine has too few.
    #[error(
        "\"{word}\" asks for a GPU, and this machine has {} of them\n  \
         found: {}\n  \
         do: name one of the GPUs (counted from 0), install the driver of the one that is missing \
         (NVIDIA: nvidia-driver; AMD and Intel: mesa-vulkan-drivers), or write \"wgpu\" to take \
         the software adapter",
        gpus,
        list(found)
    )]
    NoSuchGpu {
        word: BackendWord,
        gpus: usize,
        found: Vec<String>,
    },

    /// The SPIR-V compiler of the `vulkan` feature brings software drivers down.
    #[error(
        "\"{word}\" would run on {adapter}, a software adapter, and this program is built with the \
         feature `vulkan`, whose SPIR-V shaders crash software drivers\n  \
         do: build with the feature `wgpu` alone (cargo xtask does so for --backend wgpu), \
         or use a machine with a GPU"
    )]
    SpirvOnSoftware { word: BackendWord, adapter: String },

    /// LibTorch cannot reach a CUDA device.
    #[error(
        "\"{word}\": {libtorch} has no CUDA device: {reason}\n  \
         do: {remedy}, or write \"tch-cpu\""
    )]
    NoCuda {
        word: BackendWord,
        libtorch: String,
        reason: String,
        remedy: String,
    },

    /// LibTorch sees CUDA, and not that many devices.
    #[error(
        "\"{word}\": LibTorch sees {count} CUDA device(s), counted from 0\n  \
         do: write tch-cuda:{}",
        count - 1
    )]
    NoSuchCuda { word: BackendWord, count: usize },

    /// The device cannot compute in the number type.
    #[error(
        "{device} (\"{word}\") cannot compute in {dtype}\n  it computes in: {}",
        list(supported)
    )]
    Dtype {
        word: BackendWord,
        device: String,
        dtype: Dtype,
        supported: Vec<Dtype>,
    },

    /// A process settles a device's number type once.
    #[error(
        "\"{word}\" is already open in {first} in this process and cannot change to {dtype}\n  \
         do: open it once, or use one process per dtype"
    )]
    DtypeSettled {
        word: BackendWord,
        first: Dtype,
        dtype: Dtype,
    },

    /// The backend is there and would not start.
    #[error("\"{word}\" does not start: {reason}")]
    Start { word: BackendWord, reason: String },
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    match items.is_empty() {
        true => "none".to_owned(),
        false => items.join(", "),
    }
}
