//! File lock of a run folder: one process trains in it at a time.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::{Result, TrainError, files};

/// The locked file. It is never removed: two processes could then each lock a file of this name.
pub(super) const LOCK: &str = "lock";

/// A locked run folder. The system releases the lock with the file, even if the process is killed.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    /// The error of a filesystem without locks.
    unsupported: Option<io::Error>,
}

impl Lock {
    /// Locks an existing folder. Fails if another process holds the lock, but not if the filesystem
    /// has no locks.
    pub(crate) fn acquire(folder: &Path) -> Result<Self> {
        let path = folder.join(LOCK);
        let mut file = files::open_or_create(&path)?;
        let mut locked = file.try_lock();
        if matches!(locked, Err(TryLockError::WouldBlock)) {
            // `is_held` holds the lock for a moment.
            std::thread::sleep(Duration::from_millis(50));
            locked = file.try_lock();
        }
        let unsupported = check_lock(locked, &path)?;
        let id = format!("{}\n", std::process::id());
        files::rewrite(&mut file, &path, id.as_bytes())?;
        Ok(Self {
            _file: file,
            unsupported,
        })
    }

    /// Whether a process is training in the folder; None if that is unknown, as on a filesystem
    /// without locks.
    pub(crate) fn is_held(folder: &Path) -> Option<bool> {
        match File::open(folder.join(LOCK)) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Some(false),
                Err(TryLockError::WouldBlock) => Some(true),
                Err(TryLockError::Error(_)) => None,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }

    pub(crate) fn warning(&self) -> Option<String> {
        let error = self.unsupported.as_ref()?;
        Some(format!(
            "warning: this filesystem has no file locks ({error}): nothing stops a second process \
             from training in the same folder"
        ))
    }
}

/// Returns the error of a filesystem without locks; fails with all others.
fn check_lock(locked: Result<(), TryLockError>, path: &Path) -> Result<Option<io::Error>> {
    match locked {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            let folder = path.parent().unwrap_or(path).display();
            // Some systems do not allow reading a locked file.
            let id = std::fs::read_to_string(path).ok();
            let id = id.and_then(|text| text.trim().parse::<u32>().ok());
            let process = id.map_or("another process".to_owned(), |id| format!("process {id}"));
            Err(TrainError::Refused(format!(
                "{folder} is being trained by {process}\n  help: wait for it or stop it; --name \
                 OTHER starts another run"
            )))
        }
        // Many network filesystems have no locks: train without one.
        Err(TryLockError::Error(error)) if is_unsupported(&error) => Ok(Some(error)),
        Err(TryLockError::Error(error)) => Err(TrainError::Refused(format!(
            "{} cannot be locked: {error}\n  help: check the disk and the permissions of the file; \
             --set run.output=FOLDER trains on another disk",
            path.display()
        ))),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    // ENOLCK, which has no kind: NFS without its lock service. 524 is the kernel's ENOTSUPP, which
    // NFS and CIFS let through.
    let codes: &[i32] = if cfg!(target_os = "linux") {
        &[37, 524]
    } else {
        &[77]
    };
    files::is_unsupported(error) || error.raw_os_error().is_some_and(|it| codes.contains(&it))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::temp_dir::TempDir;

    #[test]
    fn one_process_holds_the_lock() {
        let temp = TempDir::new();
        // Left behind by a killed process.
        temp.write("run/lock", "4000000000\n");
        let folder = temp.join("run");
        let lock = Lock::acquire(&folder).unwrap();
        let error = Lock::acquire(&folder).unwrap_err().to_string();
        assert!(error.contains(&folder.display().to_string()), "{error}");
        assert_eq!(Lock::is_held(&folder), Some(true));
        if cfg!(unix) {
            let id = std::process::id();
            assert!(error.contains(&format!("process {id}")), "{error}");
        }
        drop(lock);
        // A process that another test is starting has the file open, too, until it runs its program.
        let start = Instant::now();
        while Lock::is_held(&folder) == Some(true) && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(Lock::is_held(&folder), Some(false));
        assert_eq!(Lock::is_held(&temp.join("other")), Some(false));
        Lock::acquire(&folder).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_unsupported_lock_is_a_warning_and_a_failed_one_an_error() {
        let failed = |code| Err(TryLockError::Error(io::Error::from_raw_os_error(code)));
        let path = Path::new("runs/small/lock");
        // ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL.
        for code in [37, 38, 95, 22] {
            let unsupported = check_lock(failed(code), path).unwrap();
            assert!(unsupported.is_some(), "{code}");
        }
        // EIO, EBADF, EACCES.
        for code in [5, 9, 13] {
            let error = check_lock(failed(code), path).unwrap_err().to_string();
            let system = io::Error::from_raw_os_error(code);
            let expected = format!("runs/small/lock cannot be locked: {system}\n  help: ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let folder = TempDir::new();
        let mut lock = Lock::acquire(&folder.join("")).unwrap();
        assert_eq!(lock.warning(), None);
        lock.unsupported = Some(io::Error::from_raw_os_error(37));
        assert!(lock.warning().unwrap().contains("has no file locks"));
    }
}
