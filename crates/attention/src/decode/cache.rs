//! Key-value cache of incremental decoding.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::shape::{pad_rows, select_indices};

/// Keys and values of the positions so far, in a preallocated buffer.
///
/// It retains all positions, or for a window the last ones as a ring buffer. A ring buffer does not
/// preserve their order, which softmax does not depend on.
#[derive(Debug, Clone)]
pub struct KvCache {
    /// Twice the same tensor if they are shared.
    rows: Option<[Tensor<4>; 2]>,
    /// Whether keys and values are the same rows, which are stored once.
    has_shared_rows: bool,
    /// Positions appended so far, evicted ones included.
    len: usize,
    initial_capacity: usize,
    /// How many of the last positions are retained; `usize::MAX` for all.
    retained: usize,
    /// How many positions at the start are retained besides them.
    first: usize,
}

impl KvCache {
    /// An empty cache that retains every position. Its capacity doubles when it is exceeded.
    pub fn new(capacity: usize) -> Self {
        Self {
            rows: None,
            has_shared_rows: false,
            len: 0,
            initial_capacity: capacity.max(1),
            retained: usize::MAX,
            first: 0,
        }
    }

    /// An empty cache that retains every position, of rows that are keys and values at once.
    pub(crate) fn with_shared_rows(capacity: usize) -> Self {
        Self {
            has_shared_rows: true,
            ..Self::new(capacity)
        }
    }

    /// An empty cache that retains the last `size` positions.
    ///
    /// # Panics
    ///
    /// If `size` is 0.
    pub fn ring(size: usize) -> Self {
        Self::ring_after(0, size)
    }

    /// An empty cache that retains the first positions and, of those after them, the last `size`.
    ///
    /// # Panics
    ///
    /// If `size` is 0.
    pub fn ring_after(first: usize, size: usize) -> Self {
        assert!(
            size > 0,
            "KV cache: a ring buffer needs at least one position, got 0"
        );
        // Grows on demand: a window may be wider than any sequence.
        Self {
            retained: size,
            first,
            ..Self::new(64)
        }
    }

    /// Number of positions appended so far, evicted ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position was appended yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of stored elements of keys and values, without unused capacity.
    pub fn num_elements(&self) -> usize {
        let filled = self.capacity_limit().min(self.len);
        let elements = |rows: &Tensor<4>| {
            let [batch, kv_heads, _, width] = rows.dims();
            batch * kv_heads * filled * width
        };
        let stored = if self.has_shared_rows { 1 } else { 2 };
        self.rows
            .as_ref()
            .map_or(0, |rows| rows.iter().take(stored).map(elements).sum())
    }

    /// Appends the keys and values of new positions; returns all that are retained.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, kv_heads, new, d_head]`
    /// - value: `[batch, kv_heads, new, d_value]`
    /// - output: the same, with the retained positions
    ///
    /// # Panics
    ///
    /// If the shapes do not match, there is no new position, or sizes, dtype or device differ from
    /// those in the cache. The cache is then unchanged.
    pub fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> [Tensor<4>; 2] {
        let (buffers, filled) = self.append_in_place(key, value);
        buffers.map(|rows| rows.slice_dim(2, 0..filled))
    }

