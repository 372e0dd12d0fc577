//! What is known of devices.

use std::sync::{Mutex, PoisonError};

use tch::Device;

/// On which devices something works.
pub(super) struct Devices(Mutex<Vec<(Device, bool)>>);

impl Devices {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether it works on a device, by trying it once. It never does on the host.
    pub(super) fn works(&self, device: Device, attempt: impl FnOnce() -> bool) -> bool {
        if device == Device::Cpu {
            return false;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, works)) = known.iter().find(|(other, _)| *other == device) {
            return *works;
        }
        let works = attempt();
        known.push((device, works));
        works
    }
}
