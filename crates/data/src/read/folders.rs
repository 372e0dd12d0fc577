//! Labelled documents as files: one folder per class, in a directory or a `.zip`.

use std::fs;
use std::path::{Path, PathBuf};

use super::Dataset;
use super::content::{Archive, Content, extension};
use super::labelled::labelled;
use crate::labels::one_label;
use crate::{DataError, Labelled};

/// Reads documents in the order of their paths.
pub(super) fn read(path: &Path) -> Result<Dataset<Labelled>, DataError> {
    match extension(path).as_str() {
        "zip" => {
            let mut archive = Archive::read(path)?;
            let entries = archive.entries.clone();
            let names: Vec<String> = entries.iter().map(|(name, _)| name.clone()).collect();
            documents(path, &names, |i| archive.content(entries[i].1))
        }
        _ => {
            let mut files = vec![];
            walk(path, &mut vec![], &mut files)?;
            files.sort();
            let relative = files.iter().map(|file| {
                let parts = file.strip_prefix(path).unwrap_or(file).iter();
                let parts: Vec<_> = parts.map(|part| part.to_string_lossy()).collect();
                parts.join("/")
            });
            let names: Vec<String> = relative.collect();
            documents(path, &names, |i| Content::read(&files[i]))
        }
    }
}

/// Reads the text files among `files` as documents.
fn documents(
    path: &Path,
    files: &[String],
    mut content: impl FnMut(usize) -> Result<Content, DataError>,
) -> Result<Dataset<Labelled>, DataError> {
    let mut dataset = Dataset::new(&path.display().to_string());
    let is_text = |name: &str| {
        let name = name.to_lowercase();
        name.ends_with(".txt") || name.ends_with(".txt.gz")
    };
    // Parent folders of each file.
    let mut folders: Vec<Vec<&str>> = files.iter().map(|it| it.split('/').collect()).collect();
    for parts in &mut folders {
        parts.pop();
    }
    let texts = || (0..files.len()).filter(|i| is_text(&files[*i]));
    // Archives often have a common parent folder around the classes.
    let depth = common_depth(texts().map(|i| folders[i].as_slice()));
    for (i, name) in files.iter().enumerate() {
        if !is_text(name) {
            dataset.report.ignored.push(name.clone());
            continue;
        }
        let Some(class) = folders[i].get(depth) else {
            let reason = Err("not in the folder of a class".to_owned());
            dataset.add(&format!("{}/{name}", path.display()), 1, reason, "");
            continue;
        };
        let document = content(i)?;
        dataset.add(&document.name, 1, labelled(class, &document.text), "");
    }
    let mut labels = dataset.examples.iter().map(|it| it.label.as_str());
    match labels.next() {
        Some(first) if labels.all(|label| label == first) => {
            Err(one_label(&path.display().to_string(), first))
        }
        _ => Ok(dataset),
    }
}

/// Number of leading folders that all paths have in common. At least one folder is left as the
/// class.
fn common_depth<'a>(mut paths: impl Iterator<Item = &'a [&'a str]>) -> usize {
    let Some(first) = paths.next() else {
        return 0;
    };
    let mut common = first.len();
    let mut deepest = first.len();
    for path in paths {
        let same = first.iter().zip(path).take_while(|(a, b)| a == b).count();
        common = common.min(same);
        deepest = deepest.max(path.len());
    }
    common.min(deepest.saturating_sub(1))
}

