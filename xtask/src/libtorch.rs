//! LibTorch for the `tch` backends: found, or installed once.
//!
//! In this order: the `LIBTORCH` the user set; a Python whose torch is of the
//! right version; our own copy under the user's cache directory, installed with
//! pip when it is first needed. `LIBTORCH` is then always set for cargo, so that
//! no build script downloads anything by itself.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use zoo_spec::libtorch_version;

use crate::backends::Environment;
use crate::build::{first_line, said};
use crate::places;

/// What tch 0.22 is made for, and what we install.
const SERIES: &str = "2.9";
const VERSION: &str = "2.9.1";

/// Lets the user take responsibility for another version; torch-sys knows it too.
const BYPASS: &str = "LIBTORCH_BYPASS_VERSION_CHECK";

/// The source of our own copy.
const INSTALLED: &str = "installed by cargo xtask";

/// A LibTorch that can be built against and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LibTorch {
    /// The folder that holds `include/` and `lib/`.
    pub(crate) folder: PathBuf,
    /// Its version, where it says one.
    pub(crate) version: Option<String>,
    /// Where it came from, for people.
    pub(crate) source: &'static str,
}

impl LibTorch {
    /// What a build and a run need: where it is, and where its libraries are.
    pub(crate) fn environment(&self) -> Environment {
        let mut libraries = vec![self.folder.join("lib")];
        // A wheel keeps CUDA's libraries beside it, and needs them even on the CPU.
        if let Some(site) = self.folder.parent() {
            let packages = fs::read_dir(site.join("nvidia")).into_iter().flatten();
            libraries.extend(packages.flatten().map(|p| p.path().join("lib")));
        }
        let variable = if cfg!(target_os = "macos") {
            "DYLD_LIBRARY_PATH"
        } else {
            "LD_LIBRARY_PATH"
        };
        if let Some(already) = std::env::var_os(variable) {
            libraries.extend(std::env::split_paths(&already));
        }
        let libraries = std::env::join_paths(libraries).unwrap_or_default();
        vec![
            ("LIBTORCH", self.folder.clone().into_os_string()),
            // We checked the version; torch-sys would insist on 2.9.0 to the digit.
            (BYPASS, OsString::from("1")),
            (variable, libraries),
        ]
    }

    /// Whether it was built with CUDA.
    pub(crate) fn has_cuda_library(&self) -> bool {
        self.folder.join("lib/libtorch_cuda.so").exists()
    }

    /// The LibTorch in `folder`, if one is there.
    fn at(folder: &Path, source: &'static str) -> Option<Self> {
        let library = ["so", "dylib"]
            .iter()
            .any(|e| folder.join(format!("lib/libtorch_cpu.{e}")).exists());
        (library && folder.join("include/torch").exists()).then(|| Self {
            folder: folder.to_owned(),
            version: libtorch_version(folder),
            source,
        })
    }

    fn is_right_version(&self) -> bool {
        self.version
            .as_deref()
            .is_none_or(|version| version.starts_with(&format!("{SERIES}.")))
    }
}

/// The LibTorch that would be used, without installing anything. A `LIBTORCH` of the user's that
/// cannot be used is an error.
pub(crate) fn find() -> Result<Option<LibTorch>> {
    if let Some(folder) = std::env::var_os("LIBTORCH").filter(|value| !value.is_empty()) {
        return users(Path::new(&folder), std::env::var_os(BYPASS).is_some()).map(Some);
    }
    if let Some(found) = pythons().filter(LibTorch::is_right_version) {
        return Ok(Some(found));
    }
    Ok(LibTorch::at(&private()?.join("torch"), INSTALLED))
}

fn users(folder: &Path, any_version: bool) -> Result<LibTorch> {
    // A build script would count a relative path from its own package.
    let folder = &std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let Some(found) = LibTorch::at(folder, "LIBTORCH") else {
        bail!(
            "LIBTORCH is set to {}, which holds no LibTorch (no include/torch, no lib/libtorch_cpu)\n  \
             do: set it to the folder that does, or unset it and cargo xtask provides one",
            folder.display()
        );
    };
    if !found.is_right_version() && !any_version {
        bail!(
            "LIBTORCH is set to {}, version {}, and tch 0.22 is made for {SERIES}\n  \
             do: set it to a LibTorch {SERIES}, unset it and cargo xtask provides one, or set \
             {BYPASS}=1 to try this one",
            folder.display(),
            found.version.unwrap_or_default()
        );
    }
    Ok(found)
}

/// Asks where torch is without importing it, which would take seconds.
const WHERE_IS_TORCH: &str = "import importlib.util as u; s = u.find_spec('torch'); \
                              print(s.submodule_search_locations[0] if s else '')";

