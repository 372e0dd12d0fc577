//! The report of `cargo xtask doctor`.

use std::fmt::Write;
use std::path::PathBuf;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use zoo_bench_core::machine::Machine;
use zoo_spec::Backend;

use super::ProbeResult;
use crate::backends::Environment;
use crate::build::first_line;
use crate::libtorch::{self, LibTorch};
use crate::paths;
use crate::vulkan::{self, Search};

#[derive(Serialize)]
pub(super) struct Report {
    toolchain: String,
    cores: usize,
    memory_bytes: Option<u64>,
    target_directory: PathBuf,
    python: Option<String>,
    cxx_compiler: Option<String>,
    vulkan: Search,
    libtorch: LibTorchReport,
    backends: Vec<BackendReport>,
}

#[derive(Serialize)]
struct LibTorchReport {
    folder: Option<PathBuf>,
    version: Option<String>,
    source: Option<&'static str>,
    built_with_cuda: Option<bool>,
    /// As reported by the library; null until a probe with LibTorch is built.
    sees_cuda: Option<bool>,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct BackendReport {
    name: &'static str,
    compiles: Verdict,
    starts: Verdict,
    #[serde(flatten)]
    probe: ProbeResult,
    /// What to do if something is missing.
    remedy: Option<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Yes,
    No,
    /// There is no probe for it.
    NotTested,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotTested => "not tested",
        }
    }
}

const NO_LIBTORCH: &str = "not found; cargo xtask test --backend tch-cpu installs torch==2.9.1 \
                           into the cache folder with pip, or set LIBTORCH to a version 2.9";

pub(super) fn examine() -> Report {
    let cxx_compiler = libtorch::cxx_compiler();
    let vulkan = vulkan::search();
    let libtorch = libtorch::find();
    let found = libtorch.as_ref().ok().and_then(Option::as_ref);
    let environment = found.map(LibTorch::environment).unwrap_or_default();
    let missing_libtorch = match (&libtorch, found) {
        (Err(error), _) => Some(error.to_string()),
        (_, None) => Some(NO_LIBTORCH.to_owned()),
        _ => None,
    };

    let mut backends: Vec<BackendReport> = Backend::ALL
        .into_iter()
        // `tch` is an alias of `tch-cpu` or `tch-cuda`.
        .filter(|&backend| backend != Backend::Tch)
        .map(|backend| backend_report(backend, &environment))
        .collect();
    for report in &mut backends {
        let missing = match (report.name, &vulkan.remedy) {
            ("wgpu" | "vulkan", Some(remedy)) if report.starts != Verdict::Yes => {
                report.starts = Verdict::No;
                let remedy = match report.name {
                    "wgpu" => remedy,
                    _ => "install a GPU and its driver",
                };
                Some(format!("{}: {remedy}", vulkan.missing()))
            }
            ("tch-cpu" | "tch-cuda", _) => {
                let no_compiler = || "no C++ compiler: apt-get install g++".to_owned();
                let compiler = cxx_compiler.is_none().then(no_compiler);
                let missing = missing_libtorch.clone().or(compiler);
                missing.inspect(|_| report.compiles = Verdict::No)
            }
            ("cuda", _) if report.starts == Verdict::NotTested => {
                report.compiles = Verdict::NotTested;
                let why = "not built by default: burn-cuda downloads LLVM at build time";
                Some(why.to_owned())
            }
            _ => None,
        };
        report.remedy = missing.or(report.remedy.take());
    }
    let on_cuda = backends.iter().find(|report| report.name == "tch-cuda");
    let sees_cuda = on_cuda.and_then(|report| match report.starts {
        Verdict::Yes => Some(true),
        Verdict::No => Some(false),
        Verdict::NotTested => None,
    });
    let machine = Machine::detect();

    Report {
        toolchain: first_line("rustc", &["--version"]).unwrap_or_else(|| "none".to_owned()),
        cores: machine.cores,
        memory_bytes: machine.memory_bytes,
        target_directory: paths::target(),
        python: libtorch::python().and_then(|python| first_line(python, &["--version"])),
        cxx_compiler,
        vulkan,
        libtorch: LibTorchReport {
            folder: found.map(|found| found.folder.clone()),
            version: found.and_then(|found| found.version.clone()),
            source: found.map(|found| found.source),
            built_with_cuda: found.map(LibTorch::has_cuda_library),
            sees_cuda,
            remedy: missing_libtorch,
        },
        backends,
    }
}

