//! The error for an unknown name, with the closest known one.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Printable;

/// How many known names are listed. Names from a file, such as its columns, can be very many.
const MAX_LISTED: usize = 50;

/// An unknown name, with the known ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// What is named: `backend`, `dtype`, ...
    pub what: &'static str,
    /// The unknown name.
    pub got: String,
    /// The known names.
    pub known: Vec<String>,
}

impl UnknownName {
    /// The error for `got`, which is not in `known`.
    pub fn new<S: Into<String>>(
        what: &'static str,
        got: impl Into<String>,
        known: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            what,
            got: got.into(),
            known: known.into_iter().map(Into::into).collect(),
        }
    }

    /// The closest known name, if one is close enough.
    pub fn nearest(&self) -> Option<&str> {
        // A transposition ("wpgu") counts as one edit. Up to a third of the characters may differ;
        // beyond that a suggestion would be noise.
        let max_distance = (self.got.chars().count() / 3).max(1);
        let got = self.got.to_lowercase();
        let length = got.chars().count();
        self.known
            .iter()
            // The distance is at least the difference in length, and expensive for long names.
            .filter(|name| name.chars().count().abs_diff(length) <= max_distance)
            .map(|name| (strsim::damerau_levenshtein(&got, name), name))
            .filter(|(distance, _)| *distance <= max_distance)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name.as_str())
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} \"{}\"", self.what, Printable(&self.got))?;
        if let Some(nearest) = self.nearest() {
            write!(f, ": did you mean {}?", Printable(nearest))?;
        }
        let listed = self.known.iter().take(MAX_LISTED);
        let listed: Vec<_> = listed.map(|name| Printable(name).to_string()).collect();
        write!(f, "\n  known: {}", listed.join(", "))?;
        match self.known.len() - listed.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for UnknownName {}

/// The existing path closest to a missing one, if one is close enough: the first component that
/// does not exist is replaced by a similar name in the same folder. `is_valid` selects among them.
pub fn closest_path(path: &Path, is_valid: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let is_missing = |it: &&Path| !it.as_os_str().is_empty() && it.symlink_metadata().is_err();
    let missing = path.ancestors().take_while(is_missing).last()?;
    let folder = match missing.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let replaced = |name: &str| {
        let mut replaced = missing.with_file_name(name);
        replaced.extend(path.strip_prefix(missing).ok()?);
        is_valid(&replaced).then_some(replaced)
    };
    let names = std::fs::read_dir(folder).ok()?.flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| replaced(name).is_some()).collect();
    // The order of a folder is arbitrary.
    names.sort();
    let got = missing.file_name()?.to_string_lossy();
    replaced(UnknownName::new("file", got, names).nearest()?)
}

/// The run of this name in `runs`, their default folder; if there is none, a similar path as with
/// [`closest_path`], or a similar name in `runs`.
pub fn closest_run(path: &Path, is_valid: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    // An absolute path stays as it is.
    let named = Path::new("runs").join(path);
    if path.is_relative() && is_valid(&named) {
        return Some(named);
    }
    closest_path(path, &is_valid).or_else(|| closest_path(&named, &is_valid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(got: &str) -> UnknownName {
        UnknownName::new("backend", got, ["flex", "wgpu", "tch-cpu", "tch-cuda"])
    }

    #[test]
    fn transpositions_and_case_are_tolerated() {
        for (got, nearest) in [
            ("wpgu", Some("wgpu")),
            ("WGPU", Some("wgpu")),
            ("tch-cdua", Some("tch-cuda")),
            ("tensorflow", None),
        ] {
            assert_eq!(unknown(got).nearest(), nearest);
        }
        assert_eq!(
            unknown("tensorflow").to_string(),
            "unknown backend \"tensorflow\"\n  known: flex, wgpu, tch-cpu, tch-cuda"
        );
    }

    #[test]
    fn closest_paths() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (missing, expected) in [
            ("spec/src/unknwon.rs", Some("spec/src/unknown.rs")),
            ("spce/src/unknown.rs", Some("spec/src/unknown.rs")),
            // Only the first missing component is replaced.
            ("spce/src/unknwon.rs", None),
            // `src` is a folder.
            ("spec/scr", None),
            ("spec/src/unknown.rs", None),
            ("spec/src/nothing", None),
        ] {
            let closest = closest_path(&crates.join(missing), Path::is_file);
            assert_eq!(closest, expected.map(|path| crates.join(path)), "{missing}");
        }
        // Relative to the working directory.
        let closest = closest_path(Path::new("Crago.toml"), Path::is_file);
        assert_eq!(closest, Some("Cargo.toml".into()));
    }

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "la\u{1b}]0;title\u{7}bel";
        let message =
            UnknownName::new("column", "label\u{1b}[2J", [hostile, "x\u{202e}"]).to_string();
        assert!(
            !message.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{message:?}"
        );
        assert!(
            message.contains("known: la\\u{1b}]0;title\\u{7}bel, x\\u{202e}"),
            "{message}"
        );
    }

    #[test]
    fn long_lists_are_truncated() {
        let long = "x".repeat(1 << 20);
        let known = (0..60).map(|i| format!("{i}{long}"));
        let unknown = UnknownName::new("column", "label", known.chain(["labels".to_owned()]));
        assert_eq!(unknown.nearest(), Some("labels"));
        assert!(unknown.to_string().ends_with("xxx and 11 more"));
    }
}
