//! Patterns defined by a function.

use std::any::TypeId;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::Pattern;
use super::coverage::Coverage;

/// A function that returns whether a key is visible. See [`Pattern::from_fn`] and
/// [`Pattern::mask_fn`].
#[derive(Clone)]
pub struct Predicate {
    function: Function,
    /// The type of a closure without captures. All values of such a type are the same function.
    type_id: Option<TypeId>,
    /// The head, for a function that depends on it.
    head: Option<usize>,
}

#[derive(Clone)]
enum Function {
    /// Of the positions of query and key.
    Positions(Arc<dyn Fn(i64, i64) -> bool + Send + Sync>),
    /// Of batch index, head, and the positions of query and key.
    PerHead(Arc<dyn Fn(usize, usize, i64, i64) -> bool + Send + Sync>),
}

/// Ranges of more keys are reported as partial without being evaluated.
const MAX_KEYS: usize = 256;

impl Predicate {
    pub(super) fn new<F>(is_visible: F) -> Self
    where
        F: Fn(i64, i64) -> bool + Send + Sync + 'static,
    {
        Self {
            function: Function::Positions(Arc::new(is_visible)),
            type_id: type_without_captures::<F>(),
            head: None,
        }
    }

    pub(super) fn per_head<F>(is_visible: F) -> Self
    where
        F: Fn(usize, usize, i64, i64) -> bool + Send + Sync + 'static,
    {
        Self {
            function: Function::PerHead(Arc::new(is_visible)),
            type_id: type_without_captures::<F>(),
            head: None,
        }
    }

    /// Whether heads may have different masks.
    pub(super) fn depends_on_head(&self) -> bool {
        matches!(self.function, Function::PerHead(_)) && self.head.is_none()
    }

    /// Whether examples may have different masks.
    pub(super) fn depends_on_example(&self) -> bool {
        matches!(self.function, Function::PerHead(_))
    }

    fn at_head(&self, head: usize) -> Self {
        Self {
            head: Some(head),
            ..self.clone()
        }
    }

    pub(super) fn is_visible(&self, example: usize, query: i64, key: i64) -> bool {
        match &self.function {
            Function::Positions(function) => function(query, key),
            Function::PerHead(function) => function(example, self.head.unwrap_or(0), query, key),
        }
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
        let (mut any, mut all) = (false, true);
        for key in keys {
            for query in queries.clone() {
                if self.is_visible(example, query, key) {
                    any = true;
                } else {
                    all = false;
                }
                if any && !all {
                    return Coverage::Partial;
                }
            }
        }
        Coverage::new(!any, all)
    }

    /// A bit for each of up to 64 queries, starting at position `first`, that attends to a key.
    pub(super) fn visible_queries(
        &self,
        example: usize,
        first: i64,
        queries: usize,
        key: i64,
    ) -> u64 {
        let bit = |i: usize| u64::from(self.is_visible(example, first + i as i64, key)) << i;
        (0..queries).map(bit).fold(0, |all, bit| all | bit)
    }

    fn address(&self) -> *const () {
        match &self.function {
            Function::Positions(function) => Arc::as_ptr(function).cast(),
            Function::PerHead(function) => Arc::as_ptr(function).cast(),
        }
    }

    /// What identifies the function: its type, or its address if it captures values.
    fn identity(&self) -> (Option<TypeId>, Option<*const ()>, Option<usize>) {
        let address = self.type_id.is_none().then(|| self.address());
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

impl Hash for Predicate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate(..)")
    }
}

impl Pattern {
    /// Whether heads may have different masks without a tensor.
    pub(crate) fn depends_on_head(&self) -> bool {
        match self {
            Self::Predicate(predicate) => predicate.depends_on_head(),
            Self::And(a, b) | Self::Or(a, b) => a.depends_on_head() || b.depends_on_head(),
            Self::Full
            | Self::Causal
            | Self::Window { .. }
            | Self::Block { .. }
            | Self::Blocks { .. }
            | Self::Strided { .. }
            | Self::SummaryColumns { .. }
            | Self::Monotonic { .. }
            | Self::Global(_)
            | Self::Documents(_)
            | Self::KeyLengths(_)
            | Self::KeyPadding(_)
            | Self::Dense(_) => false,
        }
    }

    /// The pattern of a single head.
    pub(crate) fn at_head(&self, head: usize) -> Self {
        match self {
            Self::Predicate(predicate) => Self::Predicate(predicate.at_head(head)),
            Self::And(a, b) => a.at_head(head).and(b.at_head(head)),
            Self::Or(a, b) => a.at_head(head).or(b.at_head(head)),
            Self::Dense(mask) if mask.dims()[1] > 1 => {
                Self::Dense(mask.clone().slice_dim(1, head..head + 1))
            }
            Self::Full
            | Self::Causal
            | Self::Window { .. }
            | Self::Block { .. }
            | Self::Blocks { .. }
            | Self::Strided { .. }
            | Self::SummaryColumns { .. }
            | Self::Monotonic { .. }
            | Self::Global(_)
            | Self::Documents(_)
            | Self::KeyLengths(_)
            | Self::KeyPadding(_)
            | Self::Dense(_) => self.clone(),
        }
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
