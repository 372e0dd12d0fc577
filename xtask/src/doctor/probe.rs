//! The program that opens a device and tells what it is: kept, found, asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use zoo_spec::{Backend, BackendWord};

use crate::backends::Environment;
use crate::build::Built;
use crate::{places, program};

/// The program, and the package it is in.
pub(super) const PROBE: &str = "zoo-backend";

/// What the probe prints, and the report shows.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Probed {
    pub(super) device: Option<String>,
    #[serde(default)]
    pub(super) dtypes: Vec<String>,
    #[serde(alias = "memory")]
    pub(super) memory_bytes: Option<u64>,
    #[serde(skip_serializing)]
    pub(super) error: Option<String>,
}

/// Keeps the probe among `built` under the features it was built with.
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
    places::target().join("zoo-probes")
}

/// The probe that has `backend` compiled in and the least besides, which could
/// keep it from starting.
pub(super) fn probe_for(backend: Backend) -> Option<PathBuf> {
    let probes = fs::read_dir(probes()).ok()?.flatten();
    let named = probes.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let features: Vec<String> = name.split('+').map(str::to_owned).collect();
        (features, entry.path())
    });
    let compiled_in = named.filter(|(features, _)| {
        let has = |feature: &str| features.iter().any(|part| part == feature);
        // With `vulkan` compiled in, `wgpu` is another backend than alone.
        has(backend.feature()) && (backend != Backend::Wgpu || !has("vulkan"))
    });
    let least = compiled_in.min_by_key(|(features, _)| features.len());
    least.map(|(_, path)| path)
}

/// Asks the probe about a backend. An error is what stands in its way.
pub(super) fn ask(probe: &Path, backend: Backend, environment: &Environment) -> Probed {
    let output = Command::new(probe)
        .arg(BackendWord::from(backend).to_string())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output();
    let failed = |error: String| Probed {
        error: Some(error),
        ..Probed::default()
    };
    let output = match output {
        Ok(output) => output,
        Err(error) => return failed(format!("{} does not run: {error}", probe.display())),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let last_line = said.lines().last().unwrap_or_default();
    // A probe that falls over before it speaks: the loader's words are all there is.
    serde_json::from_str(last_line).unwrap_or_else(|_| {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        failed(format!("the probe ended with {}: {words}", output.status))
    })
}
