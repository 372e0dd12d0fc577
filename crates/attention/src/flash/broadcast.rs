//! Host tensors that broadcast to the shape of the scores.

/// Values that broadcast to `[batch, heads, seq_q, seq_k]`; any dimension may be 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Broadcast<'a, T> {
    values: &'a [T],
    /// Zero for broadcast dimensions.
    strides: [usize; 4],
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
            stride *= dims[dim];
        }
        Self { values, strides }
    }

    /// The value at `[example, head, query, key]`.
    #[inline(always)]
    pub(crate) fn get(&self, index: [usize; 4]) -> T {
        let offset: usize = index.iter().zip(self.strides).map(|(i, by)| i * by).sum();
        self.values[offset]
    }
}
