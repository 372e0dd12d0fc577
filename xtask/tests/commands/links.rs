//! The links of all pages lead somewhere: to a file that is there, and to a heading that it has.

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("in the workspace").to_owned()
}

/// Every page below a folder, but for what was built or measured.
fn pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = !name.starts_with('.')
            && !["bench-results", "data", "runs", "target"].contains(&name.as_ref());
        if path.is_dir() && is_ours && !path.join("CACHEDIR.TAG").is_file() {
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

/// What a heading is called in a link.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = Vec::new();
    pages(&workspace(), &mut all);
    let mut seen = 0;
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
                let there = fs::read_to_string(&to).expect("text");
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                let is_there = headings.any(|line| anchor(line) == heading);
                assert!(is_there, "{}: {link}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen >= 50, "only {seen} links were found");
}
