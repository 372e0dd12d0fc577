//! `cargo xtask doctor`: what this machine has, what is missing, and how to get it.
//!
//! Whether a backend can be compiled is looked up; whether it starts is asked of
//! a program that links it. Every build of the tests leaves such a program
//! behind, and `--build` makes one.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::{Deserialize, Serialize};
use zoo_words::{Backend, BackendWord};

use crate::backends::{Backends, Environment};
use crate::build::{self, Built};
use crate::libtorch::{self, LibTorch};
use crate::{places, vulkan};

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// First build the program that tries the backends of --backend out
    #[arg(long)]
    build: bool,

    #[command(flatten)]
    backends: Backends,
}

/// The program that opens a device and tells what it is.
const PROBE: &str = "zoo-backend";

#[derive(Serialize)]
struct Report {
    toolchain: String,
    cores: usize,
    memory_bytes: Option<u64>,
    target_directory: PathBuf,
    python: Option<String>,
    cxx_compiler: Option<String>,
    vulkan: VulkanReport,
    libtorch: LibTorchReport,
    backends: Vec<BackendReport>,
}

#[derive(Serialize)]
struct VulkanReport {
    loader: bool,
    drivers: Vec<PathBuf>,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct LibTorchReport {
    folder: Option<PathBuf>,
    version: Option<String>,
    source: Option<&'static str>,
    built_with_cuda: Option<bool>,
    /// What the loaded library says; null until a program that links it was built.
    sees_cuda: Option<bool>,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct BackendReport {
    word: &'static str,
    compiles: Verdict,
    starts: Verdict,
    device: Option<String>,
    dtypes: Vec<String>,
    memory_bytes: Option<u64>,
    /// What to do, where something is missing.
    remedy: Option<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Yes,
    No,
    /// Nothing was built that could tell.
    NotTried,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotTried => "not tried",
        }
    }
}

/// What the probe prints.
#[derive(Deserialize)]
struct Probed {
    device: Option<String>,
    #[serde(default)]
    dtypes: Vec<String>,
    memory: Option<u64>,
    error: Option<String>,
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<()> {
        if self.build {
            self.build_probe()?;
        }
        let report = examine();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            report.print();
        }
        Ok(())
    }

    fn build_probe(&self) -> Result<()> {
        let environment = self.backends.prepare()?;
        let features = self.backends.features();
        let joined = features.join(",");
        let arguments = [
            "build",
            "--release",
            "--package",
            PROBE,
            "--features",
            &joined,
        ];
        let (built, _) = build::cargo_build(&arguments, &environment)?;
        keep_probe(&built, &features)
    }
}

/// Keeps the probe among `built` under the features it was built with, since
/// the next build puts another in its place.
pub(crate) fn keep_probe(built: &[Built], features: &[&str]) -> Result<()> {
    let Some(probe) = built
        .iter()
        .find(|built| !built.test && built.kind == "bin" && built.target == PROBE)
    else {
        return Ok(());
    };
    let folder = probes();
    fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let kept = folder.join(features.join("+"));
    let partial = folder.join(".partial");
    fs::copy(&probe.executable, &partial)
        .and_then(|_| fs::rename(&partial, &kept))
        .with_context(|| format!("cannot keep {}", kept.display()))
}

fn probes() -> PathBuf {
    places::target().join("zoo-probes")
}

/// The newest probe that has `backend` compiled in.
fn probe_for(backend: Backend) -> Option<PathBuf> {
    let has = |name: &str, feature: &str| name.split('+').any(|part| part == feature);
    fs::read_dir(probes())
        .ok()?
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // With `vulkan` compiled in, `wgpu` is another backend than alone.
            has(&name, backend.feature()) && (backend != Backend::Wgpu || !has(&name, "vulkan"))
        })
        .max_by_key(|entry| entry.metadata().and_then(|m| m.modified()).ok())
        .map(|entry| entry.path())
}

