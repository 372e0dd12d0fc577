//! Conversion of panics of the crate `tokenizers` into errors.
//!
//! The crate panics on many JSON files that are not valid tokenizers, and checking a file in
//! advance would mean rewriting its parser.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook, once, that ignores caught panics and passes all others to the previous
/// hook.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The thread-local is gone while a thread exits.
            if !IS_CATCHING.try_with(Cell::get).unwrap_or(false) {
                previous(info);
            }
        }));
    });
}

/// Calls a function and returns its panic message as an error, without printing it. Panics of other
/// threads are printed, including those started by the call.
pub(super) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    let outer = IS_CATCHING.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    IS_CATCHING.set(outer);
    outcome.map_err(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        message.unwrap_or("unknown panic").to_owned()
    })
}
