//! Where modules take the seeds of what they draw while training, and know how far it is.

use std::cell::Cell;

use crate::counter::mix;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static PASS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Decides what modules draw from here on in this thread: dropout of attention's weights, and
/// the choices of hard attention. The same seed and the same calls, the same numbers. A thread
/// that was given no seed begins with zero.
pub fn seed(seed: u64) {
    NEXT.set(mix(seed));
}

/// Another seed for each call.
pub(crate) fn next_seed() -> u64 {
    let next = NEXT.get();
    NEXT.set(next.wrapping_add(1));
    mix(next)
}

/// Says which training pass the next one in this thread is, for modules that do something once
/// in so many of them: a training that is gone on with does it when it would have. A thread that
/// was told none has modules that count for themselves.
pub fn training_pass(number: u64) {
    PASS.set(Some(number));
}

/// The number of the training pass, if anybody said it.
pub(crate) fn pass_number() -> Option<u64> {
    PASS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_what_is_drawn() {
        let drawn = |from: u64| {
            seed(from);
            [next_seed(), next_seed()]
        };
        let [first, second] = drawn(7);
        assert_ne!(first, second);
        assert_eq!(drawn(7), [first, second]);
        assert_ne!(drawn(8), [first, second]);
    }
}
