//! Calls that a program gets wrong, and what it is told.

use libtest_mimic::Failed;

/// Whether a call panics with exactly this message.
pub(crate) fn is_refused(misuse: impl Fn(), message: &str) -> Result<(), Failed> {
    let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse)) else {
        return Err("it was let through".into());
    };
    match panic.downcast_ref::<String>() {
        Some(said) if said == message => Ok(()),
        said => Err(format!("it said {said:?} instead of {message:?}").into()),
    }
}
