//! Opening of a device by its [`BackendId`].

use std::error::Error;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use burn::tensor::{Device, FloatDType, Tensor};
use zoo_spec::{Backend, BackendId, Dtype};

use crate::cpu;

/// Why a device could not be opened, with a `help:` line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub(crate) String);

impl BackendError {
    pub(crate) fn start(id: BackendId, reason: impl fmt::Display) -> Self {
        Self(format!("\"{id}\" failed to start: {reason}"))
    }
}

/// An open device and its properties.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    /// The backend, with `tch` resolved to `tch-cpu` or `tch-cuda`.
    pub id: BackendId,
    /// The device. New tensors on it have the dtype it was opened with.
    pub device: Device,
    /// Name of the processor, adapter or GPU.
    pub name: String,
    /// Whether this is a software (CPU) implementation of a graphics adapter.
    pub software: bool,
    /// The dtype of new float tensors.
    pub dtype: Dtype,
    /// The supported float dtypes.
    pub dtypes: Vec<Dtype>,
    /// Total memory in bytes, if known.
    pub memory: Option<u64>,
}

impl fmt::Display for OpenDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, {}", self.id, self.name, self.dtype)
    }
}

impl OpenDevice {
    #[allow(dead_code)] // unused in a build without a backend
    pub(crate) fn new(id: BackendId, device: Device, name: String) -> Self {
        let is_supported = |dtype: &Dtype| device.supports_dtype(float_dtype(*dtype));
        let dtypes: Vec<Dtype> = Dtype::ALL.into_iter().filter(is_supported).collect();
        Self {
            id,
            device,
            name,
            software: false,
            dtype: Dtype::F32,
            dtypes,
            memory: None,
        }
    }

    fn configure_dtype(&mut self, dtype: Dtype) -> Result<(), BackendError> {
        let (id, name) = (self.id, &self.name);
        if !self.dtypes.contains(&dtype) {
            let supported = list(&self.dtypes);
            return Err(BackendError(format!(
                "{dtype} is not supported by {name} (\"{id}\")\n  help: use one of: {supported}"
            )));
        }
        let configured = self.device.configure(float_dtype(dtype));
        configured.map_err(|error| BackendError::start(id, error))?;
        self.dtype = dtype;
        Ok(())
    }

    /// Multiplies two small matrices and checks the result.
    pub fn self_test(&self) -> Result<(), BackendError> {
        let product = catch_panic(|| {
            let ones = Tensor::<2>::ones([3, 5], &self.device);
            let product = ones.clone().matmul(ones.transpose());
            product.sum().into_scalar::<f32>()
        });
        // 3 x 3 dot products of five ones.
        let reason = match product {
            Ok(45.0) => return Ok(()),
            Ok(other) => format!("the self-test matmul returned {other}, expected 45"),
            Err(reason) => reason,
        };
        Err(BackendError::start(self.id, reason))
    }
}

/// The cargo features of the backends compiled into this program.
pub fn compiled_features() -> Vec<&'static str> {
    [
        ("flex", cfg!(feature = "flex")),
        ("ndarray", cfg!(feature = "ndarray")),
        ("wgpu", cfg!(feature = "wgpu")),
        ("vulkan", cfg!(feature = "vulkan")),
        ("tch", cfg!(feature = "tch")),
        ("cuda", cfg!(feature = "cuda")),
    ]
    .into_iter()
    .filter_map(|(feature, is_enabled)| is_enabled.then_some(feature))
    .collect()
}

