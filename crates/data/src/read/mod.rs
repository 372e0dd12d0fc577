//! Examples from files.

mod content;
mod folders;
mod labelled;
mod parallel;
mod report;
mod table;

use std::path::Path;

use self::content::Content;
pub use self::labelled::LabelledText;
pub use self::parallel::ParallelText;
pub use self::report::{Read, ReadReport};
use crate::DataError;

/// The share of lines that may be bad, if nobody says otherwise: a slip in a large file is
/// no reason not to train, a wrong column is.
const ALLOWED_BAD: f64 = 0.01;

/// A whole file as running text, ends of lines as `\n`. What is packed may become 64 MiB, or
/// a hundred times what the file has.
///
/// # Errors
///
/// [`DataError::Empty`] if there is nothing but blanks in it; otherwise what [`DataError`] has
/// for files, archives and encodings.
pub fn plain_text(path: &Path) -> Result<String, DataError> {
    let content = Content::read(path)?;
    if content.text.trim().is_empty() {
        return Err(DataError::Empty { what: content.name });
    }
    Ok(content.text.replace("\r\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::Folder;

    #[test]
    fn running_text_is_kept_as_it_is() {
        let folder = Folder::new();
        let path = folder.gz("play.txt.gz", "First:\r\n  Hear me.\n\nAll:\n".as_bytes());
        assert_eq!(plain_text(&path).unwrap(), "First:\n  Hear me.\n\nAll:\n");
        let error = plain_text(&folder.file("blank.txt", b" \n\n")).unwrap_err();
        assert!(error.to_string().ends_with("blank.txt has no examples"));
    }
}