/// Collects the files of a folder recursively. `parents` are its canonical parent folders, to
/// detect symlink cycles.
fn walk(
    folder: &Path,
    parents: &mut Vec<PathBuf>,
    files: &mut Vec<PathBuf>,
) -> Result<(), DataError> {
    let failed = |error| DataError::file(folder, &error);
    let real = folder.canonicalize().map_err(failed)?;
    if parents.contains(&real) {
        let reason = "the symlink points to a parent folder\n  help: remove it";
        return Err(failed(std::io::Error::other(reason)));
    }
    parents.push(real);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            walk(&path, parents, files)?;
        } else {
            files.push(path);
        }
    }
    parents.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabelledText;
    use crate::test_files::Folder;

    #[test]
    fn folders_and_archives_with_and_without_a_common_parent() {
        let folder = Folder::new();
        let files = [
            ("pos/1.txt", "好\n"),
            ("neg/2.txt", "worse"),
            ("neg/1.txt", "bad"),
        ];
        let nested = [
            ("reviews/", ""),
            ("reviews/README", "about"),
            ("reviews/pos/1.txt", "好\n"),
            ("reviews/neg/2.txt", "worse"),
            ("reviews/neg/1.txt", "bad"),
        ];
        folder.file("all/pos/1.txt", "好");
        folder.file("all/neg/1.txt", "bad");
        folder.gz("all/neg/deeper/2.txt.gz", b"worse");
        let nested = folder.zip("nested.zip", &nested);
        for path in [&nested, &folder.zip("a.zip", &files), &folder.path("all")] {
            let read = LabelledText::folders(path).read().unwrap();
            let examples = read.examples.iter().map(|it| (&*it.label, &*it.text));
            let expected = [("neg", "bad"), ("neg", "worse"), ("pos", "好")];
            assert_eq!(examples.collect::<Vec<_>>(), expected);
        }
        let report = LabelledText::folders(nested).read().unwrap().report;
        assert_eq!(report.ignored, ["reviews/README"]);
        let shown = report.to_string();
        assert!(shown.ends_with("\n  ignored 1 other files, for example reviews/README"));
    }

    #[test]
    fn blank_documents_and_files_outside_of_a_class_are_bad() {
        let folder = Folder::new();
        folder.file("all/stray.txt", b"x");
        folder.file("all/a/1.txt", b"one");
        folder.file("all/a/2.txt", b" \n");
        folder.file("all/b/1.txt", b"two");
        let text = LabelledText::folders(folder.path("all"));
        let read = text.clone().with_max_malformed(0.5).read().unwrap();
        assert_eq!(read.report.num_examples, 2);
        let bad = &read.report.first_bad;
        assert!(bad[0].ends_with("line 1: the text is blank"), "{bad:?}");
        assert!(bad[1].ends_with("not in the folder of a class"), "{bad:?}");
        assert_eq!(read.report.bad, 2);
        assert!(matches!(text.read(), Err(DataError::TooManyBad { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn symlink_cycles_are_rejected() {
        use std::os::unix::fs::symlink;

        let folder = Folder::new();
        folder.file("all/a/1.txt", b"one");
        folder.file("elsewhere/2.txt", b"two");
        symlink(folder.path("elsewhere"), folder.path("all/b")).unwrap();
        let read = || LabelledText::folders(folder.path("all")).read();
        // Links to other folders are followed.
        assert_eq!(read().unwrap().examples.len(), 2);
        for link in ["all/a/again", "all/a/once-more"] {
            symlink(folder.path("all"), folder.path(link)).unwrap();
        }
        let error = read().unwrap_err().to_string();
        let expected = "the symlink points to a parent folder";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn single_classes_missing_data_and_invalid_utf8_are_rejected() {
        let folder = Folder::new();
        for (name, text) in [
            ("one/a/1.txt", &b"one"[..]),
            ("one/a/2.txt", b"two"),
            ("none/readme.md", b"about"),
            ("latin/a/1.txt", b"one"),
            ("latin/b/1.txt", b"one\n\xff"),
        ] {
            folder.file(name, text);
        }
        for (name, part) in [
            ("one", "one: all examples have the label \"a\""),
            ("none", "none has no examples"),
            ("missing", "missing: No such file"),
            ("latin", "1.txt, line 2: "),
        ] {
            let error = LabelledText::folders(folder.path(name)).read();
            let error = error.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
