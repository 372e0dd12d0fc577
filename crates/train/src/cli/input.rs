//! Texts that come line by line: from a file, a pipe, or a person.

use std::io::{BufRead, Cursor, IsTerminal};
use std::path::Path;

use crate::out::{print_error_line, print_prompt};
use crate::{Result, TrainError};

/// A line, with its number, counted from 1.
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
}

/// Where lines come from.
pub(super) struct Input {
    reader: Box<dyn BufRead>,
    name: String,
    /// Somebody types, and waits for an answer to each line.
    pub(super) is_typed: bool,
}

impl Input {
    /// The lines of a file, packed or not; without one, of what comes in.
    pub(super) fn open(file: Option<&Path>) -> Result<Self> {
        if let Some(path) = file.filter(|path| *path != Path::new("-")) {
            return Ok(Self {
                reader: Box::new(Cursor::new(zoo_data::plain_text(path)?)),
                name: path.display().to_string(),
                is_typed: false,
            });
        }
        let stdin = std::io::stdin();
        Ok(Self {
            is_typed: stdin.is_terminal(),
            reader: Box::new(stdin.lock()),
            name: "standard input".to_owned(),
        })
    }

    /// Gives the lines away, so many at a time; one at a time to somebody who types them. It is an
    /// error if there is no line, or one is not UTF-8.
    pub(super) fn in_batches(
        mut self,
        size: usize,
        mut each: impl FnMut(&[Line]) -> Result<()>,
    ) -> Result<()> {
        let size = match self.is_typed {
            true => 1,
            false => size.max(1),
        };
        let mut number = 0;
        loop {
            let mut lines = vec![];
            while lines.len() < size {
                let Some(text) = self.line(number + 1)? else {
                    break;
                };
                number += 1;
                lines.push(Line { number, text });
            }
            if !lines.is_empty() {
                each(&lines)?;
            }
            if lines.len() < size {
                break;
            }
        }
        match number {
            0 if !self.is_typed => Err(TrainError::Refused(format!(
                "there is nothing in {}: a text a line is expected",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// All of it as one text.
    pub(super) fn whole(mut self) -> Result<String> {
        let mut text = String::new();
        let read = self.reader.read_to_string(&mut text);
        read.map_err(|error| TrainError::content(&self.name)(error))?;
        match text.trim().is_empty() {
            true => Err(TrainError::Refused(format!(
                "there is nothing in {}",
                self.name
            ))),
            false => Ok(text),
        }
    }

    /// The next line without its end, if there is one.
    fn line(&mut self, number: usize) -> Result<Option<String>> {
        if self.is_typed {
            // What is asked is not part of what comes out.
            print_prompt("> ");
        }
        let mut bytes = vec![];
        let read = self.reader.read_until(b'\n', &mut bytes);
        if read.map_err(TrainError::file(&self.name))? == 0 {
            if self.is_typed {
                print_error_line("");
            }
            return Ok(None);
        }
        let text = String::from_utf8(bytes).map_err(|_| TrainError::Content {
            path: self.name.clone().into(),
            why: format!("line {number} is not UTF-8"),
        })?;
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &'static [u8], size: usize) -> Result<Vec<Vec<(usize, String)>>, String> {
        let input = Input {
            reader: Box::new(Cursor::new(bytes)),
            name: "it".to_owned(),
            is_typed: false,
        };
        let mut batches = vec![];
        let done = input.in_batches(size, |lines| {
            let own = lines.iter().map(|line| (line.number, line.text.clone()));
            batches.push(own.collect());
            Ok(())
        });
        done.map(|()| batches).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_come_in_batches_with_their_numbers() {
        let line = |number: usize, text: &str| (number, text.to_owned());
        let expected = vec![vec![line(1, "a"), line(2, "")], vec![line(3, "c")]];
        assert_eq!(read(b"a\r\n\nc", 2), Ok(expected.clone()));
        assert_eq!(read(b"a\n\nc\n", 2), Ok(expected));
        let one = vec![vec![line(1, "a"), line(2, "b")]];
        assert_eq!(read(b"a\nb\n", 2), Ok(one));
    }

    #[test]
    fn what_is_no_text_is_told_with_its_line() {
        let said = read(b"a\n\xff\n", 1).unwrap_err();
        assert_eq!(said, "it cannot be read: line 2 is not UTF-8");
        let said = read(b"", 1).unwrap_err();
        assert!(said.starts_with("there is nothing in it"), "{said}");
    }
}
