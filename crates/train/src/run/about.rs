//! What a run is made with: enough to make it again.

use std::process::Command;
use std::time::SystemTime;

use serde_json::{Value, json};
use zoo_backend::Opened;
use zoo_config::Config;

/// What `run.json` says of a run that starts now.
pub(crate) fn about(config: &Config, opened: &Opened) -> Value {
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    // Paths need not be UTF-8.
    let words = std::env::args_os().skip(1);
    let command: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    json!({
        "name": config.run.name.as_deref().unwrap_or_default(),
        "seed": config.run.seed,
        "model": config.model.word(),
        "data": config.data.word(),
        "device": opened.name,
        "backend": opened.word.to_string(),
        "dtype": opened.dtype.to_string(),
        "precision": config.precision().to_string(),
        "threads": threads(),
        "versions": {
            "zoo": env!("CARGO_PKG_VERSION"),
            "burn": "0.22.1",
            "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        },
        // Of the folder that the run was started in, and whether files were changed.
        "commit": git(&["rev-parse", "HEAD"]),
        "changed": changes.map(|changes| !changes.is_empty()),
        "command": command,
        "started": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        "resumed": [],
    })
}

/// What `run.json` says of a run that is gone on with after a step: what it said before, and with
/// what it goes on now, which may be another machine or another version.
pub(crate) fn resumed(mut before: Value, now: &Value, step: usize) -> Value {
    let mut again = json!({ "step": step, "time": now["started"] });
    for key in [
        "device", "backend", "threads", "versions", "commit", "changed", "command",
    ] {
        again[key] = now[key].clone();
    }
    if let Some(about) = before.as_object_mut() {
        let earlier = about.entry("resumed").or_insert_with(|| json!([]));
        if let Some(earlier) = earlier.as_array_mut() {
            earlier.push(again);
        }
    }
    before
}

/// Threads that computing may take.
fn threads() -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok();
    let asked = asked
        .and_then(|text| text.parse().ok())
        .filter(|count| *count > 0);
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// What git says, if there is one and this is a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
