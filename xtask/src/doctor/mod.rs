//! `cargo xtask doctor`: what each backend needs, and what is missing on this machine.
//!
//! Whether a backend starts is tested by a program that links it, the probe: it opens a device and
//! describes it. Every build of the tests keeps one, and `--build` builds one.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use zoo_spec::{Backend, BackendId};

use crate::backends::{Backends, Environment};
use crate::{print, program};

pub(crate) const PROBE: &str = "zoo-backend";

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Build a probe first, to check that the backends of --backend can be opened
    #[arg(long)]
    build: bool,

    #[command(flatten)]
    backends: Backends,
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<()> {
        if self.build {
            program::provide(PROBE, &self.backends, &self.backends.prepare()?)?;
        }
        let report = report::examine();
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
        } else {
            print(&report.to_text());
        }
        Ok(())
    }
}

/// The output of the probe.
#[derive(Default, Serialize, Deserialize)]
struct ProbeResult {
    device: Option<String>,
    #[serde(default)]
    dtypes: Vec<String>,
    #[serde(alias = "memory")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing)]
    error: Option<String>,
}

/// The probe with `backend` and the fewest other features, which could prevent it from starting.
fn probe_for(backend: Backend) -> Option<PathBuf> {
    let folders = fs::read_dir(program::copies(PROBE)).ok()?.flatten();
    let named = folders.map(|folder| {
        let name = folder.file_name().to_string_lossy().into_owned();
        let features: Vec<String> = name.split(',').map(str::to_owned).collect();
        (features, folder.path())
    });
    let compiled_in = named.filter(|(features, _)| {
        let has = |feature: &str| features.iter().any(|part| part == feature);
        // With the feature `vulkan`, `wgpu` is a different backend.
        has(backend.feature()) && (backend != Backend::Wgpu || !has("vulkan"))
    });
    let (_, smallest) = compiled_in.min_by_key(|(features, _)| features.len())?;
    Some(
        smallest
            .join(PROBE)
            .with_extension(std::env::consts::EXE_EXTENSION),
    )
}

fn run_probe(probe: &Path, backend: Backend, environment: &Environment) -> ProbeResult {
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
