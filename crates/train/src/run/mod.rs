//! The folder of a run: everything that is needed to trust it, go on with it, and use it.
//!
//! ```text
//! runs/NAME/
//!   config.toml           the config with every default in it
//!   run.json              seed, versions, commit, device: written before the first step
//!   tokenizer*.json       what makes tokens of texts; labels.json has the classes
//!   log.txt               what was shown while training
//!   metrics.jsonl         every number, a JSON object a line; train.csv and valid.csv, too
//!   loss.svg METRIC.svg   the curves
//!   checkpoints/step-N/   weights.safetensors, optimizer.bpk, state.json, checksums.json
//!   best.json             which checkpoint was best
//!   result.json           what came of the test
//!   lock                  held by the process that learns, while it does
//! ```
//!
//! Whatever is written is whole or not there, at any time.

mod about;
mod checkpoint;
mod folder;
mod lock;
mod numbers;
mod progress;

use std::fs::File;
use std::io::Write;
use std::path::Path;

pub(crate) use self::about::About;
pub(crate) use self::checkpoint::WEIGHTS;
pub use self::checkpoint::{Checkpoint, Checkpoints};
pub(crate) use self::folder::Opening;
pub use self::folder::RunFolder;
pub(crate) use self::lock::Lock;
pub(crate) use self::numbers::{Numbers, Row, TEST, last_rows};
pub use self::progress::Best;
pub(crate) use self::progress::{Progress, ScaleState};
use crate::TrainError;

/// Writes a file in the place of the one that may be there; at any time there is one or the
/// other.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let beside = Path::new(&beside);
    let written = File::create(beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let put = written.and_then(|()| std::fs::rename(beside, path));
    put.map_err(|error| {
        // What is half there helps nobody, and takes room that may be what is missing.
        let _ = std::fs::remove_file(beside);
        TrainError::file(path)(error)
    })
}

/// Makes what was renamed into a folder outlast a power cut.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), TrainError> {
    // Windows has no such thing, and needs none.
    if cfg!(unix) {
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(TrainError::file(folder))?;
    }
    Ok(())
}
