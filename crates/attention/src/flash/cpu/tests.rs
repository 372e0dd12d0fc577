//! All kinds of kernels compute the same, and touch nothing that is not theirs.

use super::*;
use crate::flash::spread::Spread;
use crate::pattern::rule::Rule;
use crate::{AttentionShape, Dropout};

/// Numbers that are random enough: a multiplicative congruence.
fn numbers(count: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..count).map(|_| 4.0 * next()).collect()
}

/// Two heads on one of keys and values, two tiles of queries, three of keys; widths that
/// divide nothing, and widths of whole registers.
const SHAPES: [AttentionShape; 2] = [shape(20, 37), shape(32, 16)];

const fn shape(d_head: usize, d_value: usize) -> AttentionShape {
    AttentionShape {
        heads: 2,
        d_head,
        d_value,
        ..AttentionShape::of_sequences(1, 70, 203)
    }
}

fn heads(numbers: &[f32], apart: usize) -> Heads<'_> {
    Heads { numbers, apart }
}

/// Context, log-sum-exp, gradients by query, key, value and bias, with every option on,
/// each tensor in memory that `place` provides.
fn compute<T: AsMut<[f32]>>(
    set: InstructionSet,
    shape: &AttentionShape,
    place: impl Fn(&[f32]) -> T,
) -> [Vec<f32>; 6] {
    let [_, _, seq_q, seq_k] = shape.scores();
    let [d_head, d_value] = shape.widths();
    let random = |count: usize, seed| place(&numbers(count, seed));
    let zeros = |count: usize| place(&vec![0.0; count]);
    let mut query = random(2 * seq_q * d_head, 1);
    let mut key = random(seq_k * d_head, 2);
    let mut value = random(seq_k * d_value, 3);
    let mut d_context = random(2 * seq_q * d_value, 4);
    let mut bias = random(2 * seq_q * seq_k, 5);
    let mut d_log_sum_exp = random(2 * seq_q, 6);
    let hidden: Vec<u8> = (0..seq_k).map(|key| u8::from(key % 5 == 2)).collect();
    let rule = Arc::new(Rule::Causal);
    let call = Call {
        shape: *shape,
        plan: &kept(&rule, shape, [QUERIES, KEYS], Examples::Each),
        rule: &rule,
        hidden: Some(Spread::new(&hidden, [1, 1, 1, seq_k])),
        scale: 0.3,
        softcap: Some(2.0),
        alibi: Some(&[0.02, 0.01]),
        bias: Some(Spread::new(bias.as_mut(), [1, 2, seq_q, seq_k])),
        dropout: Some(Dropout::new(0.2, 1)),
        query: query.as_mut(),
        key: heads(key.as_mut(), seq_k * d_head),
        value: heads(value.as_mut(), seq_k * d_value),
    };
    let mut context = Vec::new();
    let mut stats = Vec::new();
    for head in 0..2 {
        for queries in tiles(seq_q, QUERIES) {
            let mut some_context = zeros(queries.len() * d_value);
            let mut some_sums = zeros(STATS * queries.len());
            let (into, sums) = (some_context.as_mut(), some_sums.as_mut());
            // SAFETY: the set is one that this processor has, and the slices are of the call.
            unsafe { forward::forward(set, &call, head, queries, into, sums) };
            context.extend_from_slice(into);
            stats.extend_from_slice(sums);
        }
    }
    let (mut kept_context, mut kept_sums) = (place(&context), place(&stats));
    let upstream = Upstream {
        context: kept_context.as_mut(),
        stats: kept_sums.as_mut(),
        d_context: d_context.as_mut(),
        d_log_sum_exp: Some(d_log_sum_exp.as_mut()),
    };
    let mut d_query = zeros(2 * seq_q * d_head);
    let mut d_key = zeros(seq_k * d_head);
    let mut d_value_sum = zeros(seq_k * d_value);
    let out = Out {
        d_query: d_query.as_mut(),
        d_key: d_key.as_mut(),
        d_value: d_value_sum.as_mut(),
    };
    // SAFETY: the set is one that this processor has, and the slices are of the call.
    unsafe { backward::backward(set, &call, &upstream, 0, 0..4, out) };
    let mut d_bias = zeros(QUERIES * seq_k);
    // SAFETY: the set is one that this processor has, and the slices are of the call.
    unsafe {
        backward::backward_of_bias(
            set,
            &call,
            &upstream,
            [0, 1],
            0,
            [seq_k, 1],
            d_bias.as_mut(),
        );
    }
    let copy = |mut tensor: T| tensor.as_mut().to_vec();
    [
        context,
        stats,
        copy(d_query),
        copy(d_key),
        copy(d_value_sum),
        copy(d_bias),
    ]
}

