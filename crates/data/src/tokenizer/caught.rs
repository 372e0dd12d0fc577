//! Panics of the crate `tokenizers`, which are errors here and are not printed.
//!
//! A file cannot be checked beforehand without writing the crate's reader again: it panics while
//! it reads many a file that is JSON and not what it expects.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic on this thread is about to be caught.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Installs, once, a panic hook that says nothing of panics that are caught here, and leaves all
/// others to the hook that was there before.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // While a thread ends there may be no flag any more, and nothing catches.
            if !IS_CAUGHT.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
}

/// What the call returns, or the message it panics with, which is not printed. Panics of other
/// threads are, those that the call starts among them.
pub(super) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    let outer = IS_CAUGHT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    IS_CAUGHT.set(outer);
    outcome.map_err(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        message.unwrap_or("it does not say why").to_owned()
    })
}
