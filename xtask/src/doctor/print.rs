//! The report as tables.

use comfy_table::{ContentArrangement, Table, presets};

use super::report::{LibTorchReport, Report, Verdict, VulkanReport};

impl Report {
    pub(super) fn print(&self) {
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