    /// [`append`](Self::append) that returns the whole buffers and the number of filled positions:
    /// on some backends a slice is a copy.
    pub(crate) fn append_in_place(
        &mut self,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> ([Tensor<4>; 2], usize) {
        // The rows are taken out to be updated in place: nothing may panic from there on.
        self.check(&key, &value);
        let [_, _, new, _] = key.dims();
        let filled = self.capacity_limit().min(self.len + new);
        let [keys, values] = match self.rows.take() {
            Some(rows) => rows,
            None if self.has_shared_rows => {
                let rows = self.allocate_like(&key);
                [rows.clone(), rows]
            }
            None => [&key, &value].map(|tensor| self.allocate_like(tensor)),
        };
        let rows = if self.has_shared_rows {
            // With a single reference, the backend writes without a copy.
            drop(values);
            let keys = self.write(keys, key, filled);
            [keys.clone(), keys]
        } else {
            [
                self.write(keys, key, filled),
                self.write(values, value, filled),
            ]
        };
        self.rows = Some(rows.clone());
        self.len += new;
        (rows, filled)
    }

    /// Panics unless the new rows match each other and those in the cache.
    fn check(&self, key: &Tensor<4>, value: &Tensor<4>) {
        assert!(
            self.rows.is_some() || self.is_empty(),
            "KV cache: an earlier append panicked, and its rows are lost\n  help: start with a new cache"
        );
        let [batch, kv_heads, new, _] = key.dims();
        let [value_batch, value_heads, value_new, _] = value.dims();
        assert!(
            [batch, kv_heads, new] == [value_batch, value_heads, value_new],
            "KV cache: value must be [batch = {batch}, kv_heads = {kv_heads}, new = {new}, d_value] \
             like the key, got {:?}",
            value.dims()
        );
        assert!(
            new > 0,
            "KV cache: expected at least one new position, got 0"
        );
        let first = match &self.rows {
            Some(rows) => rows.each_ref(),
            None => [key, value],
        };
        let (dtype, device) = (first[0].dtype(), first[0].device());
        for (first, new) in first.into_iter().zip([key, value]) {
            let [first_batch, first_heads, _, first_width] = first.dims();
            let [batch, heads, _, width] = new.dims();
            assert!(
                [batch, heads, width] == [first_batch, first_heads, first_width],
                "KV cache: new rows must be [batch = {first_batch}, kv_heads = {first_heads}, new, \
                 {first_width}] like those in the cache, got {:?}",
                new.dims()
            );
            assert!(
                new.dtype() == dtype && new.device() == device,
                "KV cache: new rows must be {dtype:?} on {device:?} like those in the cache, got {:?} \
                 on {:?}",
                new.dtype(),
                new.device()
            );
        }
    }

    /// Writes the new rows, doubling the capacity if `filled` positions exceed it.
    fn write(&self, mut rows: Tensor<4>, new: Tensor<4>, filled: usize) -> Tensor<4> {
        let [_, _, capacity, _] = rows.dims();
        if filled > capacity {
            let target = (2 * capacity).max(filled).min(self.capacity_limit());
            rows = pad_rows(rows, [0, target - capacity], 0.0);
        }
        let [batch, heads, count, width] = new.dims();
        for (start, part) in self.ranges_of(count) {
            let target = start..start + part.len();
            let part = new.clone().slice_dim(2, part);
            rows = rows.slice_assign([0..batch, 0..heads, target, 0..width], part);
        }
        rows
    }

    /// The largest number of positions that are retained.
    fn capacity_limit(&self) -> usize {
        self.retained.saturating_add(self.first)
    }

    /// Where to write which of `new` rows: the first positions, and those of the ring buffer, which
    /// may wrap around.
    fn ranges_of(&self, new: usize) -> Vec<(usize, Range<usize>)> {
        let size = self.retained;
        let at_start = self.first.saturating_sub(self.len).min(new);
        // Of the others, only the last have to be written.
        let first = at_start.max(new.saturating_sub(size));
        let start = (self.len + first).saturating_sub(self.first) % size;
        let until_end = (new - first).min(size - start);
        let ranges = [
            (self.len, 0..at_start),
            (self.first + start, first..first + until_end),
            (self.first, first + until_end..new),
        ];
        ranges
            .into_iter()
            .filter(|(_, rows)| !rows.is_empty())
            .collect()
    }

    /// Removes all positions from `len` on.
    ///
    /// # Panics
    ///
    /// If this is a ring buffer, or there are fewer positions.
    pub fn truncate(&mut self, len: usize) {
        assert!(
            self.retained == usize::MAX && len <= self.len,
            "KV cache: cannot truncate from {} to {len} positions: it must retain every position \
             and have at least as many",
            self.len
        );
        self.len = len;
    }

    /// The cache of the sequences with these batch indices, in this order; an index may repeat.
    /// Panics if an index is out of range.
    #[must_use]
    pub fn select(&self, batch: &[usize]) -> Self {
        let select = |[keys, values]: [Tensor<4>; 2]| {
            let keys = select_batch(keys, batch);
            match self.has_shared_rows {
                true => [keys.clone(), keys],
                false => [keys, select_batch(values, batch)],
            }
        };
        Self {
            rows: self.rows.clone().map(select),
            ..*self
        }
    }

    fn allocate_like(&self, tensor: &Tensor<4>) -> Tensor<4> {
        let [batch, heads, new, width] = tensor.dims();
        let capacity = self.initial_capacity.max(new).min(self.capacity_limit());
        let options = (&tensor.device(), tensor.dtype());
        Tensor::zeros([batch, heads, capacity, width], options)
    }
}

/// The sequences with these batch indices, in this order.
pub(crate) fn select_batch<const D: usize>(tensor: Tensor<D>, indices: &[usize]) -> Tensor<D> {
    let batch = tensor.dims()[0];
    if let Some(index) = indices.iter().find(|index| **index >= batch) {
        panic!("KV cache: batch index {index} is out of range for batch size {batch}");
    }
    select_indices(tensor, 0, indices)
}
