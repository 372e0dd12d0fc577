//! Graphics adapters: which there are, and which one a word means.

use burn::tensor::wgpu::{WgpuBackend, wgpu};
use burn::tensor::{Device, DeviceKind, read_sync};
use wgpu::{AdapterInfo, DeviceType};
use zoo_spec::{Backend, BackendWord};

use crate::cpu;
use crate::error::{BackendError, list};
use crate::open::Opened;

pub(crate) fn reach(word: BackendWord) -> Result<Opened, BackendError> {
    let (api, apis) = match word.backend {
        Backend::Vulkan => (WgpuBackend::Vulkan, vec![wgpu::Backend::Vulkan]),
        // The order in which Burn's runtime tries them.
        _ => (
            WgpuBackend::Auto,
            vec![
                wgpu::Backend::Vulkan,
                wgpu::Backend::Metal,
                wgpu::Backend::Dx12,
                wgpu::Backend::Gl,
            ],
        ),
    };
    let adapters = adapters(&apis);
    if adapters.is_empty() {
        return Err(BackendError(format!(
            "\"{word}\": no Vulkan, Metal, DirectX or OpenGL adapter was found on this machine\n  \
             with a GPU: install its driver (NVIDIA: nvidia-driver; AMD and Intel: \
             mesa-vulkan-drivers)\n  without one: a software driver is enough for \"wgpu\": \
             apt-get install mesa-vulkan-drivers"
        )));
    }
    let kind = match word.index {
        None => DeviceKind::DefaultDevice,
        Some(index) => gpu(&adapters, index).ok_or_else(|| {
            let gpus = adapters.iter().filter(|adapter| is_gpu(adapter)).count();
            let found: Vec<String> = adapters.iter().map(describe).collect();
            BackendError(format!(
                "\"{word}\" asks for a GPU, and this machine has {gpus} of them\n  found: {}\n  \
                 do: name one of the GPUs (counted from 0), install the driver of the one that is \
                 missing (NVIDIA: nvidia-driver; AMD and Intel: mesa-vulkan-drivers), or write \
                 \"wgpu\" to take the software adapter",
                list(&found)
            ))
        })?,
    };
    // With the feature `vulkan` shaders become SPIR-V whatever the word was.
    // Asked before the device is opened: opening is what crashes.
    let software_only = adapters.iter().all(|a| a.device_type == DeviceType::Cpu);
    if cfg!(feature = "vulkan") && software_only {
        return Err(BackendError(format!(
            "\"{word}\" would run on {}, a software adapter, and this program is built with the \
             feature `vulkan`, whose SPIR-V shaders crash software drivers\n  \
             do: build with the feature `wgpu` alone (cargo xtask does so for --backend wgpu), \
             or use a machine with a GPU",
            describe(&adapters[0])
        )));
    }

    let (device, setup) = Device::wgpu_options()
        .device_kind(kind)
        .graphics_api(api)
        .init_with_setup()
        .map_err(|error| BackendError::start(word, error))?;
    let adapter = setup.adapter.get_info();
    let software = adapter.device_type == DeviceType::Cpu;
    Ok(Opened {
        software,
        // A graphics API does not say how much memory a card has; a software
        // adapter's is the machine's.
        memory: software.then(cpu::memory).flatten(),
        ..Opened::reached(word, device, describe(&adapter))
    })
}

/// The adapters of the first graphics API that has a GPU, or else of the first
/// that has anything: the set Burn's runtime will choose from.
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

/// The `index`-th GPU in the words of Burn, which counts each kind on its own.
fn gpu(adapters: &[AdapterInfo], index: usize) -> Option<DeviceKind> {
    let chosen = adapters.iter().filter(|a| is_gpu(a)).nth(index)?;
    let of_its_kind = adapters
        .iter()
        .filter(|a| a.device_type == chosen.device_type)
        .position(|a| std::ptr::eq(a, chosen))?;
    match chosen.device_type {
        DeviceType::DiscreteGpu => Some(DeviceKind::DiscreteGpu(of_its_kind)),
        DeviceType::IntegratedGpu => Some(DeviceKind::IntegratedGpu(of_its_kind)),
        DeviceType::VirtualGpu => Some(DeviceKind::VirtualGpu(of_its_kind)),
        // Burn 0.22 has no word for the rest.
        DeviceType::Cpu | DeviceType::Other => None,
    }
}

fn is_gpu(adapter: &AdapterInfo) -> bool {
    matches!(
        adapter.device_type,
        DeviceType::DiscreteGpu | DeviceType::IntegratedGpu | DeviceType::VirtualGpu
    )
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
