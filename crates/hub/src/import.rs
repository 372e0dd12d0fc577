//! A data set from the hub into a database, once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burn_dataset::{HuggingfaceDatasetLoader, ImporterError};

use crate::{Database, HubError};

/// A data set that is wanted.
#[derive(Debug, Clone)]
pub struct Import {
    /// What the hub calls it, or a folder that Python can load.
    pub name: String,
    /// Which part of it, if it has several.
    pub subset: Option<String>,
    /// The folder that databases and Python's packages are kept in.
    pub cache: PathBuf,
}

impl Import {
    /// The database: kept from an earlier time, or loaded from the hub.
    ///
    /// # Errors
    ///
    /// What [`HubError`] has for Python, its packages, the hub and files.
    pub fn run(&self) -> Result<Database, HubError> {
        let kept = self.kept();
        // A folder is not kept: what is in it may change.
        let is_kept = || kept.is_file() && !Path::new(&self.name).exists();
        if is_kept() {
            return Ok(Database::new(kept));
        }
        let workshop = self.cache.join("import");
        fs::create_dir_all(&workshop).map_err(HubError::write(&workshop))?;
        // burn-dataset takes any database of the right name for a whole one. While this is
        // ours nobody else writes one there, so those that are there were left half-way.
        let lock = workshop.join("lock");
        let file = File::create(&lock).map_err(HubError::write(&lock))?;
        file.lock().map_err(HubError::write(&lock))?;
        if is_kept() {
            return Ok(Database::new(kept));
        }
        remove_leftovers(&workshop).map_err(HubError::write(&workshop))?;

        let made = self.loader(&workshop).db_file();
        let made = made.map_err(|error| self.explain(error, &workshop))?;
        fs::rename(made, &kept).map_err(HubError::write(&kept))?;
        Ok(Database::new(kept))
    }

    /// Where the database is kept. Two data sets never share a name there.
    fn kept(&self) -> PathBuf {
        let subset = self
            .subset
            .iter()
            .map(|subset| format!("@{}", plain(subset)));
        let name = plain(&self.name) + &subset.collect::<String>();
        self.cache.join(name + ".db")
    }

    fn loader(&self, workshop: &Path) -> HuggingfaceDatasetLoader {
        let loader = HuggingfaceDatasetLoader::new(&self.name)
            .with_base_dir(&workshop.display().to_string());
        match &self.subset {
            Some(subset) => loader.with_subset(subset),
            None => loader,
        }
    }

    fn explain(&self, error: ImporterError, workshop: &Path) -> HubError {
        let venv = workshop.join("venv");
        let packages = |why: String| HubError::Packages {
            folder: venv.clone(),
            why,
        };
        match error {
            ImporterError::PythonNotInstalled => HubError::NoPython,
            ImporterError::VenvNotInitialized => packages("python -m venv failed".to_owned()),
            ImporterError::FailToDownloadPythonDependencies(why) => packages(why),
            // It does not look whether pip installed anything.
            ImporterError::Unknown(_) if !has_packages(&venv) => {
                packages("pip install failed; its own words are above".to_owned())
            }
            ImporterError::Unknown(why) => HubError::Load {
                name: match &self.subset {
                    Some(subset) => format!("{} with subset {subset}", self.name),
                    None => self.name.clone(),
                },
                why,
            },
            ImporterError::SqliteDataset(error) => HubError::Database {
                path: workshop.to_owned(),
                why: error.to_string(),
            },
        }
    }
}

/// A name as a file may have it: other characters as their bytes.
fn plain(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02x}"),
    };
    name.bytes().map(byte).collect()
}

fn remove_leftovers(workshop: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(workshop)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // With them goes what a database engine puts beside its file.
        if path.is_file() && (name.ends_with(".db") || name.contains(".db-")) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether Python has what the import needs.
fn has_packages(venv: &Path) -> bool {
    let python = if cfg!(windows) {
        "Scripts/python"
    } else {
        "bin/python3"
    };
    Command::new(venv.join(python))
        .args(["-c", "import datasets, pyarrow, sqlalchemy"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_databases_have_names_of_their_own() {
        let kept = |name: &str, subset: Option<&str>| {
            let import = Import {
                name: name.to_owned(),
                subset: subset.map(str::to_owned),
                cache: PathBuf::from("c"),
            };
            import.kept().display().to_string()
        };
        assert_eq!(
            kept("bentrevett/multi30k", None),
            "c/bentrevett%2fmulti30k.db"
        );
        assert_eq!(kept("glue", Some("sst2")), "c/glue@sst2.db");
        assert_ne!(kept("glue@sst2", None), kept("glue", Some("sst2")));
        assert_ne!(kept("a/b", None), kept("ab", None));
    }
}
