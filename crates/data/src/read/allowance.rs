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
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            DataError::Refused(format!(
                "{} would become more than {} MiB, which no text of its size does: it is not read. \
                 If you know what it is, unpack it and name what is in it",
                path.display(),
                self.most >> 20
            ))
        })?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_up_and_nothing_is_read_beyond_it() {
        let most = 10 << 20;
        let mut allowance = Allowance { most, left: 10 };
        let mut read = |bytes: &mut dyn Read| allowance.read(Path::new("a.zip"), bytes);
        assert_eq!(read(&mut &b"1234567"[..]).unwrap(), b"1234567");
        assert_eq!(read(&mut &b"890"[..]).unwrap(), b"890");
        let error = read(&mut std::io::repeat(b'a')).unwrap_err().to_string();
        assert!(
            error.starts_with("a.zip would become more than 10 MiB"),
            "{error}"
        );
    }

    #[test]
    fn a_large_file_may_become_larger() {
        assert_eq!(Allowance::of(0).most, ALWAYS);
        assert_eq!(Allowance::of(1 << 30).most, 100 << 30);
    }
}
