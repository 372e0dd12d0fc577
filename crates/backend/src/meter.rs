//! Peak memory of a piece of work on a device.
//!
//! - CPU and software adapters: peak resident set size of the process;
//! - GPUs driven by CubeCL: bytes reserved by its memory pool, which never shrinks;
//! - CUDA through LibTorch: peak allocated bytes as counted by PyTorch, or else the usage reported
//!   by the driver.

use std::fs;

use zoo_spec::Backend;

use crate::{OpenDevice, cpu};

/// Measures the peak memory of one piece of work, beginning at [`start`](Self::start).
#[derive(Debug)]
pub struct Meter<'a> {
    opened: &'a OpenDevice,
    before: Option<u64>,
    /// Whether LibTorch's statistics were available at the start.
    has_stats: bool,
    is_reset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    Resident,
    Pool,
    LibTorch,
}

impl Counter {
    fn new(opened: &OpenDevice) -> Self {
        match opened.id.backend {
            Backend::TchCuda => Self::LibTorch,
            Backend::Wgpu | Backend::Vulkan | Backend::Cuda if !opened.software => Self::Pool,
            _ => Self::Resident,
        }
    }
}

impl<'a> Meter<'a> {
    /// Records the baseline.
    pub fn start(opened: &'a OpenDevice) -> Self {
        trim_heap();
        let mut has_stats = false;
        let before = match Counter::new(opened) {
            Counter::Resident => cpu::bytes("/proc/self/status", "VmRSS"),
            Counter::Pool => pool(opened),
            Counter::LibTorch => {
                let stats = libtorch(opened, true);
                has_stats = stats.is_some();
                stats.map_or_else(|| driver(opened), |[allocated, _]| Some(allocated))
            }
        };
        Self {
            opened,
            before,
            has_stats,
            is_reset: false,
        }
    }

    /// Resets the peak but not the baseline, after the inputs were created: their memory counts,
    /// and temporary memory of their creation does not.
    pub fn reset_peak(&mut self) {
        trim_heap();
        self.is_reset = match Counter::new(self.opened) {
            // Without statistics at the start, the baseline is the driver's.
            Counter::LibTorch => self.has_stats && libtorch(self.opened, true).is_some(),
            _ => fs::write("/proc/self/clear_refs", "5").is_ok(),
        };
    }

    /// Peak bytes above the baseline and how they were measured; `None` if they cannot be.
    pub fn peak(&self) -> Option<(u64, &'static str)> {
        let (peak, how) = match Counter::new(self.opened) {
            Counter::Resident if self.is_reset => {
                (cpu::bytes("/proc/self/status", "VmHWM")?, "resident")
            }
            Counter::Resident => return None,
            Counter::Pool => (pool(self.opened)?, "pool"),
            Counter::LibTorch if self.is_reset => (libtorch(self.opened, false)?[1], "allocator"),
            Counter::LibTorch => (driver(self.opened)?, "nvml"),
        };
        Some((peak.saturating_sub(self.before?), how))
    }
}

fn pool(opened: &OpenDevice) -> Option<u64> {
    // Queued work has not allocated its memory yet.
    opened.device.sync().ok()?;
    Some(opened.device.memory_pool_usage()?.bytes_reserved)
}

/// Returns memory retained by the allocator to the system: reusing it would not be measured.
fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointers and is thread-safe.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Allocated bytes of LibTorch's CUDA tensors: current, and peak since the last reset.
#[cfg(feature = "tch")]
fn libtorch(opened: &OpenDevice, reset_peak: bool) -> Option<[u64; 2]> {
    opened.device.sync().ok()?;
    let index = opened.id.index.unwrap_or(0);
    let memory = zoo_kernels::aten::cuda_memory(index, reset_peak).ok()?;
    Some([memory.allocated, memory.peak_allocated])
}

#[cfg(feature = "tch")]
fn driver(opened: &OpenDevice) -> Option<u64> {
    use nvml_wrapper::Nvml;
    use nvml_wrapper::enums::device::UsedGpuMemory;

    opened.device.sync().ok()?;
    let nvml = Nvml::init().ok()?;
    let gpu = nvml
        .device_by_index(opened.id.index.unwrap_or(0) as u32)
        .ok()?;
    let own = gpu.running_compute_processes().ok().and_then(|all| {
        let own = all.into_iter().find(|p| p.pid == std::process::id())?;
        match own.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        }
    });
    // In a container the driver sees another process id. Then the total usage of the GPU is used,
    // which is right if no other process uses it.
    own.or_else(|| Some(gpu.memory_info().ok()?.used))
}

#[cfg(not(feature = "tch"))]
fn libtorch(_: &OpenDevice, _: bool) -> Option<[u64; 2]> {
    None
}

#[cfg(not(feature = "tch"))]
fn driver(_: &OpenDevice) -> Option<u64> {
    None
}
