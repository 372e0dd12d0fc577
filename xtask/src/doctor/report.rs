//! What there is to know about this machine.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use zoo_bench_core::machine::Machine;
use zoo_spec::Backend;

use super::probe::{self, Probed};
use crate::backends::Environment;
use crate::build::first_line;
use crate::libtorch::{self, LibTorch};
use crate::places;
use crate::vulkan::{self, Search};

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) toolchain: String,
    pub(super) cores: usize,
    pub(super) memory_bytes: Option<u64>,
    pub(super) target_directory: PathBuf,
    pub(super) python: Option<String>,
    pub(super) cxx_compiler: Option<String>,
    pub(super) vulkan: Search,
    pub(super) libtorch: LibTorchReport,
    pub(super) backends: Vec<BackendReport>,
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
    #[serde(flatten)]
    pub(super) probed: Probed,
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
    let vulkan = vulkan::search();
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
        let lacks = match (report.word, &vulkan.remedy) {
            ("wgpu" | "vulkan", Some(remedy)) if report.starts != Verdict::Yes => {
                report.starts = Verdict::No;
                let remedy = match report.word {
                    "wgpu" => remedy,
                    _ => "a real GPU and its driver",
                };
                Some(format!("{}: {remedy}", vulkan.missing()))
            }
            ("tch-cpu" | "tch-cuda", _) => libtorch_lacks(&libtorch, cxx_compiler.is_some())
                .inspect(|_| report.compiles = Verdict::No),
            ("cuda", _) if report.starts == Verdict::NotTried => {
                report.compiles = Verdict::NotTried;
                let why = "passed through to burn-cuda, which downloads LLVM when it is built";
                Some(why.to_owned())
            }
            _ => None,
        };
        report.remedy = lacks.or(report.remedy.take());
    }
    let on_cuda = backends.iter().find(|report| report.word == "tch-cuda");
    let sees_cuda = on_cuda.and_then(|report| match report.starts {
        Verdict::Yes => Some(true),
        Verdict::No => Some(false),
        Verdict::NotTried => None,
    });
    let machine = Machine::here();

    Report {
        toolchain: first_line("rustc", &["--version"]).unwrap_or_else(|| "no rustc".to_owned()),
        cores: machine.cores,
        memory_bytes: machine.memory_bytes,
        target_directory: places::target(),
        python: libtorch::python().and_then(|python| first_line(python, &["--version"])),
        cxx_compiler,
        vulkan,
        libtorch: libtorch_report(&libtorch, sees_cuda),
        backends,
    }
}

fn backend_report(backend: Backend, environment: &Environment) -> BackendReport {
    let asked = probe::probe_for(backend).map(|probe| probe::ask(&probe, backend, environment));
    let (starts, probed) = match asked {
        None => (Verdict::NotTried, Probed::default()),
        Some(Ok(probed)) if probed.error.is_none() => (Verdict::Yes, probed),
        Some(Ok(probed)) => (Verdict::No, probed),
        Some(Err(error)) => {
            let error = Some(error);
            let probed = Probed {
                error,
                ..Probed::default()
            };
            (Verdict::No, probed)
        }
    };
    BackendReport {
        word: backend.word(),
        compiles: Verdict::Yes,
        starts,
        remedy: probed.error.clone(),
        probed,
    }
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
