//! Rows over threads.

#[cfg(feature = "host")]
use rayon::prelude::*;

/// Elements below which a second thread costs more than it saves: some 10 µs of work.
const WORTH_A_THREAD: usize = 1 << 14;

/// How many rows of `width` elements a task takes, if there are `rows`.
pub fn rows_per_task(rows: usize, width: usize) -> usize {
    let enough = WORTH_A_THREAD.div_ceil(width.max(1));
    // A few tasks for each thread, so that one that is late does not hold up the others.
    let fair = rows.div_ceil(4 * threads());
    fair.max(enough).clamp(1, rows.max(1))
}

/// Runs the tasks, over threads if there are several.
pub fn for_each<Task: Send>(tasks: Vec<Task>, run: impl Fn(Task) + Sync + Send) {
    match tasks.len() {
        #[cfg(feature = "host")]
        2.. => tasks.into_par_iter().for_each(run),
        _ => tasks.into_iter().for_each(run),
    }
}

/// The same, for tasks that have a result.
pub fn map<Task: Send, Done: Send>(
    tasks: Vec<Task>,
    run: impl Fn(Task) -> Done + Sync + Send,
) -> Vec<Done> {
    match tasks.len() {
        #[cfg(feature = "host")]
        2.. => tasks.into_par_iter().map(run).collect(),
        _ => tasks.into_iter().map(run).collect(),
    }
}

/// Threads there are. Without a backend of the host's memory nothing is computed here.
pub fn threads() -> usize {
    #[cfg(feature = "host")]
    let threads = rayon::current_num_threads();
    #[cfg(not(feature = "host"))]
    let threads = 1;
    threads
}
