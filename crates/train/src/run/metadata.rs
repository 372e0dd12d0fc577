//! `run.json`: seed, device, versions and command of a run, for reproducibility.

use std::ffi::OsString;
use std::process::Command;
use std::time::SystemTime;

use serde_json::{Value, json};
use zoo_backend::OpenDevice;
use zoo_config::Config;

/// The content of `run.json` for a run that starts now.
pub(crate) fn run_metadata(
    config: &Config,
    opened: &OpenDevice,
    parameters: usize,
    steps: usize,
) -> Value {
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    // Paths need not be UTF-8.
    let lossy = |argument: OsString| argument.to_string_lossy().into_owned();
    let command: Vec<String> = std::env::args_os().skip(1).map(lossy).collect();
    json!({
        "name": config.run.name.as_deref().unwrap_or_default(),
        "seed": config.run.seed,
        "model": config.model.name(),
        "parameters": parameters,
        "data": config.data.name(),
        "steps": steps,
        "epochs": config.training.epochs,
        "device": opened.name,
        "backend": opened.id.to_string(),
        "dtype": opened.dtype.to_string(),
        "precision": config.precision().to_string(),
        "threads": threads(),
        "versions": {
            "zoo": env!("CARGO_PKG_VERSION"),
            "burn": "0.22.1",
            "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        },
        // Of the current folder, and whether it has uncommitted changes.
        "commit": git(&["rev-parse", "HEAD"]),
        "changed": changes.map(|changes| !changes.is_empty()),
        "command": command,
        "started": now(),
        "resumed": [],
        FINISHED: null,
    })
}

/// When the run ended with all its files; null until then. Missing in runs of earlier versions.
pub(crate) const FINISHED: &str = "finished";

/// Adds the end of the run to the metadata.
pub(crate) fn add_finish(mut metadata: Value) -> Value {
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(FINISHED.to_owned(), json!(now()));
    }
    metadata
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Adds a resume after a step to the metadata: it may use another machine or another version.
pub(crate) fn add_resume(mut metadata: Value, now: &Value, step: usize) -> Value {
    let mut resume = json!({ "step": step, "time": now["started"] });
    for key in [
        "device", "backend", "threads", "versions", "commit", "changed", "command",
    ] {
        resume[key] = now[key].clone();
    }
    if let Some(metadata) = metadata.as_object_mut() {
        // A resumed run may have more steps. Earlier versions did not write these keys.
        for key in ["steps", "epochs", "parameters", FINISHED] {
            metadata.insert(key.to_owned(), now[key].clone());
        }
        let resumes = metadata.entry("resumed").or_insert_with(|| json!([]));
        if let Some(resumes) = resumes.as_array_mut() {
            resumes.push(resume);
        }
    }
    metadata
}

fn threads() -> usize {
    let configured = std::env::var("RAYON_NUM_THREADS").ok();
    match configured.and_then(|text| text.parse().ok()) {
        Some(threads @ 1..) => threads,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The output of git; None if it is missing or this is not a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_run_may_have_more_steps() {
        let then = json!({ "steps": 6, "epochs": 2, "device": "a", "resumed": [] });
        let then = add_finish(then);
        assert!(then[FINISHED].is_string());
        let now = json!({ "steps": 9, "parameters": 5, "device": "b", "started": "now" });
        let metadata = add_resume(then, &now, 6);
        assert_eq!([&metadata["steps"], &metadata["parameters"]], [9, 5]);
        assert_eq!(
            [&metadata["epochs"], &metadata[FINISHED]],
            [&Value::Null; 2]
        );
        assert_eq!(metadata["device"], "a");
        assert_eq!(metadata["resumed"][0]["device"], "b");
    }
}
