//! From a word to a device: where a backend is chosen.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use burn::tensor::{Device, FloatDType, Tensor};
use zoo_spec::{Backend, BackendWord, Dtype};

use crate::cpu;
use crate::error::{BackendError, list};
use crate::guard::guarded;

/// A device that is ready, and what to tell people about it.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The word, with the choice made where it left one open (`tch`).
    pub word: BackendWord,
    /// The device. New tensors on it have the dtype it was opened with.
    pub device: Device,
    /// What computes: a processor, an adapter, a card.
    pub name: String,
    /// Whether a processor stands in for a GPU.
    pub software: bool,
    /// The number type of new tensors.
    pub dtype: Dtype,
    /// The number types the device computes in.
    pub dtypes: Vec<Dtype>,
    /// Its memory in bytes, where it tells.
    pub memory: Option<u64>,
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, {}", self.word, self.name, self.dtype)
    }
}

impl Opened {
    /// A device that answers, before its dtype is settled.
    #[allow(dead_code)] // unused in a build without a backend
    pub(crate) fn reached(word: BackendWord, device: Device, name: String) -> Self {
        let is_computed_in = |dtype: &Dtype| device.supports_dtype(float(*dtype));
        let dtypes: Vec<Dtype> = Dtype::ALL.into_iter().filter(is_computed_in).collect();
        Self {
            word,
            device,
            name,
            software: false,
            dtype: Dtype::F32,
            dtypes,
            memory: None,
        }
    }

    fn settle(&mut self, dtype: Dtype) -> Result<(), BackendError> {
        let (word, name) = (self.word, &self.name);
        if !self.dtypes.contains(&dtype) {
            let supported = list(&self.dtypes);
            return Err(BackendError(format!(
                "{name} (\"{word}\") cannot compute in {dtype}\n  it computes in: {supported}"
            )));
        }
        let configured = self.device.configure(float(dtype));
        configured.map_err(|error| BackendError::start(word, error))?;
        self.dtype = dtype;
        Ok(())
    }

    /// Multiplies two small matrices: an error if the device fails or computes something else.
    pub fn self_test(&self) -> Result<(), BackendError> {
        let product = guarded(|| {
            let ones = Tensor::<2>::ones([3, 5], &self.device);
            let product = ones.clone().matmul(ones.transpose());
            product.sum().into_scalar::<f32>()
        });
        // 3 x 3 dot products of five ones.
        let reason = match product {
            Ok(45.0) => return Ok(()),
            Ok(other) => format!("3x3 sums of five ones came to {other}, not 45"),
            Err(reason) => reason,
        };
        Err(BackendError::start(self.word, reason))
    }
}

/// The cargo features of the backends compiled into this program.
pub fn compiled() -> Vec<&'static str> {
    [
        ("flex", cfg!(feature = "flex")),
        ("ndarray", cfg!(feature = "ndarray")),
        ("wgpu", cfg!(feature = "wgpu")),
        ("vulkan", cfg!(feature = "vulkan")),
        ("tch", cfg!(feature = "tch")),
        ("cuda", cfg!(feature = "cuda")),
    ]
    .into_iter()
    .filter_map(|(feature, built)| built.then_some(feature))
    .collect()
}

