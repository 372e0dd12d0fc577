//! Conversion of backend panics to errors.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

/// Runs `work` and returns its panic message as an error. Nothing is printed.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // The panic hook is global to the process, so only one guard may replace it at a time.
    static HOOK: Mutex<()> = Mutex::new(());
    let _hook = HOOK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let previous = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(previous);
    result.map_err(|payload| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned()))
            .unwrap_or_else(|| "panicked without a message".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_message_is_returned() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        let device = 3;
        assert_eq!(
            catch_panic(|| panic!("no device {device}")),
            Err::<(), _>("no device 3".to_owned())
        );
    }
}
