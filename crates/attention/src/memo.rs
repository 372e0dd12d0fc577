//! A memo cache for the results of recent calls.

use std::sync::{Arc, Mutex, PoisonError};

/// The results of the last [`CAPACITY`] distinct calls.
pub(crate) struct Memo<K, V>(Mutex<Vec<(K, Arc<V>)>>);

/// A bit more than the number of distinct layers of a model.
const CAPACITY: usize = 32;

impl<K: PartialEq, V> Memo<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The cached value of `key`, or the result of `compute`, which is then cached.
    pub(crate) fn get(&self, key: K, compute: impl FnOnce(&K) -> V) -> Arc<V> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = lock().iter().find(|(other, _)| *other == key) {
            return Arc::clone(value);
        }
        // Computed without holding the lock, so that other threads need not wait.
        let value = Arc::new(compute(&key));
        let mut entries = lock();
        if entries.len() >= CAPACITY {
            entries.remove(0);
        }
        entries.push((key, Arc::clone(&value)));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entry_is_evicted() {
        static MEMO: Memo<usize, usize> = Memo::new();
        let mut computed = 0;
        for key in (0..CAPACITY).chain(0..CAPACITY) {
            let value = MEMO.get(key, |key| {
                computed += 1;
                2 * key
            });
            assert_eq!(*value, 2 * key);
        }
        assert_eq!(computed, CAPACITY);
        MEMO.get(CAPACITY, |_| 0);
        MEMO.get(0, |_| {
            computed += 1;
            0
        });
        assert_eq!(computed, CAPACITY + 1);
    }
}
