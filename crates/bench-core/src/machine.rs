//! The machine that a run was measured on.

use std::fs;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// CPU features that kernels are selected by.
    pub features: Vec<String>,
    pub cores: usize,
    pub memory_bytes: Option<u64>,
    pub system: String,
}

impl Machine {
    pub fn detect() -> Self {
        Self {
            cpu: cpu_name().unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH)),
            features: cpu_features(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: read_kib_field("/proc/meminfo", "MemTotal:"),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

fn cpu_name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn cpu_features() -> Vec<String> {
    #[cfg(target_arch = "x86_64")]
    let known = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("avx512fp16", is_x86_feature_detected!("avx512fp16")),
    ];
    #[cfg(target_arch = "aarch64")]
    let known = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
    ];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let known: [(&str, bool); 0] = [];
    let available = known.into_iter().filter(|(_, is_available)| *is_available);
    available.map(|(name, _)| name.to_owned()).collect()
}

/// Available memory in bytes, including the limit of a container; `None` if unknown.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let in_container = read("/sys/fs/cgroup/memory.max")
        .zip(read("/sys/fs/cgroup/memory.current"))
        .map(|(max, current)| max.saturating_sub(current));
    let on_machine = read_kib_field("/proc/meminfo", "MemAvailable:");
    in_container.into_iter().chain(on_machine).min()
}

pub(crate) fn read_kib_field(file: &str, field: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
