//! Keys and values kept while text is generated, so that each is computed once.

use std::ops::Range;

use burn::tensor::{Int, Tensor, TensorData};

/// Keys and values of the places so far, in memory that is there before they are.
///
/// Either all of them, or, for a window, the last so many: then a new one takes the place
/// of the oldest, and their order is lost, which a softmax does not mind.
#[derive(Debug, Clone)]
pub struct KvCache {
    rows: Option<[Tensor<4>; 2]>,
    /// Places that were put in, over all time.
    length: usize,
    kept: Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// All; room for so many to begin with.
    All(usize),
    /// The last so many.
    Last(usize),
}

impl KvCache {
    /// Keeps everything. There is room for `capacity` places, and for twice as many
    /// whenever it runs out.
    pub fn new(capacity: usize) -> Self {
        Self {
            rows: None,
            length: 0,
            kept: Kept::All(capacity.max(1)),
        }
    }

    /// Keeps the last `size` places.
    ///
    /// # Panics
    ///
    /// If that is none.
    pub fn ring(size: usize) -> Self {
        assert!(size > 0, "a cache: it must keep a place at least, got 0");
        Self {
            rows: None,
            length: 0,
            kept: Kept::Last(size),
        }
    }

    /// Places that were put in so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was put in yet.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Numbers that are kept, of keys and values, without the room for more.
    pub fn numbers(&self) -> usize {
        let filled = match self.kept {
            Kept::All(_) => self.length,
            Kept::Last(size) => size.min(self.length),
        };
        let of = |rows: &Tensor<4>| {
            let [batch, kv_heads, _, width] = rows.dims();
            batch * kv_heads * filled * width
        };
        self.rows
            .as_ref()
            .map_or(0, |rows| rows.iter().map(of).sum())
    }

    /// Puts the keys and values of new places in; returns all that are kept.
    ///
    /// # Shapes
    ///
    /// - key: `[batch, kv_heads, new, d_head]`
    /// - value: `[batch, kv_heads, new, d_value]`
    /// - result: the same, with as many rows as are kept
    ///
    /// # Panics
    ///
    /// If the two do not fit together, there are none, or their sizes, dtype or device changed
    /// since the first. The cache is then what it was before.
    pub fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> [Tensor<4>; 2] {
        let (rooms, filled) = self.append_in_room(key, value);
        rooms.map(|rows| rows.slice_dim(2, 0..filled))
    }

    /// [`append`](Self::append) that returns all rows there is room for, and how many of
    /// them are filled: on some backends a part of a tensor is a copy.
    pub(crate) fn append_in_room(
        &mut self,
        key: Tensor<4>,
        value: Tensor<4>,
    ) -> ([Tensor<4>; 2], usize) {
        // The rows are taken out to be changed in place: nothing may fail from there on.
        self.check(&key, &value);
        let [_, _, new, _] = key.dims();
        let filled = match self.kept {
            Kept::All(_) => self.length + new,
            Kept::Last(size) => size.min(self.length + new),
        };
        let [keys, values] = match self.rows.take() {
            Some(rows) => rows,
            None => [&key, &value].map(|tensor| self.room_like(tensor)),
        };
        let rows = [
            self.with(keys, key, filled),
            self.with(values, value, filled),
        ];
        self.rows = Some(rows.clone());
        self.length += new;
        (rows, filled)
    }

    /// Panics unless new rows fit together and to those that are there.
    fn check(&self, key: &Tensor<4>, value: &Tensor<4>) {
        assert!(
            self.rows.is_some() || self.is_empty(),
            "a cache: an earlier append failed halfway, and its rows are lost; do: begin again with \
             a new cache"
        );
        let [batch, kv_heads, new, _] = key.dims();
        let [value_batch, value_heads, value_new, _] = value.dims();
        assert!(
            [batch, kv_heads, new] == [value_batch, value_heads, value_new],
            "a cache: value must be [batch = {batch}, kv_heads = {kv_heads}, new = {new}, d_value] \
             like the keys, got {:?}",
            value.dims()
        );
        assert!(new > 0, "a cache: at least one new row expected, got 0");
        let first = match &self.rows {
            Some(rows) => rows.each_ref(),
            None => [key, value],
        };
        let (dtype, device) = (first[0].dtype(), first[0].device());
        for (first, new) in first.into_iter().zip([key, value]) {
            let [own_batch, own_heads, _, own_width] = first.dims();
            let [batch, heads, _, width] = new.dims();
            assert!(
                [batch, heads, width] == [own_batch, own_heads, own_width],
                "a cache: new rows must be [batch = {own_batch}, kv_heads = {own_heads}, new, \
                 {own_width}] like the first, got {:?}",
                new.dims()
            );
            assert!(
                new.dtype() == dtype && new.device() == device,
                "a cache: new rows must be {dtype:?} on {device:?} like the first, got {:?} on {:?}",
                new.dtype(),
                new.device()
            );
        }
    }

