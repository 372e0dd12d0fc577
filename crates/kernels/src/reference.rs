//! Computation without kernels, for measurements and tests that compare the two.

use std::cell::Cell;

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// Whether kernels are off in this thread.
pub fn is_on() -> bool {
    IS_ON.get()
}

/// Runs `work`, in this thread without any kernel of `zoo-kernels` and `zoo-attention`: by Burn's own operations, which
/// autodiff records one by one.
#[doc(hidden)]
pub fn without_kernels<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_ON.set(self.0);
        }
    }
    let _before = Before(IS_ON.replace(true));
    work()
}
