//! A pattern that somebody wrote as a function.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::coverage::Coverage;

/// A function that says which keys a query sees, by their places. See [`Pattern::sees`](super::Pattern::sees).
#[derive(Clone)]
pub struct Sees(Arc<dyn Fn(i64, i64) -> bool + Send + Sync>);

/// More keys than this are not looked at together: that some may be seen is answer enough.
const LOOKED_THROUGH: usize = 256;

impl Sees {
    /// The pattern of a function.
    pub(super) fn new(sees: impl Fn(i64, i64) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(sees))
    }

    /// Whether a query at a place sees a key.
    pub(super) fn one(&self, place: i64, key: i64) -> bool {
        (self.0)(place, key)
    }

    /// What queries at some places see of some keys.
    pub(super) fn tile(&self, places: Range<i64>, keys: Range<i64>) -> Coverage {
        if (keys.end - keys.start) as usize > LOOKED_THROUGH {
            return Coverage::Partial;
        }
        let (mut any, mut every) = (false, true);
        for key in keys {
            for place in places.clone() {
                match self.one(place, key) {
                    true => any = true,
                    false => every = false,
                }
                if any && !every {
                    return Coverage::Partial;
                }
            }
        }
        Coverage::by(!any, every)
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
    use crate::{AttentionShape, Pattern};

    fn shape(seq: usize) -> AttentionShape {
        AttentionShape::of_sequences(1, seq, seq)
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
