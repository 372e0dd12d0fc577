//! `zoo-backend WORD [DTYPE]`: opens one device and says what it is, as one line of JSON.
//!
//! `cargo xtask doctor` asks this program, so that it never links Burn itself.

use std::process::ExitCode;

use serde_json::json;
use zoo_backend::{BackendWord, Dtype, Opened};

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let mut arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    let word = arguments.next().unwrap_or_else(|| "flex".to_owned());
    let dtype = arguments.next().unwrap_or_else(|| "f32".to_owned());
    match open(&word, &dtype) {
        Ok(opened) => {
            println!(
                "{}",
                json!({
                    "word": word,
                    "opened": opened.word.to_string(),
                    "device": opened.name,
                    "software": opened.software,
                    "dtypes": opened.dtypes.iter().map(Dtype::to_string).collect::<Vec<_>>(),
                    "memory": opened.memory,
                })
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", json!({ "word": word, "error": error.to_string() }));
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(word: &str, dtype: &str) -> Result<Opened, Box<dyn std::error::Error>> {
    let word: BackendWord = word.parse()?;
    let opened = zoo_backend::open(word, dtype.parse()?)?;
    opened.self_test()?;
    Ok(opened)
}
