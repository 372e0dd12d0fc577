//! Distribution of rows over threads.

#[cfg(feature = "host")]
use rayon::prelude::*;

/// Minimum elements per task, about 10 µs of work: less is not worth another thread.
const MIN_TASK_ELEMENTS: usize = 1 << 14;

/// The number of rows per task, for `rows` of `width` elements.
pub fn rows_per_task(rows: usize, width: usize) -> usize {
    let min_rows = MIN_TASK_ELEMENTS.div_ceil(width.max(1));
    // Four tasks per thread, to balance the load.
    let balanced = rows.div_ceil(4 * threads());
    balanced.max(min_rows).clamp(1, rows.max(1))
}

/// Runs the tasks, in parallel if there are several.
pub fn for_each<Task: Send>(tasks: Vec<Task>, run: impl Fn(Task) + Sync + Send) {
    match tasks.len() {
        #[cfg(feature = "host")]
        2.. => tasks.into_par_iter().for_each(run),
        _ => tasks.into_iter().for_each(run),
    }
}

/// Runs the tasks as [`for_each`] does, and returns their results.
pub fn map<Task: Send, Output: Send>(
    tasks: Vec<Task>,
    run: impl Fn(Task) -> Output + Sync + Send,
) -> Vec<Output> {
    match tasks.len() {
        #[cfg(feature = "host")]
        2.. => tasks.into_par_iter().map(run).collect(),
        _ => tasks.into_iter().map(run).collect(),
    }
}

/// The number of threads; 1 without a host backend, where these kernels are not called.
pub fn threads() -> usize {
    #[cfg(feature = "host")]
    let threads = rayon::current_num_threads();
    #[cfg(not(feature = "host"))]
    let threads = 1;
    threads
}
