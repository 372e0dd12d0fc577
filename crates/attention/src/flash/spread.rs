//! Numbers for every pair of query and key, some of them standing for many.

/// Numbers of `[batch, heads, seq_q, seq_k]` on the host, where a size of 1 stands for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread<'a, T> {
    numbers: &'a [T],
    /// How far apart neighbours lie; zero where one stands for all.
    strides: [usize; 4],
}

impl<'a, T: Copy> Spread<'a, T> {
    /// Numbers of `dims`, row by row.
    pub(crate) fn new(numbers: &'a [T], dims: [usize; 4]) -> Self {
        assert_eq!(numbers.len(), dims.iter().product::<usize>());
        let mut strides = [0; 4];
        let mut stride = 1;
        for dim in (0..4).rev() {
            if dims[dim] > 1 {
                strides[dim] = stride;
            }
            stride *= dims[dim];
        }
        Self { numbers, strides }
    }

    /// The number for `[example, head, query, key]`.
    #[inline(always)]
    pub(crate) fn at(&self, place: [usize; 4]) -> T {
        let offset: usize = place.iter().zip(self.strides).map(|(at, by)| at * by).sum();
        self.numbers[offset]
    }
}
