//! Scratch memory for the tiles, chunks or panels of a task, reused by the thread.

use std::cell::RefCell;

thread_local! {
    /// Unused buffers of this thread.
    static POOL: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer from the pool of the thread.
///
/// It is split into slices instead of being passed to a closure: a closure would be compiled
/// without the target features of the function that contains it.
pub struct Scratch(Vec<f32>);

impl Scratch {
    /// Takes a buffer from the pool, or creates one.
    pub fn take() -> Self {
        Self(POOL.with_borrow_mut(Vec::pop).unwrap_or_default())
    }

    /// Slices of the given lengths, each aligned to a cache line, with unspecified contents.
    pub fn split<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        const LINE: usize = 16;
        let total: usize = lengths.iter().map(|l| l.next_multiple_of(LINE)).sum();
        if self.0.len() < total + LINE {
            self.0.resize(total + LINE, 0.0);
        }
        let skip = self.0.as_ptr().align_offset(64).min(LINE);
        let mut rest = &mut self.0[skip..];
        lengths.map(|length| {
            let (slice, after) =
                std::mem::take(&mut rest).split_at_mut(length.next_multiple_of(LINE));
            rest = after;
            &mut slice[..length]
        })
    }
}

/// The largest buffer to return to the pool, in elements: 4 MiB. For larger ones an allocation is
/// cheap compared with the work done in them.
const MAX_POOLED: usize = 1 << 20;

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.len() > MAX_POOLED {
            return;
        }
        let buffer = std::mem::take(&mut self.0);
        // Fails if the thread is being destroyed; the buffer is then freed.
        let _ = POOL.try_with(|pool| pool.borrow_mut().push(buffer));
    }
}
