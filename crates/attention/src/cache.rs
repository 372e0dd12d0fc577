//! Keys and values kept while text is generated, so that each is computed once.

use burn::tensor::Tensor;

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

/// How many are kept.
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
    /// If a ring is given more than one place at a time, or the sizes changed since the
    /// first.
    pub fn append(&mut self, key: Tensor<4>, value: Tensor<4>) -> [Tensor<4>; 2] {
        let [_, _, new, _] = key.dims();
        let (at, filled) = match self.kept {
            Kept::All(_) => (self.length, self.length + new),
            Kept::Last(size) => {
                assert!(
                    new == 1,
                    "a cache: a ring takes one place at a time, got {new}"
                );
                (self.length % size, size.min(self.length + 1))
            }
        };
        let rows = match self.rows.take() {
            Some(rows) => rows,
            None => [&key, &value].map(|tensor| self.room_like(tensor)),
        };
        let [_, _, capacity, _] = rows[0].dims();
        let rows = rows.map(|rows| match filled > capacity {
            true => doubled(rows, filled, self.kept),
            false => rows,
        });
        let mut new_rows = [key, value].into_iter();
        let rows = rows.map(|rows| match new_rows.next() {
            Some(new_rows) => put(rows, new_rows, at),
            None => rows,
        });
        let all = rows
            .each_ref()
            .map(|rows| rows.clone().slice_dim(2, 0..filled));
        self.rows = Some(rows);
        self.length += new;
        all
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

fn put(rows: Tensor<4>, new: Tensor<4>, at: usize) -> Tensor<4> {
    let [batch, heads, count, width] = new.dims();
    let [own_batch, own_heads, _, own_width] = rows.dims();
    assert!(
        [batch, heads, width] == [own_batch, own_heads, own_width],
        "a cache: new rows must be [batch = {own_batch}, kv_heads = {own_heads}, new, {own_width}] \
         like the first, got {:?}",
        new.dims()
    );
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
