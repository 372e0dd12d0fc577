//! The files that a run reads.

use std::path::{Path, PathBuf};

use zoo_spec::closest_path;

use crate::error::{ConfigError, Diagnostic, Diagnostics, Location};
use crate::tree::{Node, Value};
use crate::{Config, Data, Files, Override};

const TOKENIZER: &str = "tokenizer.load";

impl Config {
    /// The input files of a run, each with its key.
    pub fn files<'a>(&'a self) -> Vec<(&'static str, &'a Path)> {
        let one = |path: Option<&'a PathBuf>| path.map(PathBuf::as_path).into_iter().collect();
        let [train, valid, test] = match &self.data {
            Data::Parallel(data) => {
                [Some(&data.train), data.valid.as_ref(), data.test.as_ref()].map(paths)
            }
            Data::Labelled(data) => {
                [Some(&data.train), data.valid.as_ref(), data.test.as_ref()].map(one)
            }
            Data::Plain(data) => {
                [Some(&data.train), data.valid.as_ref(), data.test.as_ref()].map(one)
            }
            _ => [vec![], vec![], vec![]],
        };
        let listed = [
            (TOKENIZER, paths(self.tokenizer.load())),
            ("data.train", train),
            ("data.valid", valid),
            ("data.test", test),
        ];
        let each = |(key, paths): (_, Vec<_>)| paths.into_iter().map(move |path| (key, path));
        listed.into_iter().flat_map(each).collect()
    }

    /// Checks that the input files exist, before anything slow. The config was read from `path`
    /// with these overrides.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Diagnostics`] with the line, the key and the path of each missing file.
    pub fn check_files(
        &self,
        path: &Path,
        overrides: &[Override],
        resumes: bool,
    ) -> Result<(), ConfigError> {
        let mut files = self.files();
        // A resumed run has its tokenizer in its folder.
        files.retain(|(key, _)| !(resumes && *key == TOKENIZER));
        let missing: Vec<_> = files.iter().filter(|(_, path)| !exists(path)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Parsed again for the locations.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut tree = Node::parse_file(&path.display().to_string(), &text)?;
        for change in overrides {
            change.apply(&mut tree);
        }
        let folder = std::env::current_dir().unwrap_or_default();
        let diagnostic = |(key, path): &&(&str, &Path)| {
            let base = if path.is_relative() {
                format!(" (relative to {})", folder.display())
            } else {
                String::new()
            };
            let hint = match closest_path(path, exists) {
                Some(closest) => format!(": did you mean {}?", closest.display()),
                None => String::new(),
            };
            Diagnostic {
                location: location_of(&tree, key, path),
                message: format!("{key}: no such file: {}{base}{hint}", path.display()),
            }
        };
        let (key, how) = match missing.iter().find(|(key, _)| *key != TOKENIZER) {
            Some((key, _)) => (*key, download(&text)),
            None => (TOKENIZER, "remove the key to train a tokenizer".to_owned()),
        };
        Err(ConfigError::Diagnostics(Diagnostics {
            list: missing.iter().map(diagnostic).collect(),
            help: vec![how, format!("or set another path: --set {key}=PATH")],
        }))
    }
}

/// How to download the data: the `cargo xtask hub` commands and addresses in the config's comment
/// that starts with `# Data:`.
fn download(config: &str) -> String {
    let lines = config
        .lines()
        .skip_while(|line| !line.starts_with("# Data:"));
    let comment = lines.map_while(|line| line.strip_prefix('#').map(str::trim));
    let sources = comment.flat_map(|line| {
        if line.starts_with("cargo xtask hub ") {
            return vec![format!("with `{line}`")];
        }
        let words = line
            .split_whitespace()
            .map(|word| word.trim_matches(['(', ')', ',', ';', '.']));
        let addresses = words.filter(|word| word.starts_with("https://"));
        addresses.map(|address| format!("from {address}")).collect()
    });
    let sources: Vec<String> = sources.collect();
    if sources.is_empty() {
        return "download the data (`cargo xtask hub` downloads from the Hugging Face Hub)"
            .to_owned();
    }
    format!("download the data {}", sources.join(" or "))
}

/// The location of a path: a value, or an element of a list.
fn location_of(tree: &Node, key: &str, path: &Path) -> Location {
    let Some(entry) = tree.find(key) else {
        return tree.location.clone();
    };
    let is_path =
        |node: &&Node| matches!(&node.value, Value::Text(text) if Path::new(text) == path);
    let in_list = match &entry.node.value {
        Value::List(list) => list.iter().find(is_path),
        _ => None,
    };
    in_list.unwrap_or(&entry.node).location.clone()
}

fn paths(files: Option<&Files>) -> Vec<&Path> {
    match files {
        Some(Files::One(path)) => vec![path],
        Some(Files::Two(paths)) => paths.iter().map(PathBuf::as_path).collect(),
        None => vec![],
    }
}

/// Whether a file, a folder or the archive of `archive.zip#name` exists.
fn exists(path: &Path) -> bool {
    let text = path.to_string_lossy();
    match text.split_once(".zip#") {
        Some((archive, _)) => Path::new(&format!("{archive}.zip")).exists(),
        None => path.exists(),
    }
}