/// Opens the device a word names, so that new tensors on it are of `dtype`.
///
/// Opening the same word again gives the same device.
pub fn open(word: BackendWord, dtype: Dtype) -> Result<Opened, BackendError> {
    // A wgpu device can be set up once, and a device's dtype settled once, in a
    // process: what was reached and opened stays here.
    static OPEN: Mutex<Vec<(Opened, bool)>> = Mutex::new(Vec::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = |open: &[(Opened, _)], word| open.iter().position(|(o, _)| o.word == word);
    let at = match known(&open, word) {
        Some(at) => at,
        None => {
            let reached = guarded(|| reach(word))
                .unwrap_or_else(|reason| Err(BackendError::start(word, reason)))?;
            // `tch` turns into one of two words, which may be open already.
            known(&open, reached.word).unwrap_or_else(|| {
                open.push((reached, false));
                open.len() - 1
            })
        }
    };
    let (opened, is_settled) = &mut open[at];
    let (word, first) = (opened.word, opened.dtype);
    if *is_settled && first != dtype {
        return Err(BackendError(format!(
            "\"{word}\" is already open in {first} in this process and cannot change to {dtype}\n  \
             do: open it once, or use one process per dtype"
        )));
    }
    if !*is_settled {
        guarded(|| opened.settle(dtype))
            .unwrap_or_else(|reason| Err(BackendError::start(word, reason)))?;
        *is_settled = true;
    }
    Ok(opened.clone())
}

fn reach(word: BackendWord) -> Result<Opened, BackendError> {
    if !compiled().contains(&word.backend.feature()) {
        return Err(BackendError(format!(
            "backend \"{}\" is not compiled into this program (it has: {})\n  \
             compile it in: {}",
            word.backend,
            list(&compiled()),
            rebuild(word.backend.feature())
        )));
    }
    #[allow(deprecated)] // Burn 0.22 is the last to carry ndarray and LibTorch; we carry both.
    match word.backend {
        #[cfg(feature = "flex")]
        Backend::Flex => Ok(on_cpu(word, Device::flex())),
        #[cfg(feature = "ndarray")]
        Backend::Ndarray => Ok(on_cpu(word, Device::ndarray())),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu | Backend::Vulkan => crate::wgpu::reach(word),
        #[cfg(feature = "tch")]
        Backend::Tch | Backend::TchCpu | Backend::TchCuda => crate::libtorch::reach(word),
        #[cfg(feature = "cuda")]
        Backend::Cuda => reach_cuda(word),
        #[allow(unreachable_patterns)] // reachable in every build that lacks a backend
        _ => unreachable!("{word} is not among the compiled backends, and was let through"),
    }
}

#[allow(dead_code)] // unused in a build without a CPU backend
pub(crate) fn on_cpu(word: BackendWord, device: Device) -> Opened {
    Opened {
        memory: cpu::memory(),
        ..Opened::reached(word, device, cpu::name())
    }
}

#[cfg(feature = "cuda")]
fn reach_cuda(mut word: BackendWord) -> Result<Opened, BackendError> {
    let index = *word.index.get_or_insert(0);
    let device = Device::cuda(index);
    // Burn opens a CUDA device with the first question it gets.
    let name = device.identity().map(|identity| identity.name);
    let name = name.unwrap_or_else(|| "CUDA".to_owned());
    Ok(Opened::reached(word, device, name))
}

fn float(dtype: Dtype) -> FloatDType {
    match dtype {
        Dtype::F32 => FloatDType::F32,
        Dtype::F16 => FloatDType::F16,
        Dtype::Bf16 => FloatDType::BF16,
    }
}

/// The command that builds and runs this program again with `feature` in it.
fn rebuild(feature: &str) -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let program = path.file_stem().unwrap_or_default().to_string_lossy();
    // `cargo run` and `cargo test` say which package; else programs of ours are
    // named after theirs, but for one.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| match &*program {
        "zoo" => "zoo-train".to_owned(),
        other => other.to_owned(),
    });
    let is_test = path.parent().is_some_and(|folder| folder.ends_with("deps"));
    // Paths need not be UTF-8.
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    let arguments: Vec<String> = arguments.collect();
    let mut command = match is_test {
        true => format!("cargo test --release --package {package} --features {feature}"),
        false => format!(
            "cargo run --release --package {package} --bin {program} --features {feature} -- {}",
            arguments.join(" ")
        ),
    };
    if feature == "tch" {
        command.push_str(
            "\n  with LIBTORCH set to a LibTorch 2.9; cargo xtask sets it: \
             cargo xtask test --backend tch-cpu",
        );
    }
    command
}
