//! One process learns in a folder at a time.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::{Result, TrainError, files};

/// The file that is locked. It stays when nobody has it any more: one that is removed could be
/// locked by two, each by a file of the same name.
pub(super) const LOCK: &str = "lock";

/// The folder of a run, taken. The system gives it back with the file, also for a process that
/// was killed.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    /// Why the filesystem took no lock.
    unsupported: Option<io::Error>,
}

impl Lock {
    /// Takes a folder that is there. Fails if another has it, or if the lock fails for another
    /// reason than that the filesystem has none.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(LOCK);
        let mut file = files::open_or_create(&path)?;
        let unsupported = checked(file.try_lock(), &path)?;
        let id = format!("{}\n", std::process::id());
        files::rewrite(&mut file, &path, id.as_bytes())?;
        Ok(Self {
            _file: file,
            unsupported,
        })
    }

    /// What to tell a person about it.
    pub(crate) fn warning(&self) -> Option<String> {
        let error = self.unsupported.as_ref()?;
        Some(format!(
            "warning: this filesystem has no file locks ({error}): nothing stops a second process \
             from training in the same folder"
        ))
    }
}

/// An error that says that the filesystem has no locks; all others fail.
fn checked(locked: Result<(), TryLockError>, path: &Path) -> Result<Option<io::Error>> {
    match locked {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            let folder = path.parent().unwrap_or(path).display();
            // Where the system lets others read it.
            let id = std::fs::read_to_string(path).ok();
            let id = id.and_then(|text| text.trim().parse::<u32>().ok());
            let process = id.map_or("another process".to_owned(), |id| format!("process {id}"));
            Err(TrainError::Refused(format!(
                "{folder} is being trained by {process}, and two would write over each other\n  \
                 do: wait for its end, or stop it; --set run.name=OTHER begins a run beside it"
            )))
        }
        // Many network filesystems: a run is worth more than its lock.
        Err(TryLockError::Error(error)) if is_unsupported(&error) => Ok(Some(error)),
        Err(TryLockError::Error(error)) => Err(TrainError::Refused(format!(
            "{} cannot be locked: {error}\n  do: check the disk and the permissions of the file; \
             --set run.output=FOLDER trains on another disk",
            path.display()
        ))),
    }
}

/// Whether a filesystem says that it has no locks.
fn is_unsupported(error: &io::Error) -> bool {
    // ENOLCK, which has no kind: NFS without its lock service. 524 is the kernel's ENOTSUPP, which
    // NFS and CIFS let through.
    let numbers: &[i32] = match cfg!(target_os = "linux") {
        true => &[37, 524],
        false => &[77],
    };
    files::is_unsupported(error) || error.raw_os_error().is_some_and(|it| numbers.contains(&it))
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

    /// Both were ignored once.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_missing_lock_is_a_warning_and_a_failing_one_an_error() {
        let failed = |number| Err(TryLockError::Error(io::Error::from_raw_os_error(number)));
        let path = Path::new("runs/small/lock");
        // ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL.
        for number in [37, 38, 95, 22] {
            let unsupported = checked(failed(number), path).unwrap();
            assert!(unsupported.is_some(), "{number}");
        }
        // EIO, EBADF, EACCES.
        for number in [5, 9, 13] {
            let error = checked(failed(number), path).unwrap_err().to_string();
            let system = io::Error::from_raw_os_error(number).to_string();
            assert!(
                error.contains("runs/small/lock cannot be locked"),
                "{error}"
            );
            assert!(error.contains(&system), "{error}");
            assert!(error.contains("\n  do: "), "{error}");
        }
        let file = File::create(std::env::temp_dir().join("zoo-lock-warning")).unwrap();
        let mut lock = Lock {
            _file: file,
            unsupported: None,
        };
        assert_eq!(lock.warning(), None);
        lock.unsupported = Some(io::Error::from_raw_os_error(37));
        assert!(lock.warning().unwrap().contains("has no file locks"));
    }
}
