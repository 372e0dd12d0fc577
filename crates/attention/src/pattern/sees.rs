//! A pattern that somebody wrote as a function.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::Pattern;
use super::rule::Sight;

/// A function that says which keys a query sees, by their places. See [`Pattern::sees`].
#[derive(Clone)]
pub struct Sees(Arc<dyn Fn(i64, i64) -> bool + Send + Sync>);

impl Pattern {
    /// A query sees the keys for which a function of its place and theirs says so.
    ///
    /// The last query is level with the last key: with more queries than keys, the first ones
    /// have places below zero. The same two places must have the same answer each time.
    ///
    /// The function is asked about every pair once for a plan, and about the pairs of tiles that
    /// are seen in part whenever they are computed. What another pattern beside it, joined by
    /// [`and`](Self::and), shows to nobody, it is not asked about: a window around a sparse
    /// function makes a long sequence cheap. A plan is kept for as long as the pattern is cloned
    /// and not made anew.
    ///
    /// ```
    /// # use zoo_attention::Pattern;
    /// // The neighbours at distances 0, 1, 2, 4, 8, ..., behind.
    /// let log_sparse = Pattern::sees(|query, key| {
    ///     let behind = query - key;
    ///     behind == 0 || (behind > 0 && behind.unsigned_abs().is_power_of_two())
    /// });
    /// let near = log_sparse.and(Pattern::Window { left: 512, right: 0 });
    /// ```
    pub fn sees(sees: impl Fn(i64, i64) -> bool + Send + Sync + 'static) -> Self {
        Self::Sees(Sees(Arc::new(sees)))
    }
}

/// More keys than this are not looked at together: that some may be seen is answer enough.
const LOOKED_THROUGH: usize = 256;

impl Sees {
    /// Whether a query at a place sees a key.
    pub(super) fn one(&self, place: i64, key: i64) -> bool {
        (self.0)(place, key)
    }

    /// What queries at some places see of some keys.
    pub(super) fn tile(&self, places: Range<i64>, keys: Range<i64>) -> Sight {
        if (keys.end - keys.start) as usize > LOOKED_THROUGH {
            return Sight::Part;
        }
        let (mut any, mut every) = (false, true);
        for key in keys {
            for place in places.clone() {
                match self.one(place, key) {
                    true => any = true,
                    false => every = false,
                }
                if any && !every {
                    return Sight::Part;
                }
            }
        }
        Sight::by(!any, every)
    }

    /// Which of up to 64 queries, the first at a place, see a key.
    pub(super) fn seen(&self, first: i64, queries: usize, key: i64) -> u64 {
        let bit = |at: usize| u64::from(self.one(first + at as i64, key)) << at;
        (0..queries).map(bit).fold(0, |all, bit| all | bit)
    }

    fn address(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

/// Functions are the same if they are one: nothing else can be known of them.
impl PartialEq for Sees {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Sees {}

impl Hash for Sees {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl fmt::Debug for Sees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sees(a function)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttentionShape;

    fn shape(seq: usize) -> AttentionShape {
        AttentionShape {
            batch: 1,
            heads: 1,
            kv_heads: 1,
            seq_q: seq,
            seq_k: seq,
            d_head: 1,
            d_value: 1,
        }
    }

    fn window() -> Pattern {
        Pattern::sees(|query, key| (0..100).contains(&(query - key)))
    }

    #[test]
    fn a_plan_is_as_if_it_were_said_in_words() {
        let said = Pattern::Window { left: 99, right: 0 };
        for seq in [64, 700] {
            let plan = |pattern: Pattern| pattern.plan(&shape(seq), [64, 64]);
            assert_eq!(plan(window()), plan(said.clone()));
        }
    }

    #[test]
    fn what_is_hidden_anyway_is_not_asked_about() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = || {
            let asked = Arc::clone(&asked);
            Pattern::sees(move |query, key| {
                asked.fetch_add(1, Ordering::Relaxed);
                (query + key) % 2 == 0
            })
        };
        let near = || Pattern::Window { left: 64, right: 0 };
        for pattern in [counted().and(near()), near().and(counted())] {
            asked.store(0, Ordering::Relaxed);
            let density = pattern.plan(&shape(4096), [64, 64]).density();
            assert!(density < 0.05, "{density}");
            let asked = asked.load(Ordering::Relaxed);
            assert!(asked < 4096 * 200, "{asked} pairs were asked about");
        }
    }

    #[test]
    fn a_clone_is_the_same_and_another_is_not() {
        let one = window();
        assert_eq!(one.rule(), one.clone().rule());
        assert_ne!(one.rule(), window().rule());
    }
}
