//! Room for the tiles of a task, without an allocation for each.

use std::cell::RefCell;

thread_local! {
    /// Room that no task of this thread has at the moment.
    static KEPT: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Room for the tiles of a task, kept by its thread from one to the next.
///
/// Handed out as slices and not to a closure: a closure would be compiled without
/// the instructions of the function it stands in.
pub(super) struct Scratch(Vec<f32>);

impl Scratch {
    /// Takes room that this thread has, or makes some.
    pub(super) fn take() -> Self {
        Self(KEPT.with_borrow_mut(Vec::pop).unwrap_or_default())
    }

    /// Pieces of the given lengths, each beginning on a cache line, with whatever numbers
    /// were left there.
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

/// Numbers that are worth keeping: 4 MiB. What takes more pays for new memory by the
/// work it does in it.
const KEPT_AT_MOST: usize = 1 << 20;

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.len() > KEPT_AT_MOST {
            return;
        }
        // A thread at its end has no place to keep it any more.
        let room = std::mem::take(&mut self.0);
        let _ = KEPT.try_with(|kept| kept.borrow_mut().push(room));
    }
}
