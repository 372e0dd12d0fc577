//! What a run is made with: enough to make it again.

use std::process::Command;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;
use zoo_backend::Opened;
use zoo_config::Config;

/// What `run.json` says.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct About {
    name: String,
    seed: u64,
    model: &'static str,
    data: &'static str,
    /// What computes.
    device: String,
    backend: String,
    dtype: String,
    precision: String,
    threads: usize,
    versions: Versions,
    /// The commit of the folder that the run was started in, and whether files were changed.
    commit: Option<String>,
    changed: Option<bool>,
    command: Vec<String>,
    started: String,
    /// What it was gone on with, each time.
    resumed: Vec<Resumed>,
}

/// What a run was gone on with: it may be another machine, or another version.
#[derive(Debug, Clone, Serialize)]
struct Resumed {
    /// After which step.
    step: usize,
    time: String,
    device: String,
    backend: String,
    threads: usize,
    versions: Versions,
    commit: Option<String>,
    changed: Option<bool>,
    command: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Versions {
    zoo: &'static str,
    burn: &'static str,
    system: String,
}

impl About {
    /// What there is to say about a run that starts now.
    pub(crate) fn now(config: &Config, opened: &Opened) -> Self {
        Self {
            name: config.run.name.clone().unwrap_or_default(),
            seed: config.run.seed,
            model: config.model.word(),
            data: config.data.word(),
            device: opened.name.clone(),
            backend: opened.word.to_string(),
            dtype: opened.dtype.to_string(),
            precision: config.precision().to_string(),
            threads: threads(),
            versions: Versions {
                zoo: env!("CARGO_PKG_VERSION"),
                burn: "0.22.1",
                system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            },
            commit: git(&["rev-parse", "HEAD"]),
            changed: git(&["status", "--porcelain", "--untracked-files=no"])
                .map(|changes| !changes.is_empty()),
            // Paths need not be UTF-8.
            command: std::env::args_os()
                .skip(1)
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            started: now(),
            resumed: vec![],
        }
    }

    /// What `run.json` says of a run that is gone on with after a step: what it said before
    /// (its keys are sorted then), and with what it goes on now.
    pub(crate) fn resumed(self, mut before: Value, step: usize) -> String {
        let now = Resumed {
            step,
            time: self.started,
            device: self.device,
            backend: self.backend,
            threads: self.threads,
            versions: self.versions,
            commit: self.commit,
            changed: self.changed,
            command: self.command,
        };
        // Texts and numbers: there is nothing in it that JSON has not.
        let now = serde_json::to_value(now).unwrap_or_default();
        match before.get_mut("resumed").and_then(Value::as_array_mut) {
            Some(earlier) => earlier.push(now),
            None => {
                if let Some(about) = before.as_object_mut() {
                    about.insert("resumed".to_owned(), Value::Array(vec![now]));
                }
            }
        }
        format!("{before:#}\n")
    }

    pub(crate) fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
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
