//! Search for a Vulkan driver for wgpu, and its installation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::build::{run, stdout_of};

/// Debian's software driver; it depends on the loader.
const PACKAGE: &str = "mesa-vulkan-drivers";

#[derive(Serialize)]
pub(crate) struct Search {
    /// Whether the loader, `libvulkan.so.1`, is installed.
    pub(crate) loader: bool,
    pub(crate) drivers: Vec<PathBuf>,
    /// What to do if something is missing.
    pub(crate) remedy: Option<String>,
}

impl Search {
    pub(crate) fn missing(&self) -> &'static str {
        match (self.loader, self.drivers.is_empty()) {
            (false, true) => "no Vulkan loader (libvulkan.so.1) and no Vulkan driver",
            (false, false) => "no Vulkan loader (libvulkan.so.1)",
            (true, true) => "no Vulkan driver",
            (true, false) => "nothing",
        }
    }
}

/// Searches for a loader and drivers like the Vulkan loader.
pub(crate) fn search() -> Search {
    let variables = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].into_iter();
    let mut listed = variables.filter_map(std::env::var_os);
    let mut drivers: Vec<PathBuf> = Vec::new();
    if let Some(paths) = listed.find(|value| !value.is_empty()) {
        drivers.extend(std::env::split_paths(&paths).filter(|path| path.exists()));
    } else {
        for folder in ["/usr/share", "/usr/local/share", "/etc"] {
            let files = entries(&format!("{folder}/vulkan/icd.d")).map(|entry| entry.path());
            drivers.extend(files.filter(|path| path.extension().is_some_and(|e| e == "json")));
        }
    }
    let loader = has_loader();
    // macOS and Windows have their own graphics APIs.
    let complete = !cfg!(target_os = "linux") || (loader && !drivers.is_empty());
    Search {
        loader,
        drivers,
        remedy: (!complete).then(|| {
            format!(
                "apt-get install {PACKAGE} (a software driver, enough for wgpu), or your GPU's \
                 driver"
            )
        }),
    }
}

fn has_loader() -> bool {
    const LOADER: &str = "libvulkan.so.1";
    let on_path = std::env::var_os("LD_LIBRARY_PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|p| p.join(LOADER).exists()));
    let lists_it =
        |ldconfig| stdout_of(ldconfig, &["-p"]).is_some_and(|output| output.contains(LOADER));
    on_path || ["ldconfig", "/sbin/ldconfig"].into_iter().any(lists_it)
}

fn entries(folder: &str) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Whether the machine seems to have a GPU, judging by its device files.
pub(crate) fn has_gpu() -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let named =
        |entry: fs::DirEntry, start: &str| entry.file_name().to_string_lossy().starts_with(start);
    entries("/dev/dri").any(|entry| named(entry, "renderD"))
        || entries("/dev").any(|entry| named(entry, "nvidia"))
}

/// Checks that there is a driver, or installs the software driver if `install` is set.
pub(crate) fn provide(install: bool) -> Result<()> {
    let found = search();
    let Some(remedy) = &found.remedy else {
        return Ok(());
    };
    ensure!(
        install,
        "wgpu needs a Vulkan driver, but this machine has {}\n  help: {remedy}\n  \
         or run this again with --install (Debian, as root)",
        found.missing()
    );
    ensure!(
        Path::new("/usr/bin/apt-get").exists(),
        "--install needs apt-get, which was not found\n  help: install Mesa's Vulkan drivers with \
         your package manager, or your GPU's driver"
    );
    eprintln!("installing {PACKAGE}");
    apt_get("update -qq")?;
    apt_get(&format!("install -y -qq --no-install-recommends {PACKAGE}"))?;
    let found = search();
    let missing = found.missing();
    ensure!(
        found.remedy.is_none(),
        "{PACKAGE} was installed, but there is still {missing}"
    );
    Ok(())
}

fn apt_get(arguments: &str) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .args(arguments.split(' '))
        // Progress goes to stderr: stdout may be JSON.
        .stdout(std::io::stderr())
        .env("DEBIAN_FRONTEND", "noninteractive");
    run(&mut command).context("apt-get failed; it needs root")
}
