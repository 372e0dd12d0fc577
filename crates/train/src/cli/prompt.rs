//! A prompt with line editing, and with a history that the next session finds again.

use std::path::PathBuf;

use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};

use crate::out::print_error_line;
use crate::{Result, TrainError};

const MAX_LINES: usize = 1000;

pub(super) struct Prompt {
    editor: DefaultEditor,
    /// None if there is nowhere to keep it.
    history: Option<PathBuf>,
}

impl Prompt {
    pub(super) fn open() -> Result<Self> {
        let config = Config::builder()
            .auto_add_history(true)
            // As in shells, so that a line can be kept out of the history.
            .history_ignore_space(true)
            .max_history_size(MAX_LINES)
            .map(|builder| builder.build());
        let mut editor = config
            .and_then(DefaultEditor::with_config)
            .map_err(no_terminal)?;
        let history = history_file();
        if let Some(path) = &history {
            // Missing in the first session.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    /// The next line; None at the end of the input (Ctrl-D).
    pub(super) fn line(&mut self) -> Result<Option<String>> {
        match self.editor.readline("> ") {
            Ok(line) => {
                if let Some(path) = &self.history {
                    // The prompt works without it.
                    let _ = path.parent().map(std::fs::create_dir_all);
                    let _ = self.editor.append_history(path);
                }
                Ok(Some(line))
            }
            Err(ReadlineError::Eof) => Ok(None),
            Err(ReadlineError::Interrupted) => {
                print_error_line("");
                interrupt();
                Ok(None)
            }
            Err(error) => Err(no_terminal(error)),
        }
    }
}

fn no_terminal(error: ReadlineError) -> TrainError {
    TrainError::Refused(format!(
        "the terminal cannot be read: {error}\n  help: give the text with --file or through a pipe"
    ))
}

/// Ends the process as Ctrl-C does without a prompt, so that a shell stops its script, too.
fn interrupt() {
    #[cfg(unix)]
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
}

fn history_file() -> Option<PathBuf> {
    let variable = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = match variable.filter(|path| path.is_absolute()) {
        Some(state) => state,
        None => std::env::home_dir()?.join(".local/state"),
    };
    Some(state.join("attention-zoo/history"))
}
