//! What is on the disk: config files that are no text, and data that is not there.

use std::path::PathBuf;

use zoo_config::{Config, Override};

/// A file that goes away.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, text: &[u8]) -> Self {
        let name = format!("zoo-config-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("it can be written");
        Self(path)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_config_in_another_encoding_is_told_so() {
    for (bytes, expected) in [
        (
            &b"\xff\xfe[\0r\0"[..],
            "line 1: it begins with the mark of UTF-16",
        ),
        (
            b"[run]\n# caf\xe9\n",
            "line 2: byte 11 of the file is not UTF-8",
        ),
    ] {
        let file = TestFile::new("encoding.toml", bytes);
        let said = Config::read(&file.0, &[]).expect_err("it is not UTF-8");
        let said = said.to_string();
        assert!(
            said.contains(&format!("encoding.toml, {expected}")),
            "{said}"
        );
        assert!(said.contains("\n  do: iconv -f "), "{said}");
    }
}

#[test]
fn missing_files_are_told_with_their_lines_and_keys() {
    let text = "[data]\nkind = \"parallel\"\ntrain = [\"/no/a.en\", \"/no/a.zip#a.de\"]\n\
                valid = \"Cargo.toml\"\ntest = \"no/b.tsv\"\n[model]\nkind = \"transformer\"\n\
                [tokenizer]\nkind = \"bpe\"\nload = [\"/no/a.json\", \"Cargo.toml\"]\n";
    let file = TestFile::new("missing.toml", text.as_bytes());
    let name = file.0.display().to_string();
    let folder = std::env::current_dir().expect("there is one");
    let flag = Override::set("data.test=no/c.tsv").expect("it can be read");
    for (changes, last) in [
        (
            vec![],
            format!("{name}:5:8: data.test: there is no no/b.tsv"),
        ),
        (
            vec![flag],
            "--set data.test=no/c.tsv: data.test: there is no no/c.tsv".to_owned(),
        ),
    ] {
        let config = Config::read(&file.0, &changes).expect("it is right");
        let said = config
            .check_files(&file.0, &changes, false)
            .expect_err("none is there");
        let expected = format!(
            "{name}:10:9: tokenizer.load: there is no /no/a.json\n\
             {name}:3:10: data.train: there is no /no/a.en\n\
             {name}:3:22: data.train: there is no /no/a.zip#a.de\n\
             {last} in {}\n  \
             do: put the data there, the config says where it comes from, or name it: --set \
             tokenizer.load=PATH",
            folder.display()
        );
        assert_eq!(said.to_string(), expected);
    }
    let there = text
        .replace("/no/a.en", "Cargo.toml")
        .replace("/no/a.zip#a.de", "src");
    let there = there
        .replace("no/b.tsv", "src")
        .replace("/no/a.json", "src");
    let file = TestFile::new("there.toml", there.as_bytes());
    let config = Config::read(&file.0, &[]).expect("it is right");
    assert!(config.check_files(&file.0, &[], false).is_ok());
}