/// Opens a device and makes `dtype` the default of its new float tensors.
///
/// Opening a device again returns the same device; another dtype is then an error.
pub fn open(id: BackendId, dtype: Dtype) -> Result<OpenDevice, BackendError> {
    // Burn allows a wgpu device to be set up and a dtype to be configured only once per process, so
    // devices are cached, each with whether its dtype is configured.
    static CACHE: Mutex<Vec<(OpenDevice, bool)>> = Mutex::new(Vec::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let position = |cache: &[(OpenDevice, _)], id| cache.iter().position(|(o, _)| o.id == id);
    let index = match position(&cache, id) {
        Some(index) => index,
        None => {
            let device = catch_panic(|| open_uncached(id))
                .unwrap_or_else(|reason| Err(BackendError::start(id, reason)))?;
            // `tch` resolves to `tch-cpu` or `tch-cuda`, which may be open already.
            position(&cache, device.id).unwrap_or_else(|| {
                cache.push((device, false));
                cache.len() - 1
            })
        }
    };
    let (opened, is_configured) = &mut cache[index];
    let (id, first) = (opened.id, opened.dtype);
    if *is_configured && first != dtype {
        return Err(BackendError(format!(
            "\"{id}\" is already open with dtype {first}, which cannot change to {dtype} in the same \
             process\n  help: use {first}, or a separate process for {dtype}"
        )));
    }
    if !*is_configured {
        catch_panic(|| opened.configure_dtype(dtype))
            .unwrap_or_else(|reason| Err(BackendError::start(id, reason)))?;
        *is_configured = true;
    }
    Ok(opened.clone())
}

/// Opens the device named by `ZOO_BACKEND` (default: flex) in `f32` and prints it.
///
/// # Errors
///
/// If it cannot be opened, prints why and returns the exit code of the test program: a missing
/// device is a failure, not a skipped test.
pub fn open_for_tests() -> Result<OpenDevice, ExitCode> {
    let name = std::env::var("ZOO_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    let opened = || -> Result<_, Box<dyn Error>> { Ok(open(name.parse()?, Dtype::F32)?) };
    let opened = opened().map_err(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })?;
    println!("device: {opened}");
    Ok(opened)
}

fn open_uncached(id: BackendId) -> Result<OpenDevice, BackendError> {
    if !compiled_features().contains(&id.backend.feature()) {
        return Err(BackendError(format!(
            "backend \"{}\" is not compiled into this program (compiled in: {})\n  \
             help: rebuild with it: {}",
            id.backend,
            list(&compiled_features()),
            rebuild_command(id.backend.feature())
        )));
    }
    #[cfg(feature = "kernel-cache")]
    cache_kernels();
    #[allow(deprecated)] // Burn 0.22 is the last release with ndarray and LibTorch
    match id.backend {
        #[cfg(feature = "flex")]
        Backend::Flex => Ok(cpu_device(id, Device::flex())),
        #[cfg(feature = "ndarray")]
        Backend::Ndarray => Ok(cpu_device(id, Device::ndarray())),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu | Backend::Vulkan => crate::wgpu::open(id),
        #[cfg(feature = "tch")]
        Backend::Tch | Backend::TchCpu | Backend::TchCuda => crate::libtorch::open(id),
        #[cfg(feature = "cuda")]
        Backend::Cuda => open_cuda(id),
        #[allow(unreachable_patterns)] // reachable in every build that lacks a backend
        _ => unreachable!("{id} is not compiled in, which was checked above"),
    }
}

/// Caches compiled kernels on disk, where autotune's results are, unless CubeCL is already configured.
/// Compiling the kernels of a training pass for `cuda` takes some ten seconds.
#[cfg(feature = "kernel-cache")]
fn cache_kernels() {
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    CubeClRuntimeConfig::try_set(config);
}

#[allow(dead_code)] // unused in a build without a CPU backend
pub(crate) fn cpu_device(id: BackendId, device: Device) -> OpenDevice {
    OpenDevice {
        memory: cpu::memory(),
        ..OpenDevice::new(id, device, cpu::name())
    }
}

#[cfg(feature = "cuda")]
fn open_cuda(mut id: BackendId) -> Result<OpenDevice, BackendError> {
    let index = *id.index.get_or_insert(0);
    // A device that does not exist would panic without a reason.
    let count = Device::enumerate(burn::tensor::DeviceType::Cuda).len();
    check_cuda_index(id, "the CUDA driver", index, count)?;
    let device = Device::cuda(index);
    // The first query opens the device.
    let name = device.identity().map(|identity| identity.name);
    let name = name.unwrap_or_else(|| "CUDA".to_owned());
    Ok(OpenDevice::new(id, device, name))
}

/// An error unless there is a CUDA device of this number.
#[allow(dead_code)] // unused in a build without CUDA
pub(crate) fn check_cuda_index(
    id: BackendId,
    library: &str,
    index: usize,
    count: usize,
) -> Result<(), BackendError> {
    let Some(last) = count.checked_sub(1) else {
        return Err(BackendError(format!(
            "\"{id}\": {library} found no CUDA device\n  \
             help: check with nvidia-smi that the driver is installed and the GPU visible, or use \"flex\""
        )));
    };
    if index > last {
        return Err(BackendError(format!(
            "\"{id}\": no CUDA device {index}: {library} found {count} CUDA device(s), numbered from 0\n  \
             help: use {}:{last}",
            id.backend
        )));
    }
    Ok(())
}

fn float_dtype(dtype: Dtype) -> FloatDType {
    match dtype {
        Dtype::F32 => FloatDType::F32,
        Dtype::F16 => FloatDType::F16,
        Dtype::Bf16 => FloatDType::BF16,
    }
}

/// The command that rebuilds and reruns this program with `feature`.
fn rebuild_command(feature: &str) -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let program = path.file_stem().unwrap_or_default().to_string_lossy();
    // `cargo run` and `cargo test` set the package name. Otherwise a program has the name of its
    // package, except `zoo`.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| match &*program {
        "zoo" => "zoo-train".to_owned(),
        other => other.to_owned(),
    });
    let is_test = path.parent().is_some_and(|folder| folder.ends_with("deps"));
    // Paths need not be UTF-8.
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let mut command = if is_test {
        format!("cargo test --release --package {package} --features {feature}")
    } else {
        format!(
            "cargo run --release --package {package} --bin {program} --features {feature} -- {}",
            arguments.join(" ")
        )
    };
    if feature == "tch" {
        command.push_str(
            "\n  with LIBTORCH set to a LibTorch 2.9 folder (cargo xtask sets it: \
             cargo xtask test --backend tch-cpu)",
        );
    }
    command
}

pub(crate) fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    if items.is_empty() {
        return "none".to_owned();
    }
    items.join(", ")
}

/// Runs `work` and returns its panic message as an error. Nothing is printed.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // The panic hook is global to the process, so only one guard may replace it at a time.
    static HOOK: Mutex<()> = Mutex::new(());
    let _hook = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let previous = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(previous);
    result.map_err(|payload| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned()))
            .unwrap_or_else(|| "panicked without a message".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_cuda_device_is_an_error_with_the_others() {
        let check = |name: &str, index, count| {
            let id = name.parse().expect("the name of a device");
            check_cuda_index(id, "LibTorch", index, count).map_err(|BackendError(text)| text)
        };
        assert_eq!(check("cuda:1", 1, 2), Ok(()));
        assert_eq!(
            check("tch-cuda:2", 2, 2),
            Err(
                "\"tch-cuda:2\": no CUDA device 2: LibTorch found 2 CUDA device(s), numbered from 0\n  \
                 help: use tch-cuda:1"
                    .to_owned()
            )
        );
        let none = check("cuda", 0, 0).expect_err("there is no device");
        assert!(none.contains("found no CUDA device\n  help: "), "{none}");
    }

    #[test]
    fn panic_message_is_returned() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        let device = 3;
        assert_eq!(
            catch_panic(|| panic!("no device {device}")),
            Err::<(), _>("no device 3".to_owned())
        );
    }
}
