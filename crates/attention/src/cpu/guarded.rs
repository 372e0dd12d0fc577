//! Slices adjacent to inaccessible pages: an access out of bounds crashes the test.

use std::ptr;

/// The side of the slice with the adjacent guard page.
#[derive(Clone, Copy)]
pub(crate) enum Edge {
    Start,
    End,
}

/// A slice between two inaccessible pages, adjacent to one of them.
pub(crate) struct Guarded {
    pages: *mut libc::c_void,
    bytes: usize,
    values: *mut f32,
    len: usize,
}

impl Guarded {
    pub(crate) fn new(values: &[f32], edge: Edge) -> Self {
        let size = size_of_val(values);
        // SAFETY: the pages are freshly mapped, and the values fit into those made accessible.
        unsafe {
            let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).expect("page size");
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
            let result = libc::mprotect(middle, inside, libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(result, 0);
            let first = match edge {
                Edge::Start => middle,
                Edge::End => middle.add(inside - size),
            };
            let first = first.cast::<f32>();
            first.copy_from_nonoverlapping(values.as_ptr(), values.len());
            Self {
                pages,
                bytes,
                values: first,
                len: values.len(),
            }
        }
    }
}

impl AsMut<[f32]> for Guarded {
    fn as_mut(&mut self) -> &mut [f32] {
        // SAFETY: `new` wrote `len` values there.
        unsafe { std::slice::from_raw_parts_mut(self.values, self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new` is released once.
        unsafe { libc::munmap(self.pages, self.bytes) };
    }
}
