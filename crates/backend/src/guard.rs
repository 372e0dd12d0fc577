//! Keeps a backend's panic from reaching people as a backtrace.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

/// Runs `work`, and returns what it panicked with as text.
///
/// Nothing is printed: the caller turns the text into an error of its own.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // The hook belongs to the whole process, so one guard at a time may hold it.
    static HOOK: Mutex<()> = Mutex::new(());
    let _hook = HOOK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(usual);
    outcome.map_err(|payload| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned()))
            .unwrap_or_else(|| "it panicked without a message".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(guarded(|| 7), Ok(7));
        let device = 3;
        assert_eq!(
            guarded(|| panic!("no device {device}")),
            Err::<(), _>("no device 3".to_owned())
        );
    }
}
