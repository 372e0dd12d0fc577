//! LibTorch for the `tch` backends.
//!
//! Searched in this order: the environment variable `LIBTORCH`; the torch package of Python, if its
//! version matches; a private copy in the user's cache directory, installed with pip on first use.
//! `LIBTORCH` is always set for cargo, so that no build script downloads anything.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use zoo_spec::libtorch_version;

use crate::backends::Environment;
use crate::build::{first_line, stdout_of};
use crate::paths;

/// The version required by tch 0.22, and the one to install.
const SERIES: &str = "2.9";
const VERSION: &str = "2.9.1";

/// Allows other versions; also read by torch-sys.
const BYPASS: &str = "LIBTORCH_BYPASS_VERSION_CHECK";

/// The source of the private copy.
const INSTALLED: &str = "installed by cargo xtask";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LibTorch {
    /// Folder with `include/` and `lib/`.
    pub(crate) folder: PathBuf,
    pub(crate) version: Option<String>,
    pub(crate) source: &'static str,
}

impl LibTorch {
    pub(crate) fn environment(&self) -> Environment {
        let mut libraries = vec![self.folder.join("lib")];
        // A wheel has CUDA libraries in sibling packages, and needs them even on the CPU.
        if let Some(site) = self.folder.parent() {
            let packages = fs::read_dir(site.join("nvidia")).into_iter().flatten();
            libraries.extend(packages.flatten().map(|p| p.path().join("lib")));
        }
        let variable = if cfg!(target_os = "macos") {
            "DYLD_LIBRARY_PATH"
        } else {
            "LD_LIBRARY_PATH"
        };
        if let Some(paths) = std::env::var_os(variable) {
            libraries.extend(std::env::split_paths(&paths));
        }
        let libraries = std::env::join_paths(libraries).unwrap_or_default();
        vec![
            ("LIBTORCH", self.folder.clone().into_os_string()),
            // The version was checked already; torch-sys would require exactly 2.9.0.
            (BYPASS, OsString::from("1")),
            (variable, libraries),
        ]
    }

    pub(crate) fn has_cuda_library(&self) -> bool {
        self.folder.join("lib/libtorch_cuda.so").exists()
    }

    fn in_folder(folder: &Path, source: &'static str) -> Option<Self> {
        let library = ["so", "dylib"]
            .iter()
            .any(|e| folder.join(format!("lib/libtorch_cpu.{e}")).exists());
        (library && folder.join("include/torch").exists()).then(|| Self {
            folder: folder.to_owned(),
            version: libtorch_version(folder),
            source,
        })
    }

    fn is_supported_version(&self) -> bool {
        let version = self.version.as_deref();
        version.is_none_or(|version| version.starts_with(&format!("{SERIES}.")))
    }
}

/// Finds LibTorch without installing anything. An unusable `LIBTORCH` is an error.
pub(crate) fn find() -> Result<Option<LibTorch>> {
    if let Some(folder) = std::env::var_os("LIBTORCH").filter(|value| !value.is_empty()) {
        return from_variable(Path::new(&folder), std::env::var_os(BYPASS).is_some()).map(Some);
    }
    if let Some(found) = from_python().filter(LibTorch::is_supported_version) {
        return Ok(Some(found));
    }
    let private = private_folder()?.join("torch");
    Ok(LibTorch::in_folder(&private, INSTALLED))
}

fn from_variable(folder: &Path, any_version: bool) -> Result<LibTorch> {
    // A build script would resolve a relative path from its own package.
    let folder = &std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let found = LibTorch::in_folder(folder, "LIBTORCH").with_context(|| {
        format!(
            "LIBTORCH is set to {}, which is not LibTorch (no include/torch or lib/libtorch_cpu)\n  \
             help: set it to a LibTorch folder, or unset it to let cargo xtask install one",
            folder.display()
        )
    })?;
    ensure!(
        any_version || found.is_supported_version(),
        "LIBTORCH is set to {}, version {}, but tch 0.22 requires {SERIES}\n  \
         help: set it to a LibTorch {SERIES}, unset it to let cargo xtask install one, or set \
         {BYPASS}=1 to use this one",
        folder.display(),
        found.version.unwrap_or_default()
    );
    Ok(found)
}

/// Prints the folder of torch without importing it, which would take seconds.
const WHERE_IS_TORCH: &str = "import importlib.util as u; s = u.find_spec('torch'); \
                              print(s.submodule_search_locations[0] if s else '')";

fn from_python() -> Option<LibTorch> {
    let folder = stdout_of(python()?, &["-c", WHERE_IS_TORCH])?;
    // The output is empty if torch is not installed.
    LibTorch::in_folder(Path::new(&folder), "Python's torch").filter(|_| !folder.is_empty())
}

/// The Python 3.10 or newer on the PATH, if any.
pub(crate) fn python() -> Option<&'static str> {
    let is_new_enough = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
    let mut names = ["python3", "python"].into_iter();
    names.find(|name| stdout_of(name, &is_new_enough).is_some())
}