fn pythons() -> Option<LibTorch> {
    let folder = said(python()?, &["-c", WHERE_IS_TORCH])?;
    // Without a torch it prints an empty line.
    LibTorch::at(Path::new(&folder), "Python's torch").filter(|_| !folder.is_empty())
}

/// The Python on the path, if it runs.
pub(crate) fn python() -> Option<&'static str> {
    let is_new_enough = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
    let mut names = ["python3", "python"].into_iter();
    names.find(|name| said(name, &is_new_enough).is_some())
}

/// The C++ compiler that LibTorch's bindings are compiled with, as it names itself.
pub(crate) fn cxx_compiler() -> Option<String> {
    let users = std::env::var("CXX").ok();
    let names = ["c++", "g++", "clang++"].map(str::to_owned);
    let mut names = users.into_iter().chain(names);
    names.find_map(|name| first_line(&name, &["--version"]))
}

/// Our own copy's folder, there or not.
fn private() -> Result<PathBuf> {
    Ok(places::cache()?.join("libtorch").join(VERSION))
}

/// The LibTorch to use, installed first if there is none. If that fails, the error says in which
/// three ways one can be provided.
pub(crate) fn provide() -> Result<LibTorch> {
    if cxx_compiler().is_none() {
        bail!(
            "the tch backends need a C++ compiler for LibTorch's bindings\n  do: apt-get install g++"
        );
    }
    if let Some(found) = find()? {
        return Ok(found);
    }
    let home = private()?;
    install(&home).with_context(|| {
        format!(
            "LibTorch {SERIES} is needed for the tch backends, and could be neither found nor installed\n  \
             provide one of these:\n    \
             1. LIBTORCH=/path/to/libtorch, a folder with include/ and lib/, version {SERIES}\n    \
             2. a Python whose torch is version {SERIES} (pip install torch=={VERSION})\n    \
             3. Python 3.10 or newer with pip, and network: this command then installs it into {}\n  \
             what went wrong",
            home.display()
        )
    })?;
    LibTorch::at(&home.join("torch"), INSTALLED)
        .context("pip installed torch, but it holds no LibTorch")
}

/// Installs torch into `home` with pip, all or nothing: it is put together
/// beside it and renamed when complete, so a killed download is never used.
fn install(home: &Path) -> Result<()> {
    let python = python().context("there is no Python 3.10 or newer on the PATH")?;
    let parent = home.parent().context("the cache folder has no parent")?;
    fs::create_dir_all(parent)
        .with_context(|| format!("cannot create the folder {}", parent.display()))?;

    // One installation at a time; the lock goes with the process, however it ends.
    let lock = File::create(parent.join(".lock"))
        .with_context(|| format!("cannot write to {}", parent.display()))?;
    lock.lock().context("cannot lock the LibTorch folder")?;
    if home.exists() {
        return Ok(()); // another process was first
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
        // An option only newer pips know; as a variable, older ones ignore it.
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .arg("--target")
        .arg(&partial)
        .arg(format!("torch=={VERSION}"))
        .stdin(Stdio::null())
        // Progress is no result: stdout may be somebody's JSON.
        .stdout(std::io::stderr())
        .status()
        .context("pip could not be started")?;
    if !status.success() {
        bail!("pip install torch=={VERSION} failed; its own message is above");
    }
    fs::rename(&partial, home)
        .with_context(|| format!("cannot move the finished install to {}", home.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a LibTorch, with this in one of its files.
    fn pretend(file: &str, text: &str) -> tempfile::TempDir {
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
    fn the_users_libtorch_is_taken_if_it_is_one() {
        let right = pretend("build-version", "2.9.0+cpu\n");
        let found = users(right.path(), false).expect("a LibTorch 2.9");
        assert_eq!(found.version.as_deref(), Some("2.9.0+cpu"));

        let newer = pretend("build-version", "2.11.0");
        let none = "LIBTORCH is set to /nowhere, which holds no LibTorch";
        let another = "version 2.11.0, and tch 0.22 is made for 2.9";
        for (folder, says) in [
            (Path::new("/nowhere"), [none, ""]),
            (newer.path(), [another, BYPASS]),
        ] {
            let error = users(folder, false).unwrap_err().to_string();
            assert!(says.iter().all(|part| error.contains(part)), "{error}");
        }
        // The user takes responsibility.
        assert!(users(newer.path(), true).is_ok());
    }

    #[test]
    fn a_wheel_tells_its_version() {
        let text = "__all__ = ['__version__']\n__version__ = '2.9.1+cu128'\n";
        let version = libtorch_version(pretend("version.py", text).path());
        assert_eq!(version.as_deref(), Some("2.9.1+cu128"));
    }
}