fn backend_report(backend: Backend, environment: &Environment) -> BackendReport {
    let probe = super::probe_for(backend);
    let result = probe.map(|probe| super::run_probe(&probe, backend, environment));
    let starts = match &result {
        None => Verdict::NotTested,
        Some(result) if result.error.is_none() => Verdict::Yes,
        Some(_) => Verdict::No,
    };
    let probe = result.unwrap_or_default();
    BackendReport {
        name: backend.name(),
        compiles: Verdict::Yes,
        starts,
        remedy: probe.error.clone(),
        probe,
    }
}

impl Report {
    pub(super) fn to_text(&self) -> String {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let mut machine = table();
        let target = self.target_directory.display().to_string();
        machine.add_rows([
            ["toolchain", &self.toolchain],
            ["cores", &self.cores.to_string()],
            ["memory", &size(self.memory_bytes)],
            ["target directory", &target],
            ["Python", &or_none(&self.python)],
            ["C++ compiler", &or_none(&self.cxx_compiler)],
            ["Vulkan", &self.vulkan.describe()],
            ["LibTorch", &self.libtorch.describe()],
        ]);
        let mut backends = table();
        let header = "backend compiles starts device dtypes memory";
        backends.set_header(header.split(' '));
        let (mut remedies, mut not_tested) = (Vec::new(), Vec::new());
        for report in &self.backends {
            let probe = &report.probe;
            let dtypes = match probe.dtypes.as_slice() {
                [] => "-".to_owned(),
                dtypes => dtypes.join(" "),
            };
            backends.add_row([
                report.name,
                report.compiles.name(),
                report.starts.name(),
                probe.device.as_deref().unwrap_or("-"),
                &dtypes,
                &size(probe.memory_bytes),
            ]);
            match &report.remedy {
                Some(remedy) => remedies.push((report.name, remedy.clone())),
                None if report.starts == Verdict::NotTested => not_tested.push(report.name),
                None => {}
            }
        }
        if !not_tested.is_empty() {
            let build = "cargo xtask doctor --build --backend NAME tests one of";
            remedies.push(("not tested", format!("{build}: {}", not_tested.join(","))));
        }
        let mut text = format!("{machine}\n\n{backends}\n");
        if !remedies.is_empty() {
            text.push_str("\nmissing\n");
        }
        for (name, remedy) in remedies {
            let remedy = remedy.replace('\n', "\n           ");
            let _ = writeln!(text, "  {name:<10} {remedy}");
        }
        text
    }
}

impl Search {
    fn describe(&self) -> String {
        match (&self.remedy, self.drivers.as_slice()) {
            (Some(remedy), _) => format!("none: {remedy}"),
            (None, []) => "the system's graphics API".to_owned(),
            (None, drivers) => {
                let names = drivers.iter().filter_map(|path| path.file_stem());
                let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
                names.join(", ")
            }
        }
    }
}

impl LibTorchReport {
    fn describe(&self) -> String {
        let Some(folder) = &self.folder else {
            return self.remedy.clone().unwrap_or_default();
        };
        let version = self.version.as_deref().unwrap_or("unknown version");
        let cuda = match (self.sees_cuda, self.built_with_cuda) {
            (Some(true), _) => "CUDA available",
            (Some(false), Some(true)) => "built with CUDA, no device found",
            (None, Some(true)) => "built with CUDA, not tested",
            _ => "built without CUDA",
        };
        let source = self.source.unwrap_or_default();
        format!("{version}, {cuda}\n{} ({source})", folder.display())
    }
}

fn table() -> Table {
    let columns = std::env::var("COLUMNS").ok();
    let width = columns.and_then(|columns| columns.parse().ok());
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        // The default is wide enough for device names.
        .set_width(width.unwrap_or(110));
    table
}

fn size(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
        None => "-".to_owned(),
    }
}
