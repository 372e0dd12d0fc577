//! How large a packed file may become.
//!
//! A file of a few kilobytes can be written that unpacks to more than any machine holds. Text
//! is a third to a tenth of its size when it is packed, tables of numbers a little less.

use std::io::Read;
use std::path::Path;

use super::content::damaged;
use crate::DataError;

/// What becomes more than so many times as large is no text.
const MOST_TIMES: u64 = 100;
/// What the smallest file may become, in bytes: a short text that says the same over and over.
const ALWAYS: u64 = 64 << 20;

/// What may still be unpacked of one file, in bytes. The files of an archive share it: they
/// can lie on top of each other.
#[derive(Debug)]
pub(super) struct Allowance {
    most: u64,
    left: u64,
}

impl Allowance {
    /// That of a file of this size.
    pub(super) fn of(packed: usize) -> Self {
        let most = (packed as u64).saturating_mul(MOST_TIMES).max(ALWAYS);
        Self { most, left: most }
    }

    /// Reads to the end, or until it is too much.
    pub(super) fn read(&mut self, path: &Path, packed: impl Read) -> Result<Vec<u8>, DataError> {
        let mut bytes = vec![];
        packed
            .take(self.left.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| damaged(path, &error))?;
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => self.left = left,
            None => {
                return Err(DataError::TooLarge {
                    path: path.to_owned(),
                    most: self.most,
                });
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_up() {
        let mut allowance = Allowance { most: 10, left: 10 };
        let mut read = |bytes: &[u8]| allowance.read(Path::new("a.zip"), bytes);
        assert_eq!(read(b"1234567").unwrap(), b"1234567");
        assert_eq!(read(b"890").unwrap(), b"890");
        let error = read(b"1").unwrap_err();
        assert!(matches!(error, DataError::TooLarge { most: 10, .. }));
    }

    #[test]
    fn nothing_is_read_beyond_it() {
        let mut allowance = Allowance { most: 10, left: 10 };
        let mut endless = std::io::repeat(b'a');
        assert!(allowance.read(Path::new("a.gz"), &mut endless).is_err());
    }

    #[test]
    fn a_large_file_may_become_larger() {
        assert_eq!(Allowance::of(0).most, ALWAYS);
        assert_eq!(Allowance::of(1 << 30).most, 100 << 30);
    }
}
