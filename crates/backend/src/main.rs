//! `zoo-backend BACKEND [DTYPE]`: opens a device and prints its properties as one line of JSON.
//!
//! `cargo xtask doctor` runs this program instead of linking Burn.

use std::process::ExitCode;

use serde_json::json;
use zoo_backend::{BackendId, Dtype, OpenDevice};

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let name = arguments.next().unwrap_or_else(|| "flex".to_owned());
    let dtype = arguments.next().unwrap_or_else(|| "f32".to_owned());
    match open(&name, &dtype) {
        Ok(opened) => {
            println!(
                "{}",
                json!({
                    "backend": name,
                    "opened": opened.id.to_string(),
                    "device": opened.name,
                    "software": opened.software,
                    "dtypes": opened.dtypes.iter().map(Dtype::to_string).collect::<Vec<_>>(),
                    "memory": opened.memory,
                })
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{}", json!({ "backend": name, "error": error.to_string() }));
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(name: &str, dtype: &str) -> Result<OpenDevice, Box<dyn std::error::Error>> {
    let id: BackendId = name.parse()?;
    let opened = zoo_backend::open(id, dtype.parse()?)?;
    opened.self_test()?;
    Ok(opened)
}
