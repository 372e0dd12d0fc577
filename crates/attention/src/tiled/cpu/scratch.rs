//! Room for the tiles of a task, without an allocation for each.

use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Room for the tiles of a task, kept by its thread from one to the next.
///
/// Handed out as slices and not to a closure: a closure would be compiled without
/// the instructions of the function it stands in.
pub(super) struct Scratch(Vec<f32>);

impl Scratch {
    /// Takes this thread's room. A task that is lent to the thread while another
    /// waits on it finds none, and gets its own.
    pub(super) fn take() -> Self {
        Self(KEPT.take())
    }

    /// Pieces of the given lengths, each beginning on a cache line.
    pub(super) fn split<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        const LINE: usize = 16;
        let total: usize = lengths.iter().map(|l| l.next_multiple_of(LINE)).sum();
        if self.0.len() < total + LINE {
            self.0.resize(total + LINE, 0.0);
        }
        let skip = self.0.as_ptr().align_offset(64).min(LINE);
        let mut rest = &mut self.0[skip..];
        lengths.map(|length| {
            let (piece, after) =
                std::mem::take(&mut rest).split_at_mut(length.next_multiple_of(LINE));
            rest = after;
            &mut piece[..length]
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A thread at its end has no place to keep it any more.
        let _ = KEPT.try_with(|kept| kept.replace(std::mem::take(&mut self.0)));
    }
}
