//! Slices adjacent to inaccessible pages: an access out of bounds crashes the test.

use std::ptr;

/// The side of the slice with the adjacent guard page.
#[derive(Clone, Copy)]
pub(crate) enum Edge {
    Start,
    End,
}

/// A slice between two inaccessible pages, adjacent to one of them.
pub(crate) struct Guarded<T = f32> {
    pages: *mut libc::c_void,
    bytes: usize,
    values: *mut T,
    len: usize,
}

impl<T: Copy> Guarded<T> {
    pub(crate) fn new(values: &[T], edge: Edge) -> Self {
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
            let first = first.cast::<T>();
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

impl<T> AsMut<[T]> for Guarded<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: `new` wrote `len` values there.
        unsafe { std::slice::from_raw_parts_mut(self.values, self.len) }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new` is released once.
        unsafe { libc::munmap(self.pages, self.bytes) };
    }
}
