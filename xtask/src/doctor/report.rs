//! What there is to know about this machine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use serde::Serialize;
use zoo_spec::Backend;

use super::probe::{self, Probed};
use crate::backends::Environment;
use crate::libtorch::{self, LibTorch};
use crate::{places, vulkan};

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) toolchain: String,
    pub(super) cores: usize,
    pub(super) memory_bytes: Option<u64>,
    pub(super) target_directory: PathBuf,
    pub(super) python: Option<String>,
    pub(super) cxx_compiler: Option<String>,
    pub(super) vulkan: VulkanReport,
    pub(super) libtorch: LibTorchReport,
    pub(super) backends: Vec<BackendReport>,
}

#[derive(Serialize)]
pub(super) struct VulkanReport {
    pub(super) loader: bool,
    pub(super) drivers: Vec<PathBuf>,
    pub(super) remedy: Option<String>,
}

#[derive(Serialize)]
pub(super) struct LibTorchReport {
    pub(super) folder: Option<PathBuf>,
    pub(super) version: Option<String>,
    pub(super) source: Option<&'static str>,
    pub(super) built_with_cuda: Option<bool>,
    /// What the loaded library says; null until a program that links it was built.
    pub(super) sees_cuda: Option<bool>,
    pub(super) remedy: Option<String>,
}

#[derive(Serialize)]
pub(super) struct BackendReport {
    pub(super) word: &'static str,
    pub(super) compiles: Verdict,
    pub(super) starts: Verdict,
    pub(super) device: Option<String>,
    pub(super) dtypes: Vec<String>,
    pub(super) memory_bytes: Option<u64>,
    /// What to do, where something is missing.
    pub(super) remedy: Option<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Yes,
    No,
    /// Nothing was built that could tell.
    NotTried,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotTried => "not tried",
        }
    }
}

pub(super) fn examine() -> Report {
    let cxx_compiler = libtorch::cxx_compiler();
    let driver = vulkan::search();
    let libtorch = libtorch::find();
    let environment = match &libtorch {
        Ok(Some(found)) => found.environment(),
        _ => Environment::new(),
    };

    let mut backends: Vec<BackendReport> = Backend::ALL
        .into_iter()
        // `tch` is one of the two after it.
        .filter(|&backend| backend != Backend::Tch)
        .map(|backend| backend_report(backend, &environment))
        .collect();
    for report in &mut backends {
        let lacks = match report.word {
            "wgpu" | "vulkan" if !driver.complete() && report.starts != Verdict::Yes => {
                report.starts = Verdict::No;
                let remedy = match report.word {
                    "wgpu" => vulkan::Search::remedy(),
                    _ => "a real GPU and its driver".to_owned(),
                };
                Some(format!("{}: {remedy}", driver.missing()))
            }
            "tch-cpu" | "tch-cuda" => libtorch_lacks(&libtorch, cxx_compiler.is_some())
                .inspect(|_| report.compiles = Verdict::No),
            "cuda" if report.starts == Verdict::NotTried => {
                report.compiles = Verdict::NotTried;
                Some(
                    "passed through to burn-cuda, which downloads LLVM when it is built".to_owned(),
                )
            }
            _ => None,
        };
        report.remedy = lacks.or(report.remedy.take());
    }
    let sees_cuda = backends
        .iter()
        .find(|report| report.word == "tch-cuda")
        .and_then(|report| match report.starts {
            Verdict::Yes => Some(true),
            Verdict::No => Some(false),
            Verdict::NotTried => None,
        });

    Report {
        toolchain: first_line("rustc", &["--version"]).unwrap_or_else(|| "no rustc".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory(),
        target_directory: places::target(),
        python: libtorch::python().and_then(|python| first_line(python, &["--version"])),
        cxx_compiler,
        vulkan: VulkanReport {
            remedy: (!driver.complete()).then(vulkan::Search::remedy),
            loader: driver.loader,
            drivers: driver.drivers,
        },
        libtorch: libtorch_report(&libtorch, sees_cuda),
        backends,
    }
}

fn backend_report(backend: Backend, environment: &Environment) -> BackendReport {
    let mut report = BackendReport {
        word: backend.word(),
        compiles: Verdict::Yes,
        starts: Verdict::NotTried,
        device: None,
        dtypes: Vec::new(),
        memory_bytes: None,
        remedy: None,
    };
    let Some(probe) = probe::probe_for(backend) else {
        return report;
    };
    match probe::ask(&probe, backend, environment) {
        Ok(Probed {
            error: Some(error), ..
        })
        | Err(error) => {
            report.starts = Verdict::No;
            report.remedy = Some(error);
        }
        Ok(probed) => {
            report.starts = Verdict::Yes;
            report.device = probed.device;
            report.dtypes = probed.dtypes;
            report.memory_bytes = probed.memory;
        }
    }
    report
}

const NO_LIBTORCH: &str = "none found; cargo xtask test --backend tch-cpu installs torch==2.9.1 \
                           into the cache folder with pip, or set LIBTORCH to one of version 2.9";

fn libtorch_lacks(libtorch: &Result<Option<LibTorch>>, compiler: bool) -> Option<String> {
    match libtorch {
        Err(error) => Some(error.to_string()),
        Ok(None) => Some(NO_LIBTORCH.to_owned()),
        Ok(Some(_)) if !compiler => {
            Some("no C++ compiler for its bindings: apt-get install g++".to_owned())
        }
        Ok(Some(_)) => None,
    }
}

fn libtorch_report(libtorch: &Result<Option<LibTorch>>, sees_cuda: Option<bool>) -> LibTorchReport {
    let found = libtorch.as_ref().ok().and_then(Option::as_ref);
    LibTorchReport {
        folder: found.map(|f| f.folder.clone()),
        version: found.and_then(|f| f.version.clone()),
        source: found.map(|f| f.source.describe()),
        built_with_cuda: found.map(LibTorch::has_cuda_library),
        sees_cuda,
        remedy: libtorch_lacks(libtorch, true),
    }
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned)
}

fn memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
