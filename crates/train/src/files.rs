//! All file system writes of this crate, in one module so that tests can make each one fail
//! ([`faults`]).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use zoo_models::weights::Weights;

use self::faults::check;
use crate::{Result, TrainError};

const PARTIAL: &str = ".partial";
const TEMPORARY: &str = ".tmp";

/// Writes or replaces a file of a run folder, which one process writes at a time. After a crash or
/// a power cut, either the old or the new file is complete.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = with_suffix(path, PARTIAL);
    // Left behind by a killed process.
    if partial.symlink_metadata().is_ok() {
        remove_file(&partial)?;
    }
    let file = create_new(&partial).map_err(TrainError::file(&partial))?;
    replace(file, &partial, path, bytes).map_err(TrainError::file(path))
}

/// Writes to a path given by the user.
///
/// A device, a pipe or a file descriptor (`/dev/stdout`) is written to directly. A regular file is
/// replaced atomically and keeps its permissions; symlinks are followed and kept.
pub(crate) fn write_output(path: &Path, bytes: &[u8]) -> Result<()> {
    write_through_links(path, bytes).map_err(TrainError::file(path))
}

fn write_through_links(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found?),
    };
    let target = match resolve_links(path) {
        Some(target) if found.as_ref().is_none_or(fs::Metadata::is_file) => target,
        // Appending makes no difference for devices, and keeps the content of a redirected file
        // descriptor.
        _ => {
            check("write", path)?;
            let mut file = File::options().append(true).open(path)?;
            return file.write_all(bytes);
        }
    };
    let (partial, file) = loop {
        let partial = temporary(&target);
        match create_new(&partial) {
            // The name is taken by another process or by the user.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            file => break (partial, file?),
        }
    };
    if let Some(found) = found {
        // Before there is any content to protect.
        let restricted = file.set_permissions(found.permissions());
        restricted.inspect_err(|_| drop(fs::remove_file(&partial)))?;
    }
    replace(file, &partial, &target, bytes)
}

/// The target of a chain of symlinks, which need not exist. None for a file descriptor.
fn resolve_links(path: &Path) -> Option<PathBuf> {
    let mut target = path.to_owned();
    while let Ok(link) = fs::read_link(&target) {
        let folder = target.parent().unwrap_or(Path::new(""));
        // `/proc/self/fd/1` looks like a link to a file, but is a file descriptor.
        let is_proc = |folder: PathBuf| folder.starts_with("/proc");
        if folder.canonicalize().is_ok_and(is_proc) {
            return None;
        }
        target = folder.join(link);
    }
    Some(target)
}

/// A temporary file that only this user can read, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct PrivateFile(PathBuf);

impl PrivateFile {
    /// Writes a file whose name starts with `prefix` and ends with `suffix`.
    pub(crate) fn write(prefix: &str, suffix: &str, bytes: &[u8]) -> Result<Self> {
        let folder = std::env::temp_dir();
        let mut options = File::options();
        options.create_new(true).write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        let mut count = 0;
        loop {
            let path = folder.join(format!("{prefix}{}-{count}{suffix}", std::process::id()));
            let file = attempt("create", &path, || match options.open(&path) {
                // The name is taken, perhaps by another user.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                file => file.map(Some),
            })?;
            if let Some(mut file) = file {
                let private = Self(path);
                write(&mut file, &private.0, bytes).map_err(TrainError::file(&private.0))?;
                return Ok(private);
            }
            count += 1;
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = create_new(path).and_then(|file| write_and_sync(file, path, bytes));
    written.map_err(TrainError::file(path))
}

pub(crate) fn write_weights(path: &Path, weights: &Weights) -> Result<()> {
    attempt("write", path, || Ok(()))?;
    weights.write(path)?;
    attempt("sync", path, || Ok(()))
}

/// Writes and syncs weights; an existing file is replaced atomically.
pub(crate) fn replace_weights(path: &Path, weights: &Weights) -> Result<()> {
    attempt("write", path, || Ok(()))?;
    weights.replace(path)?;
    sync_parent(path).map_err(TrainError::file(path))
}

pub(crate) fn create_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    attempt("create", path, || {
        fs::create_dir_all(path).and_then(|()| sync_parent(path))
    })
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    attempt("rename", to, || fs::rename(from, to))
}

/// Renames whatever is at a path to an unused name.
pub(crate) fn set_aside(path: &Path) -> Result<PathBuf> {
    let mut count = 1;
    loop {
        let aside = with_suffix(path, &format!(".aside-{count}"));
        if aside.symlink_metadata().is_err() {
            rename(path, &aside)?;
            return Ok(aside);
        }
        count += 1;
    }
}

/// Removes a file or a symlink, never the symlink's target.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    attempt("remove", path, || fs::remove_file(path))
}

pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    attempt("remove", path, || fs::remove_dir(path))
}

/// Makes created, renamed and removed entries of a folder survive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    sync_folder_io(folder).map_err(TrainError::file(folder))
}

