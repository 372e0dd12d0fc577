//! The program that opens a device and tells what it is: kept, found, asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use serde::Deserialize;
use zoo_spec::{Backend, BackendWord};

use crate::backends::Environment;
use crate::build::Built;
use crate::{places, program};

/// The program, and the package it is in.
pub(super) const PROBE: &str = "zoo-backend";

/// What the probe prints.
#[derive(Deserialize)]
pub(super) struct Probed {
    pub(super) device: Option<String>,
    #[serde(default)]
    pub(super) dtypes: Vec<String>,
    pub(super) memory: Option<u64>,
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
    let has = |name: &str, feature: &str| name.split('+').any(|part| part == feature);
    fs::read_dir(probes())
        .ok()?
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // With `vulkan` compiled in, `wgpu` is another backend than alone.
            has(&name, backend.feature()) && (backend != Backend::Wgpu || !has(&name, "vulkan"))
        })
        .min_by_key(|entry| entry.file_name().to_string_lossy().split('+').count())
        .map(|entry| entry.path())
}

/// Asks the probe about a backend; an error is what stands in its way.
pub(super) fn ask(
    probe: &Path,
    backend: Backend,
    environment: &Environment,
) -> Result<Probed, String> {
    let word = BackendWord::from(backend).to_string();
    let output = Command::new(probe)
        .arg(word)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} does not run: {error}", probe.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    // A probe that falls over before it speaks: the loader's words are all there is.
    said.lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            format!("the probe ended with {}: {words}", output.status)
        })
}
