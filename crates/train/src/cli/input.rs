//! Line input from a file, a pipe or a terminal.

use std::io::{BufRead, BufReader, Cursor, IsTerminal};
use std::path::Path;

use super::prompt::Prompt;
use crate::out::{print_error_line, print_prompt};
use crate::{Result, TrainError};

pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

pub(super) struct Input {
    reader: Box<dyn BufRead>,
    name: String,
    /// Whether lines are typed at a prompt.
    pub(super) is_interactive: bool,
    /// Line editing, which needs a terminal for its output as well.
    prompt: Option<Prompt>,
}

impl Input {
    /// Opens a file, which may be gzipped; without one or for `-`, standard input.
    pub(super) fn open(file: Option<&Path>) -> Result<Self> {
        if let Some(path) = file.filter(|path| *path != Path::new("-")) {
            return Ok(Self {
                reader: Box::new(Cursor::new(zoo_data::plain_text(path)?)),
                name: path.display().to_string(),
                is_interactive: false,
                prompt: None,
            });
        }
        let stdin = std::io::stdin();
        Ok(Self {
            is_interactive: stdin.is_terminal(),
            // Not locked, because the prompt reads it as well.
            reader: Box::new(BufReader::new(stdin)),
            name: "standard input".to_owned(),
            prompt: None,
        })
    }

    /// Calls `each` with batches of at most `size` lines; interactive lines come one at a time. It
    /// is an error if there is no line, or a line is not UTF-8.
    pub(super) fn for_each_batch(
        mut self,
        size: usize,
        mut each: impl FnMut(&[Line]) -> Result<()>,
    ) -> Result<()> {
        let size = if self.is_interactive { 1 } else { size.max(1) };
        if self.is_interactive && std::io::stdout().is_terminal() {
            self.prompt = Some(Prompt::open()?);
        }
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
            0 if !self.is_interactive => Err(TrainError::Refused(format!(
                "{} is empty, expected one text per line",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn read_all(mut self) -> Result<String> {
        let mut text = String::new();
        let read = self.reader.read_to_string(&mut text);
        read.map_err(|error| TrainError::content(&self.name)(error))?;
        if text.trim().is_empty() {
            return Err(TrainError::Refused(format!("{} is empty", self.name)));
        }
        Ok(text)
    }

    fn line(&mut self, number: usize) -> Result<Option<String>> {
        if let Some(prompt) = &mut self.prompt {
            return prompt.line();
        }
        if self.is_interactive {
            // To standard error, so that it is not part of the output.
            print_prompt("> ");
        }
        let mut bytes = vec![];
        let read = self.reader.read_until(b'\n', &mut bytes);
        if read.map_err(TrainError::file(&self.name))? == 0 {
            if self.is_interactive {
                print_error_line("");
            }
            return Ok(None);
        }
        let text = String::from_utf8(bytes).map_err(|_| TrainError::Content {
            path: self.name.clone().into(),
            reason: format!("line {number} is not UTF-8"),
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
            name: "input".to_owned(),
            is_interactive: false,
            prompt: None,
        };
        let mut batches = vec![];
        let result = input.for_each_batch(size, |lines| {
            let lines = lines.iter().map(|line| (line.number, line.text.clone()));
            batches.push(lines.collect());
            Ok(())
        });
        result.map(|()| batches).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_batched_and_numbered() {
        let line = |number: usize, text: &str| (number, text.to_owned());
        let expected = vec![vec![line(1, "a"), line(2, "")], vec![line(3, "c")]];
        assert_eq!(read(b"a\r\n\nc", 2), Ok(expected.clone()));
        assert_eq!(read(b"a\n\nc\n", 2), Ok(expected));
        let one = vec![vec![line(1, "a"), line(2, "b")]];
        assert_eq!(read(b"a\nb\n", 2), Ok(one));
    }

    #[test]
    fn invalid_input_is_rejected() {
        let message = read(b"a\n\xff\n", 1).unwrap_err();
        assert_eq!(message, "input cannot be read: line 2 is not UTF-8");
        let message = read(b"", 1).unwrap_err();
        assert_eq!(message, "input is empty, expected one text per line");
    }
}
