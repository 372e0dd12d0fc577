//! A folder for each class, a file for each document; in a folder or in a `.zip`.

use std::fs;
use std::path::{Path, PathBuf};

use super::Read;
use super::content::{Archive, Content, extension};
use super::labelled::labelled;
use crate::labels::one_label;
use crate::{DataError, Labelled};

/// Reads them in the order of their names.
pub(super) fn read(path: &Path) -> Result<Read<Labelled>, DataError> {
    match extension(path).as_str() {
        "zip" => {
            let mut archive = Archive::read(path)?;
            let entries = archive.entries.clone();
            let names: Vec<String> = entries.iter().map(|(name, _)| name.clone()).collect();
            documents(path, &names, |at| archive.content(entries[at].1))
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
            documents(path, &names, |at| Content::read(&files[at]))
        }
    }
}

/// Files with paths, of which the texts are documents.
fn documents(
    path: &Path,
    files: &[String],
    mut content: impl FnMut(usize) -> Result<Content, DataError>,
) -> Result<Read<Labelled>, DataError> {
    let mut read = Read::of(&path.display().to_string());
    let is_text = |name: &str| {
        let name = name.to_lowercase();
        name.ends_with(".txt") || name.ends_with(".txt.gz")
    };
    // Of each file, without its own name.
    let mut folders: Vec<Vec<&str>> = files.iter().map(|it| it.split('/').collect()).collect();
    for parts in &mut folders {
        parts.pop();
    }
    let texts = || (0..files.len()).filter(|at| is_text(&files[*at]));
    // Archives often have all classes in one folder more.
    let around = shared(texts().map(|at| folders[at].as_slice()));
    for (at, name) in files.iter().enumerate() {
        if !is_text(name) {
            read.report.ignored.push(name.clone());
            continue;
        }
        let Some(class) = folders[at].get(around) else {
            let why = Err("it is in no folder of a class".to_owned());
            read.add(&format!("{}/{name}", path.display()), 1, why, "");
            continue;
        };
        let document = content(at)?;
        read.add(&document.name, 1, labelled(class, &document.text), "");
    }
    let mut labels = read.examples.iter().map(|it| it.label.as_str());
    match labels.next() {
        Some(first) if labels.all(|label| label == first) => {
            Err(one_label(&path.display().to_string(), first))
        }
        _ => Ok(read),
    }
}

/// How many first folders all have in common; at least one is left to be the class where
/// all texts lie in one folder.
fn shared<'a>(mut paths: impl Iterator<Item = &'a [&'a str]>) -> usize {
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

/// The files of a folder and of all within. `around` are the folders that it lies in: a link
/// to one of them would go round for ever.
fn walk(
    folder: &Path,
    around: &mut Vec<PathBuf>,
    files: &mut Vec<PathBuf>,
) -> Result<(), DataError> {
    let failed = |error| DataError::file(folder, &error);
    let real = folder.canonicalize().map_err(failed)?;
    if around.contains(&real) {
        let why = "it is a link to a folder that it lies in; remove it";
        return Err(failed(std::io::Error::other(why)));
    }
    around.push(real);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match path.is_dir() {
            true => walk(&path, around, files)?,
            false => files.push(path),
        }
    }
    around.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabelledText;
    use crate::test_files::Folder;

    #[test]
    fn archives_with_and_without_a_folder_around_the_classes_and_folders() {
        let folder = Folder::new();
        let files = [
            ("pos/1.txt", "好\n"),
            ("neg/2.txt", "worse"),
            ("neg/1.txt", "bad"),
        ];
        let around = [
            ("reviews/", ""),
            ("reviews/README", "about"),
            ("reviews/pos/1.txt", "好\n"),
            ("reviews/neg/2.txt", "worse"),
            ("reviews/neg/1.txt", "bad"),
        ];
        folder.file("all/pos/1.txt", "好");
        folder.file("all/neg/1.txt", "bad");
        folder.gz("all/neg/deeper/2.txt.gz", b"worse");
        let around = folder.zip("around.zip", &around);
        for path in [&around, &folder.zip("a.zip", &files), &folder.path("all")] {
            let read = LabelledText::folders(path).read().unwrap();
            let examples = read.examples.iter().map(|it| (&*it.label, &*it.text));
            let expected = [("neg", "bad"), ("neg", "worse"), ("pos", "好")];
            assert_eq!(examples.collect::<Vec<_>>(), expected);
        }
        let report = LabelledText::folders(around).read().unwrap().report;
        assert_eq!(report.ignored, ["reviews/README"]);
        let shown = report.to_string();
        assert!(shown.ends_with("\n  1 files are no examples, reviews/README among them"));
    }

    #[test]
    fn documents_outside_of_a_class_and_blank_ones_are_bad() {
        let folder = Folder::new();
        folder.file("all/stray.txt", b"x");
        folder.file("all/a/1.txt", b"one");
        folder.file("all/a/2.txt", b" \n");
        folder.file("all/b/1.txt", b"two");
        let text = LabelledText::folders(folder.path("all"));
        let read = text.clone().with_allowed_bad(0.5).read().unwrap();
        assert_eq!(read.report.kept, 2);
        let expected = ["the text is blank", "it is in no folder of a class"];
        let mut bad = read.report.first_bad.iter().zip(expected);
        assert!(
            bad.all(|(shown, why)| shown.ends_with(why)),
            "{}",
            read.report
        );
        assert_eq!(read.report.bad, 2);
        assert!(matches!(text.read(), Err(DataError::TooManyBad { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_goes_round_is_named() {
        use std::os::unix::fs::symlink;

        let folder = Folder::new();
        folder.file("all/a/1.txt", b"one");
        folder.file("elsewhere/2.txt", b"two");
        symlink(folder.path("elsewhere"), folder.path("all/b")).unwrap();
        let read = || LabelledText::folders(folder.path("all")).read();
        assert_eq!(
            read().unwrap().examples.len(),
            2,
            "a link elsewhere is fine"
        );
        for link in ["all/a/again", "all/a/once-more"] {
            symlink(folder.path("all"), folder.path(link)).unwrap();
        }
        let error = read().unwrap_err().to_string();
        assert!(
            error.ends_with("it is a link to a folder that it lies in; remove it"),
            "{error}"
        );
    }

    #[test]
    fn one_class_none_and_a_wrong_encoding() {
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
            (
                "one",
                "one: all examples have the label \"a\": there is nothing to tell apart",
            ),
            ("none", "none has no examples"),
            ("missing", "missing: No such file"),
            ("latin", "1.txt, line 2: byte 4 of the file is not UTF-8"),
        ] {
            let error = LabelledText::folders(folder.path(name)).read();
            let error = error.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