/// Version line of the C++ compiler for LibTorch's bindings.
pub(crate) fn cxx_compiler() -> Option<String> {
    let variable = std::env::var("CXX").ok();
    let names = ["c++", "g++", "clang++"].map(str::to_owned);
    let mut names = variable.into_iter().chain(names);
    names.find_map(|name| first_line(&name, &["--version"]))
}

/// Folder of the private copy, which may not exist.
fn private_folder() -> Result<PathBuf> {
    Ok(paths::cache()?.join("libtorch").join(VERSION))
}

/// Finds LibTorch, or installs it. The error lists three ways to provide one.
pub(crate) fn provide() -> Result<LibTorch> {
    ensure!(
        cxx_compiler().is_some(),
        "the tch backends need a C++ compiler for LibTorch's bindings\n  help: apt-get install g++"
    );
    if let Some(found) = find()? {
        return Ok(found);
    }
    let home = private_folder()?;
    install(&home).with_context(|| {
        format!(
            "the tch backends need LibTorch {SERIES}, which was not found and could not be installed\n  \
             help: provide one of these:\n    \
             1. LIBTORCH=/path/to/libtorch, a folder with include/ and lib/, version {SERIES}\n    \
             2. a Python whose torch is version {SERIES} (pip install torch=={VERSION})\n    \
             3. Python 3.10 or newer with pip and network access, to install it into {}\n  \
             cause",
            home.display()
        )
    })?;
    LibTorch::in_folder(&home.join("torch"), INSTALLED)
        .context("the torch installed by pip does not contain LibTorch")
}

/// Installs torch into `home` with pip, atomically: it is installed into a sibling folder and renamed
/// when complete, so an interrupted download is never used.
fn install(home: &Path) -> Result<()> {
    let python = python().context("no Python 3.10 or newer on the PATH")?;
    let parent = home.parent().context("the cache folder has no parent")?;
    fs::create_dir_all(parent)
        .with_context(|| format!("cannot create the folder {}", parent.display()))?;

    // One installation at a time; the lock is released when the process ends.
    let lock = File::create(parent.join(".lock"))
        .with_context(|| format!("cannot write to {}", parent.display()))?;
    lock.lock().context("cannot lock the LibTorch folder")?;
    if home.exists() {
        return Ok(()); // installed by another process
    }
    let partial = parent.join(format!(".{VERSION}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)
            .with_context(|| format!("cannot remove the unfinished {}", partial.display()))?;
    }

    eprintln!(
        "installing torch=={VERSION} into {} (once; about 4 GB to download)",
        home.display()
    );
    let status = Command::new(python)
        .args(["-m", "pip", "install", "--no-warn-script-location"])
        .arg("--disable-pip-version-check")
        // As an option, older versions of pip would reject it.
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .arg("--target")
        .arg(&partial)
        .arg(format!("torch=={VERSION}"))
        .stdin(Stdio::null())
        // Progress goes to stderr: stdout may be JSON.
        .stdout(std::io::stderr())
        .status()
        .context("cannot start pip")?;
    ensure!(
        status.success(),
        "pip install torch=={VERSION} failed (see above)"
    );
    fs::rename(&partial, home)
        .with_context(|| format!("cannot move the finished install to {}", home.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like LibTorch, with one more file.
    fn fake_libtorch(file: &str, text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for inner in ["include/torch", "lib"] {
            fs::create_dir_all(folder.path().join(inner)).expect("a temporary folder");
        }
        for (file, text) in [("lib/libtorch_cpu.so", ""), (file, text)] {
            fs::write(folder.path().join(file), text).expect("a temporary file");
        }
        folder
    }

    #[test]
    fn libtorch_variable_is_validated() {
        let supported = fake_libtorch("build-version", "2.9.0+cpu\n");
        let found = from_variable(supported.path(), false).expect("a LibTorch 2.9");
        assert_eq!(found.version.as_deref(), Some("2.9.0+cpu"));

        let wheel = "__all__ = ['__version__']\n__version__ = '2.9.1+cu128'\n";
        let wheel = fake_libtorch("version.py", wheel);
        let found = from_variable(wheel.path(), false).expect("a LibTorch 2.9");
        assert_eq!(found.version.as_deref(), Some("2.9.1+cu128"));

        let error = |folder| from_variable(folder, false).unwrap_err().to_string();
        let missing = error(Path::new("/nowhere"));
        assert!(missing.starts_with("LIBTORCH is set to /nowhere, which is not LibTorch"));
        let newer = fake_libtorch("build-version", "2.11.0");
        let unsupported = error(newer.path());
        for part in ["version 2.11.0, but tch 0.22 requires 2.9", BYPASS] {
            assert!(unsupported.contains(part), "{unsupported}");
        }
        assert!(from_variable(newer.path(), true).is_ok());
    }
}
