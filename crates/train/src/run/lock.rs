//! One process learns in a folder at a time.

use std::fs::{File, TryLockError};
use std::io::{Seek, Write};
use std::path::Path;

use crate::TrainError;

/// The file that is locked. It stays when nobody has it any more: one that is removed could be
/// locked by two, each by a file of the same name.
pub(super) const LOCK: &str = "lock";

/// The folder of a run, taken. The system gives it back with the file, also for a process that
/// was killed.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes a folder that is there.
    ///
    /// # Errors
    ///
    /// [`TrainError::InUse`] if another has it.
    pub(crate) fn take(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(LOCK);
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(TrainError::file(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(TrainError::InUse {
                    folder: folder.into(),
                    process: holder(&path),
                });
            }
            // A disk that has no locks, such as many of a network, which say so in many ways: a
            // run is worth more than this.
            Err(TryLockError::Error(_)) => {}
        }
        let id = std::process::id();
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{id}"))
            .map_err(TrainError::file(&path))?;
        Ok(Self { _file: file })
    }
}

/// The process that has it, where the system lets others read that.
fn holder(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time() {
        let name = format!("zoo-lock-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        // What a process left that was killed.
        std::fs::write(folder.join(LOCK), "4000000000\n").unwrap();
        let lock = Lock::take(&folder).unwrap();
        let said = Lock::take(&folder).unwrap_err().to_string();
        assert!(said.contains(&folder.display().to_string()), "{said}");
        if cfg!(unix) {
            let id = std::process::id();
            assert!(said.contains(&format!("process {id}")), "{said}");
        }
        drop(lock);
        Lock::take(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
