//! Host tensors that broadcast to the shape of the scores.

/// Values that broadcast to `[batch, heads, seq_q, seq_k]`; any dimension may be 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Broadcast<'a, T> {
    values: &'a [T],
    /// Zero for broadcast dimensions.
    strides: [isize; 4],
    /// The index of the first element.
    offset: isize,
}

impl<'a, T: Copy> Broadcast<'a, T> {
    /// Contiguous values of shape `dims`.
    pub(crate) fn new(values: &'a [T], dims: [usize; 4]) -> Self {
        assert_eq!(values.len(), dims.iter().product::<usize>());
        let mut strides = [0; 4];
        let mut stride = 1;
        for dim in (0..4).rev() {
            if dims[dim] > 1 {
                strides[dim] = stride;
            }
            stride *= dims[dim] as isize;
        }
        Self {
            values,
            strides,
            offset: 0,
        }
    }

    /// Values for each head and relative position of query and key, `[heads, seq_q + seq_k - 1]`.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn relative(values: &'a [T], seq_q: usize, seq_k: usize) -> Self {
        let distances = seq_q + seq_k - 1;
        assert!(values.len().is_multiple_of(distances));
        let by_head = if values.len() == distances {
            0
        } else {
            distances
        };
        Self {
            values,
            strides: [0, by_head as isize, -1, 1],
            offset: seq_q as isize - 1,
        }
    }

    /// The value at `[example, head, query, key]`.
    #[inline(always)]
    pub(crate) fn get(&self, index: [usize; 4]) -> T {
        let mut at = self.offset;
        for (i, by) in index.iter().zip(self.strides) {
            at += *i as isize * by;
        }
        self.values[at as usize]
    }
}