/// Three queries of each of two heads that share keys, with every option but dropout, or
/// with nothing hidden and no bias: by the kernel for a few, in two parts of the keys, and by that for
/// many. Both contexts.
fn compute_few<T: AsMut<[f32]>>(
    set: InstructionSet,
    shape: &AttentionShape,
    hides: bool,
    place: impl Fn(&[f32]) -> T,
) -> [Vec<f32>; 2] {
    let shape = &AttentionShape { seq_q: 3, ..*shape };
    let [_, _, seq_q, seq_k] = shape.scores();
    let [d_head, d_value] = shape.widths();
    let random = |count: usize, seed| place(&numbers(count, seed));
    let mut query = random(2 * seq_q * d_head, 1);
    // The first rows of a room for seven more, behind those of another head.
    let apart = [(seq_k + 7) * d_head, (seq_k + 7) * d_value];
    let mut key = random(apart[0] + seq_k * d_head, 2);
    let mut value = random(apart[1] + seq_k * d_value, 3);
    let mut bias = random(2 * seq_q * seq_k, 5);
    let hidden: Vec<u8> = (0..seq_k).map(|key| u8::from(key % 5 == 2)).collect();
    let rule = Arc::new(if hides { Rule::Causal } else { Rule::Full });
    let call = Call {
        shape: *shape,
        plan: &kept(&rule, shape, [QUERIES, KEYS], Examples::Each),
        rule: &rule,
        hidden: hides.then(|| Spread::new(&hidden[..], [1, 1, 1, seq_k])),
        scale: 0.3,
        softcap: Some(2.0),
        alibi: Some(&[0.02, 0.01]),
        // A bias may hide: with one, queries are taken one by one.
        bias: hides.then(|| Spread::new(&*bias.as_mut(), [1, 2, seq_q, seq_k])),
        dropout: None,
        query: query.as_mut(),
        key: heads(&key.as_mut()[apart[0]..], apart[0]),
        value: heads(&value.as_mut()[apart[1]..], apart[1]),
    };
    let tiles: Vec<_> = call.plan.tiles(0, 0).collect();
    let (first, second) = tiles.split_at(1);
    let mut partial = Vec::new();
    for some in [first, second] {
        let mut part = place(&vec![0.0; 2 * seq_q * (d_value + 2)]);
        // SAFETY: the set is one that this processor has, and the slices are of the call.
        unsafe { few::forward_of_few(set, &call, 0, some, part.as_mut()) };
        partial.extend_from_slice(part.as_mut());
    }
    let (few, few_sums) = few::joined(&partial, [2, 2 * seq_q, d_value]);
    let (mut many, mut many_sums) = (vec![], vec![]);
    for head in 0..2 {
        let (mut context, mut sums) = (vec![0.0; seq_q * d_value], vec![0.0; STATS * seq_q]);
        // SAFETY: the set is one that this processor has, and the slices are of the call.
        unsafe { forward::forward(set, &call, head, 0..seq_q, &mut context, &mut sums) };
        many.extend(context);
        many_sums.extend(sums);
    }
    [[few, few_sums].concat(), [many, many_sums].concat()]
}

#[test]
fn a_few_queries_get_what_they_get_among_many() {
    let cases = SHAPES
        .iter()
        .flat_map(|shape| [(shape, true), (shape, false)])
        .flat_map(|case| {
            InstructionSet::available()
                .into_iter()
                .map(move |set| (set, case))
        });
    for (set, (shape, hides)) in cases {
        let [few, many] = compute_few(set, shape, hides, <[f32]>::to_vec);
        for (a, b) in few.iter().zip(&many) {
            assert!((a - b).abs() <= 1e-5, "{set:?}: {a} and {b}");
        }
        #[cfg(unix)]
        for edge in [guarded::Edge::End, guarded::Edge::Start] {
            let fenced = compute_few(set, shape, hides, |n| guarded::Guarded::new(n, edge));
            assert_eq!(fenced, [few.clone(), many.clone()], "{set:?}");
        }
    }
}

/// All instruction sets compute the same. Every tensor ends, or begins, where memory does: a kernel
/// that reads or writes one number too many is ended by the system.
#[test]
fn kinds_agree_and_stay_within_their_tensors() {
    for shape in &SHAPES {
        let portable = compute(InstructionSet::Portable, shape, <[f32]>::to_vec);
        for set in InstructionSet::available() {
            let free = compute(set, shape, <[f32]>::to_vec);
            for (a, b) in portable.iter().zip(&free) {
                let size = a.iter().fold(0f32, |size, x| size.max(x.abs()));
                for (a, b) in a.iter().zip(b) {
                    assert!((a - b).abs() <= 1e-5 * size, "{a} and {b}, of {size}");
                }
            }
            #[cfg(unix)]
            for edge in [guarded::Edge::End, guarded::Edge::Start] {
                let fenced = compute(set, shape, |numbers| guarded::Guarded::new(numbers, edge));
                assert_eq!(fenced, free, "{set:?}");
            }
        }
    }
}

#[cfg(unix)]
mod guarded {
    use std::ptr;

    /// Which side of the numbers nothing may be touched on.
    #[derive(Clone, Copy)]
    pub(super) enum Edge {
        Start,
        End,
    }

    /// Numbers between two pages that cannot be touched, next to one of them.
    pub(super) struct Guarded {
        pages: *mut libc::c_void,
        bytes: usize,
        numbers: *mut f32,
        count: usize,
    }

    impl Guarded {
        pub(super) fn new(numbers: &[f32], edge: Edge) -> Self {
            let size = size_of_val(numbers);
            // SAFETY: new memory is asked for, the middle of it made usable, and filled
            // with as many numbers as it has room for.
            unsafe {
                let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).expect("a size");
                let inside = size.next_multiple_of(page);
                let bytes = inside + 2 * page;
                let pages = libc::mmap(
                    ptr::null_mut(),
                    bytes,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                assert_ne!(pages, libc::MAP_FAILED);
                let middle = pages.add(page);
                let usable = libc::mprotect(middle, inside, libc::PROT_READ | libc::PROT_WRITE);
                assert_eq!(usable, 0);
                let first = match edge {
                    Edge::Start => middle,
                    Edge::End => middle.add(inside - size),
                };
                let first = first.cast::<f32>();
                first.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len());
                Self {
                    pages,
                    bytes,
                    numbers: first,
                    count: numbers.len(),
                }
            }
        }
    }

    impl AsMut<[f32]> for Guarded {
        fn as_mut(&mut self) -> &mut [f32] {
            // SAFETY: as many numbers were written there.
            unsafe { std::slice::from_raw_parts_mut(self.numbers, self.count) }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            // SAFETY: what was asked for is given back, once.
            unsafe { libc::munmap(self.pages, self.bytes) };
        }
    }
}
