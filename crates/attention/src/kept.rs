//! What was worked out before, kept for the next call.

use std::sync::{Arc, Mutex, PoisonError};

/// The results of the last few different calls.
pub(crate) struct Kept<K, V>(Mutex<Vec<(K, Arc<V>)>>);

/// As many as a model has different layers, and a few more.
const AT_MOST: usize = 32;

impl<K: PartialEq, V> Kept<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// What is kept for `key`, or what `make` makes of it.
    pub(crate) fn get(&self, key: K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = lock().iter().find(|(other, _)| *other == key) {
            return Arc::clone(value);
        }
        // Made without the lock: others need not wait for it.
        let value = Arc::new(make(&key));
        let mut kept = lock();
        if kept.len() >= AT_MOST {
            kept.remove(0);
        }
        kept.push((key, Arc::clone(&value)));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_are_kept_and_no_more() {
        static KEPT: Kept<usize, usize> = Kept::new();
        let mut made = 0;
        for key in (0..AT_MOST).chain(0..AT_MOST) {
            let value = KEPT.get(key, |key| {
                made += 1;
                2 * key
            });
            assert_eq!(*value, 2 * key);
        }
        assert_eq!(made, AT_MOST);
        KEPT.get(AT_MOST, |_| 0);
        KEPT.get(0, |_| {
            made += 1;
            0
        });
        assert_eq!(made, AT_MOST + 1);
    }
}
