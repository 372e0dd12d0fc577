//! All relative links of Markdown pages point to existing files and headings.

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("in the workspace").to_owned()
}

/// Collects every Markdown page below a folder, without generated folders.
fn pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_source = !name.starts_with('.')
            && !["bench-results", "data", "runs", "target"].contains(&name.as_ref());
        if path.is_dir() && is_source && !path.join("CACHEDIR.TAG").is_file() {
            self::pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// Where the links of a page lead, but for those to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let behind = text.split("](").skip(1);
    let links = behind.filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let anchor = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    anchor.collect()
}

#[test]
fn links_are_valid() {
    let mut all = Vec::new();
    pages(&workspace(), &mut all);
    let mut count = 0;
    for page in all {
        let text = fs::read_to_string(&page).expect("text");
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = match file {
                "" => page.clone(),
                file => page.parent().expect("in a folder").join(file),
            };
            assert!(to.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let target = fs::read_to_string(&to).expect("text");
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let exists = headings.any(|line| anchor(line) == heading);
                assert!(exists, "{}: {link}", page.display());
            }
            count += 1;
        }
    }
    assert!(count >= 50, "only {count} links were found");
}
