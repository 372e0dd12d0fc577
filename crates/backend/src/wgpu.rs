//! Graphics adapters through wgpu.

use burn::tensor::wgpu::{WgpuBackend, wgpu};
use burn::tensor::{Device, DeviceKind, read_sync};
use wgpu::{AdapterInfo, DeviceType};
use zoo_spec::{Backend, BackendId};

use crate::cpu;
use crate::open::{BackendError, OpenDevice, list};

pub(crate) fn open(id: BackendId) -> Result<OpenDevice, BackendError> {
    use wgpu::Backend::{Dx12, Gl, Metal, Vulkan};

    let (api, apis) = match id.backend {
        Backend::Vulkan => (WgpuBackend::Vulkan, vec![Vulkan]),
        // In the order of Burn's runtime.
        _ => (WgpuBackend::Auto, vec![Vulkan, Metal, Dx12, Gl]),
    };
    let adapters = adapters(&apis);
    if adapters.is_empty() {
        return Err(BackendError(format!(
            "\"{id}\": no Vulkan, Metal, DirectX or OpenGL adapter was found on this machine\n  \
             help: install the driver of the GPU (NVIDIA: nvidia-driver; AMD and Intel: \
             mesa-vulkan-drivers)\n  help: without a GPU, install a software driver for \"wgpu\": \
             apt-get install mesa-vulkan-drivers"
        )));
    }
    let kind = match id.index {
        None => DeviceKind::DefaultDevice,
        Some(index) => gpu(&adapters, index).ok_or_else(|| {
            let gpus = adapters.iter().filter(|a| gpu_kind(a).is_some()).count();
            let found: Vec<String> = adapters.iter().map(describe).collect();
            BackendError(format!(
                "\"{id}\" is not available: this machine has {gpus} GPU(s), numbered from 0\n  \
                 found: {}\n  help: use another index, install the driver of the missing GPU \
                 (NVIDIA: nvidia-driver; AMD and Intel: mesa-vulkan-drivers), or use \"wgpu\" for \
                 the software adapter",
                list(&found)
            ))
        })?,
    };
    // With the feature `vulkan`, shaders are SPIR-V for the backend `wgpu` too. Checked before the
    // device is opened because opening crashes.
    let software_only = adapters.iter().all(|a| a.device_type == DeviceType::Cpu);
    if cfg!(feature = "vulkan") && software_only {
        return Err(BackendError(format!(
            "\"{id}\" would run on {}, a software adapter, but this program is built with the \
             feature `vulkan`, whose SPIR-V shaders crash software drivers\n  \
             help: build with the feature `wgpu` alone (cargo xtask does so for --backend wgpu), \
             or use a machine with a GPU",
            describe(&adapters[0])
        )));
    }

    let (device, setup) = Device::wgpu_options()
        .device_kind(kind)
        .graphics_api(api)
        .init_with_setup()
        .map_err(|error| BackendError::start(id, error))?;
    let adapter = setup.adapter.get_info();
    let software = adapter.device_type == DeviceType::Cpu;
    Ok(OpenDevice {
        software,
        // Graphics APIs do not report GPU memory; a software adapter uses the machine's.
        memory: software.then(cpu::memory).flatten(),
        ..OpenDevice::new(id, device, describe(&adapter))
    })
}

/// The adapters of the first graphics API that has a GPU, or else of the first that has any
/// adapter: the set from which Burn's runtime chooses.
fn adapters(apis: &[wgpu::Backend]) -> Vec<AdapterInfo> {
    let mut software_only = Vec::new();
    for &api in apis {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: api.into(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let found: Vec<AdapterInfo> = read_sync(instance.enumerate_adapters(api.into()))
            .iter()
            .map(wgpu::Adapter::get_info)
            .collect();
        if found.iter().any(|a| a.device_type != DeviceType::Cpu) {
            return found;
        }
        if software_only.is_empty() {
            software_only = found;
        }
    }
    software_only
}

/// The `index`-th GPU as a [`DeviceKind`], which numbers each kind of GPU separately.
fn gpu(adapters: &[AdapterInfo], index: usize) -> Option<DeviceKind> {
    let gpu = adapters
        .iter()
        .filter(|a| gpu_kind(a).is_some())
        .nth(index)?;
    let index = adapters
        .iter()
        .filter(|a| a.device_type == gpu.device_type)
        .position(|a| std::ptr::eq(a, gpu))?;
    Some(gpu_kind(gpu)?(index))
}

/// The [`DeviceKind`] of a GPU, given its index; `None` if the adapter is not a GPU, or of a kind
/// that Burn 0.22 does not have.
fn gpu_kind(adapter: &AdapterInfo) -> Option<fn(usize) -> DeviceKind> {
    match adapter.device_type {
        DeviceType::DiscreteGpu => Some(DeviceKind::DiscreteGpu),
        DeviceType::IntegratedGpu => Some(DeviceKind::IntegratedGpu),
        DeviceType::VirtualGpu => Some(DeviceKind::VirtualGpu),
        DeviceType::Cpu | DeviceType::Other => None,
    }
}

fn describe(adapter: &AdapterInfo) -> String {
    let kind = match adapter.device_type {
        DeviceType::DiscreteGpu => "GPU",
        DeviceType::IntegratedGpu => "integrated GPU",
        DeviceType::VirtualGpu => "virtual GPU",
        DeviceType::Cpu => "software adapter",
        DeviceType::Other => "adapter of unknown kind",
    };
    format!("{} ({kind}, {})", adapter.name, adapter.backend)
}