pub(crate) fn open_or_create(path: &Path) -> Result<File> {
    attempt("create", path, || {
        let mut options = File::options();
        options.create(true).truncate(false).write(true).open(path)
    })
}

pub(crate) fn rewrite(file: &mut File, path: &Path, bytes: &[u8]) -> Result<()> {
    let emptied = file.set_len(0).and_then(|()| file.rewind());
    let written = emptied.and_then(|()| write(file, path, bytes));
    written.map_err(TrainError::file(path))
}

/// Runs a file operation, unless a test makes it fail.
fn attempt<T>(operation: &str, path: &Path, change: impl FnOnce() -> io::Result<T>) -> Result<T> {
    let changed = check(operation, path).and_then(|()| change());
    changed.map_err(TrainError::file(path))
}

#[derive(Debug)]
pub(crate) struct Appender {
    file: File,
    path: PathBuf,
}

impl Appender {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = attempt("create", path, || {
            File::options().create(true).append(true).open(path)
        })?;
        let path = path.into();
        Ok(Self { file, path })
    }

    /// Appends text or bytes immediately, so that a process killed afterwards has written them.
    pub(crate) fn append(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        write(&mut self.file, &self.path, bytes.as_ref()).map_err(TrainError::file(&self.path))
    }
}

pub(crate) fn without_suffix(name: &str) -> &str {
    if let Some(name) = name.strip_suffix(PARTIAL) {
        return name;
    }
    // NAME.PROCESS-COUNT.tmp, as `temporary` and Burn's `AtomicFile` name them.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = || {
        let (stem, id) = name.strip_suffix(TEMPORARY)?.rsplit_once('.')?;
        let (process, count) = id.split_once('-')?;
        (is_number(process) && is_number(count)).then_some(stem)
    };
    stem().unwrap_or(name)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A temporary file next to `path`, most likely unused.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    with_suffix(path, &format!(".{}-{count}{TEMPORARY}", std::process::id()))
}

fn create_new(path: &Path) -> io::Result<File> {
    check("create", path)?;
    // Does not follow symlinks.
    File::create_new(path)
}

/// Writes a partial file and renames it when it is complete.
fn replace(file: File, partial: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = write_and_sync(file, partial, bytes)
        .and_then(|()| check("rename", path))
        .and_then(|()| fs::rename(partial, path));
    if written.is_err() {
        // The disk may be full.
        let _ = fs::remove_file(partial);
    }
    written?;
    sync_parent(path)
}

fn write_and_sync(mut file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(&mut file, path, bytes)?;
    check("sync", path)?;
    file.sync_all()
}

fn write(file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Err(error) = check("write", path) {
        // A full disk writes part of the data.
        let _ = file.write_all(&bytes[..bytes.len() / 2]);
        return Err(error);
    }
    file.write_all(bytes)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if folder != Path::new("") => sync_folder_io(folder),
        _ => sync_folder_io(Path::new(".")),
    }
}

fn sync_folder_io(folder: &Path) -> io::Result<()> {
    check("sync", folder)?;
    // Windows cannot sync a folder, and need not.
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder)?.sync_all() {
        // Some network and user-space filesystems cannot either.
        Err(error) if is_unsupported(&error) => Ok(()),
        synced => synced,
    }
}

/// Whether the filesystem does not support the operation: ENOSYS, EOPNOTSUPP, or EINVAL of
/// user-space filesystems.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, Unsupported};
    matches!(error.kind(), Unsupported | InvalidInput)
}

/// File operations that fail on request, for tests.
#[doc(hidden)]
pub mod faults {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The text of injected errors.
    pub const INJECTED: &str = "injected fault";

    static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

    #[derive(Debug)]
    struct Plan {
        within: PathBuf,
        fail_at: Option<usize>,
        operations: Vec<String>,
    }

    /// Records the file operations within a folder until it is dropped, and makes one of them fail.
    #[derive(Debug)]
    pub struct FaultInjection(());

    impl FaultInjection {
        /// Starts recording; operation `fail_at`, counted from 0, fails. One is active at a time.
        pub fn new(within: &Path, fail_at: Option<usize>) -> Self {
            *plan() = Some(Plan {
                within: within.into(),
                fail_at,
                operations: vec![],
            });
            Self(())
        }

        /// The operations so far, as `write PATH`.
        pub fn operations(&self) -> Vec<String> {
            let plan = plan();
            plan.as_ref().map_or(vec![], |plan| plan.operations.clone())
        }
    }

    impl Drop for FaultInjection {
        fn drop(&mut self) {
            *plan() = None;
        }
    }

    fn plan() -> MutexGuard<'static, Option<Plan>> {
        PLAN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an operation; an error if it is the one that fails.
    pub(super) fn check(operation: &str, path: &Path) -> io::Result<()> {
        let mut plan = plan();
        let Some(plan) = plan.as_mut().filter(|plan| path.starts_with(&plan.within)) else {
            return Ok(());
        };
        let index = plan.operations.len();
        plan.operations
            .push(format!("{operation} {}", path.display()));
        if plan.fail_at == Some(index) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, INJECTED));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
