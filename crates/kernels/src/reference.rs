//! Switch that disables kernels, for benchmarks and tests that compare with Burn's operations.

use std::cell::Cell;

thread_local! {
    static IS_ENABLED: Cell<bool> = const { Cell::new(false) };
}

/// Whether kernels are disabled in this thread.
pub fn is_enabled() -> bool {
    IS_ENABLED.get()
}

/// Runs `work` with the kernels of `zoo-kernels` and `zoo-attention` disabled in this thread:
/// Burn's operations are called, which autodiff records one by one.
#[doc(hidden)]
pub fn without_kernels<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_ENABLED.set(self.0);
        }
    }
    let _restore = Restore(IS_ENABLED.replace(true));
    work()
}
