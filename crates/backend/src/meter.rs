//! How much memory a piece of work takes on a device, and by whose count.
//!
//! - on the CPU, and on adapters that are one: the most the process held resident;
//! - on GPUs that CubeCL drives: what its memory pool reserved, which it keeps;
//! - on CUDA through LibTorch: the most that its tensors had, as PyTorch counts it; if it does
//!   not say, what the driver says is taken.

use std::fs;

use zoo_spec::Backend;

use crate::{Opened, cpu};

/// Measures the memory of one piece of work, from [`start`](Self::start) on.
#[derive(Debug)]
pub struct Meter<'a> {
    opened: &'a Opened,
    before: Option<u64>,
    /// Whether LibTorch counted at the start.
    is_counted: bool,
    reset: bool,
}

/// Whose count it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    Resident,
    Pool,
    LibTorch,
}

impl Counter {
    fn of(opened: &Opened) -> Self {
        match opened.word.backend {
            Backend::TchCuda => Self::LibTorch,
            Backend::Wgpu | Backend::Vulkan | Backend::Cuda if !opened.software => Self::Pool,
            _ => Self::Resident,
        }
    }
}

impl<'a> Meter<'a> {
    /// Takes the level that the work starts from.
    pub fn start(opened: &'a Opened) -> Self {
        give_back_what_is_free();
        let counted = match Counter::of(opened) {
            Counter::LibTorch => libtorch(opened, true),
            _ => None,
        };
        let before = match Counter::of(opened) {
            Counter::Resident => status("VmRSS"),
            Counter::Pool => pool(opened),
            Counter::LibTorch => counted
                .map(|[allocated, _]| allocated)
                .or_else(|| driver(opened)),
        };
        Self {
            opened,
            before,
            is_counted: counted.is_some(),
            reset: false,
        }
    }

    /// Forgets the peak so far, not the level: what it took to bring the inputs
    /// to the device is no part of the work, the inputs are.
    pub fn inputs_are_there(&mut self) {
        give_back_what_is_free();
        self.reset = match Counter::of(self.opened) {
            // If it counts now and did not at the start, the level is the driver's.
            Counter::LibTorch => self.is_counted && libtorch(self.opened, true).is_some(),
            _ => fs::write("/proc/self/clear_refs", "5").is_ok(),
        };
    }

    /// The most bytes taken since the start, and by whose count; `None` where
    /// nobody counts.
    pub fn peak(&self) -> Option<(u64, &'static str)> {
        let (most, how) = match Counter::of(self.opened) {
            Counter::Resident if self.reset => (status("VmHWM")?, "resident"),
            Counter::Resident => return None,
            Counter::Pool => (pool(self.opened)?, "pool"),
            Counter::LibTorch if self.reset => (libtorch(self.opened, false)?[1], "allocator"),
            Counter::LibTorch => (driver(self.opened)?, "nvml"),
        };
        Some((most.saturating_sub(self.before?), how))
    }
}

/// A size the kernel keeps about this process, in bytes.
fn status(field: &str) -> Option<u64> {
    cpu::bytes("/proc/self/status", field)
}

fn pool(opened: &Opened) -> Option<u64> {
    // Work that is still queued has not asked for its memory yet.
    opened.device.sync().ok()?;
    Some(opened.device.memory_pool_usage()?.bytes_reserved)
}

/// Memory freed earlier and kept by the allocator would be taken again without
/// showing, so it goes back to the system first.
fn give_back_what_is_free() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointers and may be called at any time; it locks what it needs.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The bytes that LibTorch's tensors have, now and at most since peaks were last forgotten.
#[cfg(feature = "tch")]
fn libtorch(opened: &Opened, forget_peaks: bool) -> Option<[u64; 2]> {
    opened.device.sync().ok()?;
    let index = opened.word.index.unwrap_or(0);
    let memory = zoo_kernels::aten::cuda_memory(index, forget_peaks).ok()?;
    Some([memory.allocated, memory.most_allocated])
}

#[cfg(feature = "tch")]
fn driver(opened: &Opened) -> Option<u64> {
    use nvml_wrapper::Nvml;
    use nvml_wrapper::enums::device::UsedGpuMemory;

    opened.device.sync().ok()?;
    let nvml = Nvml::init().ok()?;
    let card = nvml
        .device_by_index(opened.word.index.unwrap_or(0) as u32)
        .ok()?;
    let own = card.running_compute_processes().ok().and_then(|all| {
        let own = all.into_iter().find(|p| p.pid == std::process::id())?;
        match own.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        }
    });
    // In a container the driver knows us by another number: then the card's total
    // is what there is, right as long as nobody else uses it.
    own.or_else(|| Some(card.memory_info().ok()?.used))
}

#[cfg(not(feature = "tch"))]
fn libtorch(_: &Opened, _: bool) -> Option<[u64; 2]> {
    None
}

#[cfg(not(feature = "tch"))]
fn driver(_: &Opened) -> Option<u64> {
    None
}