    /// The rows, with room for so many, and the new ones in their places.
    fn with(&self, mut rows: Tensor<4>, new: Tensor<4>, filled: usize) -> Tensor<4> {
        let [_, _, capacity, _] = rows.dims();
        if filled > capacity {
            rows = doubled(rows, filled, self.kept);
        }
        for (at, part) in self.places_of(new.dims()[2]) {
            rows = put(rows, new.clone().slice_dim(2, part), at);
        }
        rows
    }

    /// Where which of so many new rows go: one piece, or in a ring two, around its end,
    /// of those that it keeps.
    fn places_of(&self, new: usize) -> Vec<(usize, Range<usize>)> {
        let size = match self.kept {
            Kept::All(_) => return vec![(self.length, 0..new)],
            Kept::Last(size) => size,
        };
        let first = new.saturating_sub(size);
        let at = (self.length + first) % size;
        let to_the_end = (new - first).min(size - at);
        let mut pieces = vec![(at, first..first + to_the_end)];
        if first + to_the_end < new {
            pieces.push((0, first + to_the_end..new));
        }
        pieces
    }

    /// Forgets all places from the `length`-th on; their rows are written over.
    ///
    /// # Panics
    ///
    /// If this is a ring, which has forgotten others by then, or there are fewer.
    pub fn truncate(&mut self, length: usize) {
        assert!(
            matches!(self.kept, Kept::All(_)) && length <= self.length,
            "a cache: one that keeps all of its {} places can go back, not this one to {length}",
            self.length
        );
        self.length = length;
    }

    /// The cache of these examples of the batch, in this order: some of them, some several
    /// times.
    ///
    /// # Panics
    ///
    /// If there is no such example.
    #[must_use]
    pub fn select(&self, examples: &[usize]) -> Self {
        Self {
            rows: (self.rows.clone()).map(|rows| rows.map(|rows| examples_of(rows, examples))),
            ..*self
        }
    }

    /// Empty rows for tensors like this one.
    fn room_like(&self, tensor: &Tensor<4>) -> Tensor<4> {
        let [batch, heads, new, width] = tensor.dims();
        let capacity = match self.kept {
            Kept::All(capacity) => capacity.max(new),
            // Grown into: a window may be wider than anything that comes.
            Kept::Last(size) => size.min(64),
        };
        let options = (&tensor.device(), tensor.dtype());
        Tensor::zeros([batch, heads, capacity, width], options)
    }
}

/// These examples of a batch, in this order. Where they are all there were, nothing is copied.
pub(crate) fn examples_of(tensor: Tensor<4>, examples: &[usize]) -> Tensor<4> {
    let [batch, ..] = tensor.dims();
    if let Some(missing) = examples.iter().find(|example| **example >= batch) {
        panic!("a cache: it has {batch} examples, and none of number {missing}");
    }
    if examples.len() == batch && examples.iter().copied().eq(0..batch) {
        return tensor;
    }
    let numbers: Vec<i64> = examples.iter().map(|example| *example as i64).collect();
    let numbers = TensorData::new(numbers, [examples.len()]);
    let numbers = Tensor::<1, Int>::from_data(numbers, &tensor.device());
    tensor.select(0, numbers)
}

fn put(rows: Tensor<4>, new: Tensor<4>, at: usize) -> Tensor<4> {
    let [batch, heads, count, width] = new.dims();
    rows.slice_assign([0..batch, 0..heads, at..at + count, 0..width], new)
}

/// The same rows in twice the room, or what is needed, and no more than will ever be.
fn doubled(rows: Tensor<4>, needed: usize, kept: Kept) -> Tensor<4> {
    let [batch, heads, capacity, width] = rows.dims();
    let wanted = (2 * capacity).max(needed);
    let wanted = match kept {
        Kept::All(_) => wanted,
        Kept::Last(size) => wanted.min(size),
    };
    let more = wanted - capacity;
    let options = (&rows.device(), rows.dtype());
    let room = Tensor::zeros([batch, heads, more, width], options);
    Tensor::cat(vec![rows, room], 2)
}
