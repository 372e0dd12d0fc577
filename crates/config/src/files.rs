//! The files that a run reads: which they are, and whether they are there.

use std::path::{Path, PathBuf};

use crate::error::{ConfigError, Mistake, Place, joined};
use crate::tree::{Node, Value};
use crate::{Config, Data, Files, Override};

/// The key of a tokenizer that is there already.
const TOKENIZER: &str = "tokenizer.load";

impl Config {
    /// The files that a run reads, each with its key.
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

    /// Whether the files are there that this config, read from `path` with these changes, names
    /// for a run that begins or resumes. They would otherwise be missed after a device was opened,
    /// or a program built.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Refused`] with the line, the key and the path of each that is not.
    pub fn check_files(
        &self,
        path: &Path,
        overrides: &[Override],
        resumes: bool,
    ) -> Result<(), ConfigError> {
        let mut files = self.files();
        // A run has the tokenizer in its folder.
        files.retain(|(key, _)| !(resumes && *key == TOKENIZER));
        let missing: Vec<_> = files.iter().filter(|(_, path)| !is_there(path)).collect();
        let Some((key, _)) = missing.first() else {
            return Ok(());
        };
        // The places are those of the file as it is: it was read a moment ago.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut tree = Node::parse_file(&path.display().to_string(), &text)?;
        for change in overrides {
            change.apply(&mut tree);
        }
        let folder = std::env::current_dir().unwrap_or_default();
        let mistake = |(key, path): &&(&str, &Path)| {
            let within = match path.is_relative() {
                true => format!(" in {}", folder.display()),
                false => String::new(),
            };
            Mistake {
                place: place_of(&tree, key, path),
                what: format!("{key}: there is no {}{within}", path.display()),
            }
        };
        let mistakes: Vec<Mistake> = missing.iter().map(mistake).collect();
        Err(ConfigError::Refused(format!(
            "{}\n  do: put the data there, the config says where it comes from, or name it: --set \
             {key}=PATH",
            joined(&mistakes)
        )))
    }
}

/// Where a path is written: by itself, or in a list of two.
fn place_of(tree: &Node, key: &str, path: &Path) -> Place {
    let Some(entry) = tree.find(key) else {
        return tree.place.clone();
    };
    let is_path =
        |node: &&Node| matches!(&node.value, Value::Text(text) if Path::new(text) == path);
    let in_list = match &entry.node.value {
        Value::List(list) => list.iter().find(is_path),
        _ => None,
    };
    in_list.unwrap_or(&entry.node).place.clone()
}

fn paths(files: Option<&Files>) -> Vec<&Path> {
    match files {
        Some(Files::One(path)) => vec![path],
        Some(Files::Two(paths)) => paths.iter().map(PathBuf::as_path).collect(),
        None => vec![],
    }
}

/// Whether a file or folder is there; `archive.zip#name` is one if the archive is.
fn is_there(path: &Path) -> bool {
    let text = path.to_string_lossy();
    match text.split_once(".zip#") {
        Some((archive, _)) => Path::new(&format!("{archive}.zip")).exists(),
        None => path.exists(),
    }
}
