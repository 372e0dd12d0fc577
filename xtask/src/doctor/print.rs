//! The report as tables.

use std::fmt::Write;

use comfy_table::{ContentArrangement, Table, presets};

use super::report::{LibTorchReport, Report, Verdict};
use crate::vulkan::Search;

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
