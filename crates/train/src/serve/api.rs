//! The routes of the server: the page, runs, curves, models, attention pages and bench reports.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use zoo_config::Model;
use zoo_viz::plot::Plot;
use zoo_viz::{Curves, chart};

use super::inference::{InferenceRequest, Models};
use super::security::{Content, Refusal};
use crate::Result;
use crate::cli::runs::{RunContent, RunRecord, TextCells, find, plots};

const INDEX: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

const REPORT: &str = "report.html";

/// A response.
#[derive(Debug)]
pub(super) enum Reply {
    Full(Content, Bytes),
    /// JSON lines that are sent as they come.
    Lines(UnboundedReceiver<Bytes>),
}

#[derive(Debug)]
pub(super) struct Api {
    runs: PathBuf,
    reports: PathBuf,
    pub(super) models: Models,
}

/// A run in the table of the page.
#[derive(Debug, Serialize)]
struct RunRow {
    #[serde(flatten)]
    record: RunRecord,
    /// What the model does with a text.
    command: &'static str,
    text: TextCells,
}

impl Api {
    pub(super) fn new(runs: PathBuf, reports: PathBuf, models: Models) -> Self {
        Self {
            runs,
            reports,
            models,
        }
    }

    /// Answers a request for the path after the token.
    pub(super) fn answer(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Result<Reply, Refusal> {
        if *method == Method::POST {
            return match path {
                "api/curves" => self.curves(parse(body)?),
                "api/infer" => self.infer(parse(body)?),
                _ => Err(not_found()),
            };
        }
        let asset = |content, text: &'static str| Ok(Reply::Full(content, text.into()));
        match path.split_once('/') {
            None if path.is_empty() => asset(Content::Page, INDEX),
            None if path == "style.css" => asset(Content::Style, STYLE),
            None if path == "script.js" => asset(Content::Script, SCRIPT),
            None if path == "chart.css" => asset(Content::Style, chart::STYLE),
            None if path == "chart.js" => asset(Content::Script, chart::SCRIPT),
            Some(("api", "runs")) => self.list(),
            Some(("attention", id)) => self.attention(id),
            Some(("report", id)) => self.report(id),
            _ => Err(not_found()),
        }
    }

    fn list(&self) -> Result<Reply, Refusal> {
        let (mut runs, mut damaged) = (vec![], vec![]);
        for (run, path) in find(&self.runs).map_err(unreadable)? {
            match RunContent::read(&run, &path, None) {
                Ok(content) => runs.push(RunRow {
                    command: command(&content.config.model),
                    text: TextCells::new(&content.record),
                    record: content.record,
                }),
                Err(error) => damaged.push(json!({"run": run, "error": error.to_string()})),
            }
        }
        let reports = self.reports();
        let reports = reports.iter().map(|(name, _)| {
            let id = report_id(name);
            json!({"name": name, "path": format!("report/{id}")})
        });
        Ok(to_json(&json!({
            "folder": full_path(&self.runs),
            "runs": runs,
            "damaged": damaged,
            "reports_folder": full_path(&self.reports),
            "reports": reports.collect::<Vec<_>>(),
        })))
    }

    fn curves(&self, request: CurvesRequest) -> Result<Reply, Refusal> {
        let mut runs = vec![];
        for name in &request.runs {
            let path = self.run_folder(name)?;
            runs.push(RunContent::read(name, &path, None).map_err(unreadable)?);
        }
        let plots = plots(&runs);
        let plots: Vec<Plot> = plots.iter().map(Curves::to_plot).collect();
        let html = match plots.as_slice() {
            [] => "<p>No metrics yet.</p>".to_owned(),
            plots => chart::charts(plots),
        };
        Ok(to_json(&json!({ "html": html })))
    }

    fn infer(&self, request: InferenceRequest) -> Result<Reply, Refusal> {
        let folder = self.run_folder(&request.run)?;
        self.models.infer(folder, request).map(Reply::Lines)
    }

    /// The folder of a run in the list. A name is never used as a path.
    fn run_folder(&self, name: &str) -> Result<PathBuf, Refusal> {
        let runs = find(&self.runs).map_err(unreadable)?;
        let mut found = runs.into_iter().filter(|(run, _)| run == name);
        let folder = found.next().map(|(_, path)| path);
        folder.ok_or_else(|| {
            let folder = self.runs.display();
            let reason = format!("no run {name:?} in {folder}\n  help: reload the page");
            Refusal::new(StatusCode::NOT_FOUND, reason)
        })
    }

    fn attention(&self, id: &str) -> Result<Reply, Refusal> {
        let page = id.parse().ok().and_then(|id| self.models.page(id));
        let page = page.map(|html| Reply::Full(Content::Document, html.into()));
        page.ok_or_else(|| {
            let reason = "this attention page is no longer in memory\n  help: run the text again, \
                          or use `zoo attend`";
            Refusal::new(StatusCode::NOT_FOUND, reason)
        })
    }

    fn report(&self, id: &str) -> Result<Reply, Refusal> {
        let reports = self.reports();
        let mut found = reports.iter().filter(|(name, _)| report_id(name) == id);
        let (name, path) = found.next().ok_or_else(not_found)?;
        let html = std::fs::read(path).map_err(|error| {
            Refusal::new(StatusCode::NOT_FOUND, format!("report {name}: {error}"))
        })?;
        Ok(Reply::Full(Content::Document, html.into()))
    }

    /// The bench reports with their files, newest first.
    fn reports(&self) -> Vec<(String, PathBuf)> {
        let folders = std::fs::read_dir(&self.reports).into_iter().flatten();
        let folders = folders.flatten().map(|entry| entry.path());
        let all = std::iter::once(self.reports.clone()).chain(folders);
        let modified = |file: &Path| file.metadata().and_then(|it| it.modified()).ok();
        let reports = all.filter_map(|folder| {
            let file = folder.join(REPORT);
            Some((modified(&file)?, folder_name(&folder), file))
        });
        let mut reports: Vec<(SystemTime, String, PathBuf)> = reports.collect();
        reports.sort_by(|a, b| b.cmp(a));
        reports
            .into_iter()
            .map(|(_, name, file)| (name, file))
            .collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CurvesRequest {
    runs: Vec<String>,
}

fn full_path(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

/// The name of a folder, which a path such as `.` does not contain.
fn folder_name(path: &Path) -> String {
    let absolute = match path.file_name() {
        Some(_) => None,
        None => path.canonicalize().ok(),
    };
    let path = absolute.as_deref().unwrap_or(path);
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The name of a report in an address: hexadecimal, so that it needs no escapes.
fn report_id(name: &str) -> String {
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn command(model: &Model) -> &'static str {
    match model {
        Model::Transformer(_) | Model::Seq2Seq(_) => "translate",
        Model::Gpt(_) => "generate",
        Model::Classifier(_) | Model::Han(_) => "classify",
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let reason = format!("the request is invalid: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, reason)
    })
}

fn to_json(value: &Value) -> Reply {
    Reply::Full(Content::Json, value.to_string().into())
}

fn unreadable(error: crate::TrainError) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, error.to_string())
}

fn not_found() -> Refusal {
    let reason = "there is nothing at this address\n  help: reload the page";
    Refusal::new(StatusCode::NOT_FOUND, reason)
}
