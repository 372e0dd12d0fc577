//! Patterns defined by a function.

use std::any::TypeId;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::coverage::Coverage;

/// A function that returns whether a key is visible. See
/// [`Pattern::from_fn`](crate::Pattern::from_fn) and [`Pattern::mask_fn`](crate::Pattern::mask_fn).
#[derive(Clone)]
pub struct Predicate {
    /// Of batch index, head, and the positions of query and key.
    function: Arc<dyn Fn(usize, usize, i64, i64) -> bool + Send + Sync>,
    /// Whether the function depends on the batch index and the head.
    is_per_head: bool,
    /// The type of a closure without captures. All values of such a type are the same function.
    type_id: Option<TypeId>,
    /// The head, for a function that depends on it.
    head: Head,
}

/// The head of a call of a function that depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Each head has its own mask.
    Each,
    /// The tensors have a single head, which is this one.
    Is(usize),
    /// The tensors have a single head, and batch index `b` is head `b % heads` of the example
    /// `b / heads`.
    InBatch { heads: usize },
}

/// Ranges of more keys are reported as partial without being evaluated.
const MAX_KEYS: usize = 256;

impl Predicate {
    pub(super) fn new<F>(is_visible: F) -> Self
    where
        F: Fn(i64, i64) -> bool + Send + Sync + 'static,
    {
        Self {
            function: Arc::new(move |_, _, query, key| is_visible(query, key)),
            is_per_head: false,
            type_id: type_without_captures::<F>(),
            head: Head::Each,
        }
    }

    pub(super) fn per_head<F>(is_visible: F) -> Self
    where
        F: Fn(usize, usize, i64, i64) -> bool + Send + Sync + 'static,
    {
        Self {
            function: Arc::new(is_visible),
            is_per_head: true,
            type_id: type_without_captures::<F>(),
            head: Head::Each,
        }
    }

    /// Whether heads may have different masks.
    pub(super) fn depends_on_head(&self) -> bool {
        self.is_per_head && self.head == Head::Each
    }

    /// Whether examples may have different masks.
    pub(super) fn depends_on_example(&self) -> bool {
        self.is_per_head
    }

    pub(super) fn at_head(&self, head: usize) -> Self {
        Self {
            head: Head::Is(head),
            ..self.clone()
        }
    }

    /// The same function for tensors whose `heads` are part of the batch dimension.
    pub(super) fn with_heads_in_batch(&self, heads: usize) -> Self {
        Self {
            head: Head::InBatch { heads },
            ..self.clone()
        }
    }

    pub(super) fn is_visible(&self, example: usize, query: i64, key: i64) -> bool {
        let (example, head) = match self.head {
            Head::Each => (example, 0),
            Head::Is(head) => (example, head),
            Head::InBatch { heads } => (example / heads, example % heads),
        };
        (self.function)(example, head, query, key)
    }

    pub(super) fn coverage(
        &self,
        example: usize,
        queries: Range<i64>,
        keys: Range<i64>,
    ) -> Coverage {
        if (keys.end - keys.start) as usize > MAX_KEYS {
            return Coverage::Partial;
        }
        let mut visible = keys.flat_map(|key| {
            let queries = queries.clone();
            queries.map(move |query| self.is_visible(example, query, key))
        });
        let first = visible.next() == Some(true);
        if visible.any(|other| other != first) {
            return Coverage::Partial;
        }
        Coverage::new(!first, first)
    }

    /// What identifies the function: its type, or its address if it captures values.
    fn identity(&self) -> (Option<TypeId>, Option<*const ()>, Head) {
        let address = self
            .type_id
            .is_none()
            .then(|| Arc::as_ptr(&self.function).cast());
        (self.type_id, address, self.head)
    }
}

fn type_without_captures<F: 'static>() -> Option<TypeId> {
    (size_of::<F>() == 0).then(TypeId::of::<F>)
}

impl PartialEq for Predicate {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Predicate {}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionShape, Pattern};

    fn shape(seq: usize) -> AttentionShape {
        AttentionShape::single_head(1, seq, seq)
    }

    fn window() -> Pattern {
        Pattern::from_fn(|query, key| (0..100).contains(&(query - key)))
    }

    #[test]
    fn plan_equals_that_of_the_named_pattern() {
        let named = Pattern::Window { left: 99, right: 0 };
        for seq in [64, 700] {
            let plan = |pattern: Pattern| pattern.plan(&shape(seq), [64, 64]);
            assert_eq!(plan(window()), plan(named.clone()));
        }
    }

    #[test]
    fn function_is_not_called_for_masked_tiles() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = || {
            let calls = Arc::clone(&calls);
            Pattern::from_fn(move |query, key| {
                calls.fetch_add(1, Ordering::Relaxed);
                (query + key) % 2 == 0
            })
        };
        let near = || Pattern::Window { left: 64, right: 0 };
        for pattern in [counted().and(near()), near().and(counted())] {
            calls.store(0, Ordering::Relaxed);
            let density = pattern.plan(&shape(4096), [64, 64]).density();
            assert!(density < 0.05, "{density}");
            let calls = calls.load(Ordering::Relaxed);
            assert!(calls < 4096 * 200, "{calls} calls");
        }
    }

    #[test]
    fn functions_are_equal_by_type_or_by_address() {
        assert_eq!(window().rule(), window().rule());
        let captures = |width: i64| Pattern::from_fn(move |query, key| query - key < width);
        let pattern = captures(3);
        assert_eq!(pattern.rule(), pattern.clone().rule());
        assert_ne!(pattern.rule(), captures(3).rule());
        let per_head = || Pattern::mask_fn(|_, head, query, key| query - key < head as i64);
        assert_eq!(per_head().at_head(1).rule(), per_head().at_head(1).rule());
        assert_ne!(per_head().at_head(1).rule(), per_head().at_head(2).rule());
    }

    #[test]
    fn a_closure_created_again_is_planned_once() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        use crate::pattern::{Examples, cached_plan};
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let shape = shape(300);
        let plan = || {
            let pattern = Pattern::mask_fn(|batch, head, query, key| {
                CALLS.fetch_add(1, Ordering::Relaxed);
                key <= query + (batch + head) as i64
            });
            let rule = Arc::new(pattern.at_head(0).rule());
            cached_plan(&rule, &shape, [64, 64], Examples::Each)
        };
        let first = plan();
        let calls = CALLS.load(Ordering::Relaxed);
        assert!(calls > 300);
        assert_eq!(plan(), first);
        assert_eq!(CALLS.load(Ordering::Relaxed), calls);
    }
}
