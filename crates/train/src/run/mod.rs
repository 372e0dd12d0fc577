//! The run folder: everything that is needed to reproduce, resume and use a run.
//!
//! ```text
//! runs/NAME/
//!   config.toml           the config with all defaults
//!   run.json              metadata: seed, steps, parameters, versions, commit, device, end
//!   tokenizer*.json       tokenizers; labels.json has the classes
//!   log.txt               the log
//!   metrics.jsonl         all metrics, one JSON object per line; also train.csv, valid.csv
//!   tensorboard/          the same as TensorBoard event files, with `run.tensorboard = true`
//!   loss.svg METRIC.svg   plots
//!   checkpoints/step-N/   weights.safetensors, optimizer.bpk, state.json, checksums.json
//!   best.json             the best checkpoint
//!   result.json           test metrics
//!   average.safetensors   by `zoo average`; attention.html by `zoo attend`
//!   lock                  held by the training process
//! ```
//!
//! Files are written atomically; the log, metrics.jsonl and event files are appended to. A folder is
//! recognised as a run by its `run.json`, which has the version of zoo. No other files are ever
//! removed.

mod checkpoint;
mod contents;
mod folder;
mod lock;
mod metadata;
mod metrics_log;
mod progress;
mod tensorboard;

pub(crate) use self::checkpoint::WEIGHTS;
pub use self::checkpoint::{Checkpoint, Checkpoints};
pub(crate) use self::folder::OpenMode;
pub use self::folder::RunFolder;
pub(crate) use self::lock::Lock;
pub(crate) use self::metadata::{FINISHED, add_finish, add_resume, run_metadata};
pub(crate) use self::metrics_log::{
    MEMORY, MetricsLog, Row, TEST, curve, last_rows, plot, read_rows,
};
pub use self::progress::BestCheckpoint;
pub(crate) use self::progress::{Progress, ScaleState};
pub(crate) use crate::files::write_atomic;