fn examine() -> Report {
    let cxx_compiler = std::env::var("CXX")
        .ok()
        .into_iter()
        .chain(["c++", "g++", "clang++"].map(str::to_owned))
        .find_map(|name| first_line(&name, &["--version"]));
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
            "wgpu" | "vulkan" if !driver.complete() => {
                report.starts = Verdict::No;
                Some(format!(
                    "{}: {}",
                    driver.missing(),
                    vulkan::Search::remedy()
                ))
            }
            "tch-cpu" | "tch-cuda" => libtorch_lacks(&libtorch, cxx_compiler.is_some())
                .inspect(|_| report.compiles = Verdict::No),
            "cuda" => {
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
    let Some(probe) = probe_for(backend) else {
        return report;
    };
    match ask(&probe, backend, environment) {
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

/// Asks the probe about a backend; an error is what stands in its way.
fn ask(probe: &PathBuf, backend: Backend, environment: &Environment) -> Result<Probed, String> {
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

fn libtorch_lacks(libtorch: &Result<Option<LibTorch>>, compiler: bool) -> Option<String> {
    match libtorch {
        Err(error) => Some(error.to_string()),
        Ok(None) => Some("no LibTorch yet: see below".to_owned()),
        Ok(Some(_)) if !compiler => {
            Some("no C++ compiler for its bindings: apt-get install g++".to_owned())
        }
        Ok(Some(_)) => None,
    }
}

fn libtorch_report(libtorch: &Result<Option<LibTorch>>, sees_cuda: Option<bool>) -> LibTorchReport {
    let found = libtorch.as_ref().ok().and_then(Option::as_ref);
    let remedy = match libtorch {
        Ok(Some(_)) => None,
        Ok(None) => Some(
            "none found; cargo xtask test --backend tch-cpu installs torch==2.9.1 into the cache \
             folder with pip, or set LIBTORCH to one of version 2.9"
                .to_owned(),
        ),
        Err(error) => Some(error.to_string()),
    };
    LibTorchReport {
        folder: found.map(|f| f.folder.clone()),
        version: found.and_then(|f| f.version.clone()),
        source: found.map(|f| f.source.describe()),
        built_with_cuda: found.map(LibTorch::has_cuda_library),
        sees_cuda,
        remedy,
    }
}

impl Report {
    fn print(&self) {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let mut machine = table();
        machine.add_row(["toolchain", &self.toolchain]);
        machine.add_row(["cores", &self.cores.to_string()]);
        machine.add_row(["memory", &size(self.memory_bytes)]);
        machine.add_row([
            "target directory",
            &self.target_directory.display().to_string(),
        ]);
        machine.add_row(["Python", &or_none(&self.python)]);
        machine.add_row(["C++ compiler", &or_none(&self.cxx_compiler)]);
        machine.add_row(["Vulkan", &self.vulkan.describe()]);
        machine.add_row(["LibTorch", &self.libtorch.describe()]);
        println!("{machine}\n");

        let mut backends = table();
        backends.set_header([
            "backend", "compiles", "starts", "device", "dtypes", "memory",
        ]);
        for report in &self.backends {
            backends.add_row([
                report.word,
                report.compiles.word(),
                report.starts.word(),
                report.device.as_deref().unwrap_or("-"),
                &match report.dtypes.as_slice() {
                    [] => "-".to_owned(),
                    dtypes => dtypes.join(" "),
                },
                &size(report.memory_bytes),
            ]);
        }
        println!("{backends}");

        let mut to_do: Vec<(&str, String)> = self
            .backends
            .iter()
            .filter_map(|report| Some((report.word, report.remedy.clone()?)))
            .collect();
        let not_tried: Vec<_> = self
            .backends
            .iter()
            .filter(|report| report.starts == Verdict::NotTried && report.remedy.is_none())
            .map(|report| report.word)
            .collect();
        if !not_tried.is_empty() {
            let words = not_tried.join(",");
            let build = format!("cargo xtask doctor --build --backend WORD tries one of: {words}");
            to_do.push(("not tried", build));
        }
        if !to_do.is_empty() {
            println!("\nwhat is missing, and what to do");
            for (word, remedy) in to_do {
                println!("  {word:<10} {}", remedy.replace('\n', "\n           "));
            }
        }
    }
}

impl VulkanReport {
    fn describe(&self) -> String {
        match (&self.remedy, self.drivers.as_slice()) {
            (Some(remedy), _) => format!("none: {remedy}"),
            (None, []) => "the system's own graphics API".to_owned(),
            (None, drivers) => drivers
                .iter()
                .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
                .collect::<Vec<_>>()
                .join(", "),
        }
    }
}

impl LibTorchReport {
    fn describe(&self) -> String {
        let Some(folder) = &self.folder else {
            return self.remedy.clone().unwrap_or_default();
        };
        let version = self.version.as_deref().unwrap_or("of unknown version");
        let cuda = match (self.sees_cuda, self.built_with_cuda) {
            (Some(true), _) => "sees CUDA",
            (Some(false), Some(true)) => "built with CUDA, sees no device",
            (None, Some(true)) => "built with CUDA, not tried",
            _ => "built without CUDA",
        };
        format!(
            "{version}, {cuda}\n{} ({})",
            folder.display(),
            self.source.unwrap_or_default()
        )
    }
}

fn table() -> Table {
    // Wide enough for a device's name; narrower terminals say so in COLUMNS.
    let width = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .unwrap_or(110);
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    table
}

fn size(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
        None => "-".to_owned(),
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
