//! Tuning of glibc's allocator.

/// Makes glibc's allocator reuse freed memory instead of returning it to the system.
///
/// By default it returns blocks above 32 MiB at once, and smaller ones beyond a threshold, so that
/// the activations of a pass are page-faulted in again in the next. A training pass of
/// `gated-delta` with 8 heads of 64 at n = 32,768 took 1.0 s instead of 0.6 on flex. Up to 2 GiB of
/// freed memory are retained. Blocks above 32 MiB that other threads than the main one allocate are
/// still returned.
pub fn configure_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: they are settings of the allocator, which it changes under its lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}
