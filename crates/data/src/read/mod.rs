//! Readers of text files.

mod content;
mod csv;
mod folders;
mod labelled;
mod parallel;
mod report;

use std::path::Path;

use self::content::Content;
pub use self::labelled::LabelledText;
pub use self::parallel::ParallelText;
pub use self::report::{Dataset, ReadReport};
use crate::DataError;

/// Default fraction of lines that may be bad: a few typos in a large file are fine, a wrong column
/// is not.
const MAX_MALFORMED: f64 = 0.01;

/// Reads a whole file as running text with `\n` line ends. Decompression is limited to 64 MiB or a
/// hundred times the size of the file, whichever is larger.
///
/// # Errors
///
/// [`DataError::Empty`] if the file is blank; otherwise the errors of [`DataError`] for files,
/// archives and encodings.
pub fn plain_text(path: &Path) -> Result<String, DataError> {
    let content = Content::read(path)?;
    if content.text.trim().is_empty() {
        return Err(DataError::empty(content.name));
    }
    Ok(content.text.replace("\r\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    #[test]
    fn plain_text_keeps_whitespace() {
        let folder = Folder::new();
        let path = folder.gz("play.txt.gz", "First:\r\n  Hear me.\n\nAll:\n".as_bytes());
        assert_eq!(plain_text(&path).unwrap(), "First:\n  Hear me.\n\nAll:\n");
        let error = plain_text(&folder.file("blank.txt", b" \n\n")).unwrap_err();
        assert!(error.to_string().ends_with("blank.txt has no examples"));
    }
}
