//! The probe: a program that opens a device and describes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use zoo_spec::{Backend, BackendId};

use crate::backends::Environment;
use crate::build::Built;
use crate::{paths, program};

/// Name of the program and of its package.
pub(super) const PROBE: &str = "zoo-backend";

/// The output of the probe.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ProbeResult {
    pub(super) device: Option<String>,
    #[serde(default)]
    pub(super) dtypes: Vec<String>,
    #[serde(alias = "memory")]
    pub(super) memory_bytes: Option<u64>,
    #[serde(skip_serializing)]
    pub(super) error: Option<String>,
}

/// Copies the probe among `built` to a file named after its features.
pub(crate) fn keep_probe(built: &[Built], features: &[&str]) -> Result<()> {
    let Some(probe) = built
        .iter()
        .find(|built| !built.test && built.kind == "bin" && built.target == PROBE)
    else {
        return Ok(());
    };
    program::keep(&probe.executable, &probes().join(features.join("+")))
}

fn probes() -> PathBuf {
    paths::target().join("zoo-probes")
}

/// The probe with `backend` and the fewest other features, which could prevent it from starting.
pub(super) fn probe_for(backend: Backend) -> Option<PathBuf> {
    let probes = fs::read_dir(probes()).ok()?.flatten();
    let named = probes.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let features: Vec<String> = name.split('+').map(str::to_owned).collect();
        (features, entry.path())
    });
    let compiled_in = named.filter(|(features, _)| {
        let has = |feature: &str| features.iter().any(|part| part == feature);
        // With the feature `vulkan`, `wgpu` is a different backend.
        has(backend.feature()) && (backend != Backend::Wgpu || !has("vulkan"))
    });
    let smallest = compiled_in.min_by_key(|(features, _)| features.len());
    smallest.map(|(_, path)| path)
}

/// Runs the probe for a backend.
pub(super) fn run(probe: &Path, backend: Backend, environment: &Environment) -> ProbeResult {
    let output = Command::new(probe)
        .arg(BackendId::from(backend).to_string())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output();
    let failed = |error: String| ProbeResult {
        error: Some(error),
        ..ProbeResult::default()
    };
    let output = match output {
        Ok(output) => output,
        Err(error) => return failed(format!("cannot start {}: {error}", probe.display())),
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let last_line = stdout.lines().last().unwrap_or_default();
    // A probe that crashes before it prints leaves only the loader's message.
    serde_json::from_str(last_line).unwrap_or_else(|_| {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        failed(format!("the probe failed with {}: {stderr}", output.status))
    })
}
