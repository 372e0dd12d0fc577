//! What there is to know about this machine, and how it is shown.

use std::fmt::Write;
use std::path::PathBuf;

use comfy_table::{ContentArrangement, Table, presets};
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
    /// What the loaded library says; null until a program that links it was built.
    sees_cuda: Option<bool>,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct BackendReport {
    word: &'static str,
    compiles: Verdict,
    starts: Verdict,
    #[serde(flatten)]
    probed: Probed,
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

const NO_LIBTORCH: &str = "none found; cargo xtask test --backend tch-cpu installs torch==2.9.1 \
                           into the cache folder with pip, or set LIBTORCH to one of version 2.9";

pub(super) fn examine() -> Report {
    let cxx_compiler = libtorch::cxx_compiler();
    let vulkan = vulkan::search();
    let libtorch = libtorch::find();
    let found = libtorch.as_ref().ok().and_then(Option::as_ref);
    let environment = found.map(LibTorch::environment).unwrap_or_default();
    let lacks_libtorch = match (&libtorch, found) {
        (Err(error), _) => Some(error.to_string()),
        (_, None) => Some(NO_LIBTORCH.to_owned()),
        _ => None,
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
            ("tch-cpu" | "tch-cuda", _) => {
                let no_compiler =
                    || "no C++ compiler for its bindings: apt-get install g++".to_owned();
                let compiler = cxx_compiler.is_none().then(no_compiler);
                let lacks = lacks_libtorch.clone().or(compiler);
                lacks.inspect(|_| report.compiles = Verdict::No)
            }
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
    let on_cuda = on_cuda.map(|report| report.starts);
    let sees_cuda = on_cuda.filter(|starts| *starts != Verdict::NotTried);
    let machine = Machine::here();

    Report {
        toolchain: first_line("rustc", &["--version"]).unwrap_or_else(|| "no rustc".to_owned()),
        cores: machine.cores,
        memory_bytes: machine.memory_bytes,
        target_directory: places::target(),
        python: libtorch::python().and_then(|python| first_line(python, &["--version"])),
        cxx_compiler,
        vulkan,
        libtorch: LibTorchReport {
            folder: found.map(|found| found.folder.clone()),
            version: found.and_then(|found| found.version.clone()),
            source: found.map(|found| found.source),
            built_with_cuda: found.map(LibTorch::has_cuda_library),
            sees_cuda: sees_cuda.map(|starts| starts == Verdict::Yes),
            remedy: lacks_libtorch,
        },
        backends,
    }
}

fn backend_report(backend: Backend, environment: &Environment) -> BackendReport {
    let probe = probe::probe_for(backend);
    let probed = probe.map(|probe| probe::ask(&probe, backend, environment));
    let starts = match &probed {
        None => Verdict::NotTried,
        Some(probed) if probed.error.is_none() => Verdict::Yes,
        Some(_) => Verdict::No,
    };
    let probed = probed.unwrap_or_default();
    BackendReport {
        word: backend.word(),
        compiles: Verdict::Yes,
        starts,
        remedy: probed.error.clone(),
        probed,
    }
}

impl Report {
    pub(super) fn print(&self) {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let mut machine = table();
        machine.add_rows([
            ["toolchain", &self.toolchain],
            ["cores", &self.cores.to_string()],
            ["memory", &size(self.memory_bytes)],
            [
                "target directory",
                &self.target_directory.display().to_string(),
            ],
            ["Python", &or_none(&self.python)],
            ["C++ compiler", &or_none(&self.cxx_compiler)],
            ["Vulkan", &self.vulkan.describe()],
            ["LibTorch", &self.libtorch.describe()],
        ]);
        println!("{machine}\n");

        let mut backends = table();
        backends.set_header([
            "backend", "compiles", "starts", "device", "dtypes", "memory",
        ]);
        for report in &self.backends {
            let probed = &report.probed;
            let dtypes = match probed.dtypes.as_slice() {
                [] => "-".to_owned(),
                dtypes => dtypes.join(" "),
            };
            backends.add_row([
                report.word,
                report.compiles.word(),
                report.starts.word(),
                probed.device.as_deref().unwrap_or("-"),
                &dtypes,
                &size(probed.memory_bytes),
            ]);
        }
        println!("{backends}");

        let to_do = self.to_do();
        if !to_do.is_empty() {
            print!("\nwhat is missing, and what to do\n{to_do}");
        }
    }

    fn to_do(&self) -> String {
        let mut text = String::new();
        let mut not_tried = Vec::new();
        let mut add = |word: &str, remedy: &str| {
            let remedy = remedy.replace('\n', "\n           ");
            let _ = writeln!(text, "  {word:<10} {remedy}");
        };
        for report in &self.backends {
            match &report.remedy {
                Some(remedy) => add(report.word, remedy),
                None if report.starts == Verdict::NotTried => not_tried.push(report.word),
                None => {}
            }
        }
        if !not_tried.is_empty() {
            let build = "cargo xtask doctor --build --backend WORD tries one of";
            add("not tried", &format!("{build}: {}", not_tried.join(",")));
        }
        text
    }
}

impl Search {
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
        let source = self.source.unwrap_or_default();
        format!("{version}, {cuda}\n{} ({source})", folder.display())
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
