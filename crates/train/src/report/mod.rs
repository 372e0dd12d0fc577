//! Progress reports of training: a dashboard on a terminal, plain log lines elsewhere.

pub(crate) mod dashboard;
pub(crate) mod format;
pub(crate) mod summary;

use std::io::IsTerminal;
use std::path::Path;

use zoo_config::{Metric, wrap};
use zoo_spec::printable_text;

use self::dashboard::Dashboard;
use crate::files::Appender;
use crate::out::print_line;
use crate::run::Row;
use crate::{Interrupter, Metrics, Result, TrainOptions};

/// Columns of the log.
const WIDTH: usize = 80;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Interval {
    pub(crate) step: usize,
    pub(crate) epoch: usize,
    pub(crate) loss: f64,
    pub(crate) lr: f64,
    pub(crate) grad_norm: Option<f64>,
    pub(crate) tokens_per_second: f64,
    pub(crate) seconds: f64,
    /// Estimated remaining time in seconds.
    pub(crate) eta: f64,
}

/// The state of a run when its training loop starts.
pub(crate) struct TrainingStart<'a> {
    pub(crate) name: &'a str,
    pub(crate) folder: &'a Path,
    /// Model and device.
    pub(crate) setup: String,
    pub(crate) metric: Metric,
    pub(crate) first_step: usize,
    pub(crate) last_step: usize,
    /// Seconds of training before a resume.
    pub(crate) previous_seconds: f64,
    /// Metrics of the steps before a resume.
    pub(crate) history: &'a [Row],
    /// Step and value of the best validation.
    pub(crate) best: Option<(usize, f64)>,
}

enum Output {
    Silent,
    Plain,
    Terminal {
        interrupter: Interrupter,
        /// Only during training, because it takes the whole terminal.
        dashboard: Option<Dashboard>,
        /// Notes to print after the dashboard is closed.
        notes: Vec<String>,
    },
}

/// Whether the process is a background job of its terminal, as with `zoo train CONFIG &`: the system
/// stops it when it changes the terminal's mode.
#[cfg(unix)]
fn is_in_background() -> bool {
    let files = [libc::STDIN_FILENO, libc::STDOUT_FILENO];
    files.into_iter().any(|file| {
        // SAFETY: both functions only return a number.
        let (foreground, own) = unsafe { (libc::tcgetpgrp(file), libc::getpgrp()) };
        // Negative if the file is not the controlling terminal.
        foreground > 0 && foreground != own
    })
}

#[cfg(not(unix))]
fn is_in_background() -> bool {
    false
}

/// Reports the progress of a run to the terminal and to its log file.
pub(crate) struct Reporter {
    output: Output,
    log: Option<Appender>,
    /// Lines reported before the log file was opened.
    pending: Vec<String>,
    last_step: usize,
}

impl Reporter {
    /// Uses the dashboard on a terminal, unless `plain` or `quiet` is set or it is a background job.
    pub(crate) fn new(options: &TrainOptions) -> Self {
        let output = if options.quiet {
            Output::Silent
        } else if options.plain || !std::io::stdout().is_terminal() || is_in_background() {
            Output::Plain
        } else {
            Output::Terminal {
                interrupter: options.interrupter.clone(),
                dashboard: None,
                notes: vec![],
            }
        };
        Self {
            output,
            log: None,
            pending: vec![],
            last_step: 0,
        }
    }

    /// Opens the log file and writes the pending lines to it.
    pub(crate) fn log_to(&mut self, path: &Path) -> Result<()> {
        self.log = Some(Appender::open(path)?);
        for line in std::mem::take(&mut self.pending) {
            self.write(&line);
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, line: &str) {
        let line = printable_text(line);
        match &mut self.output {
            Output::Silent => {}
            Output::Terminal {
                dashboard: Some(_),
                notes,
                ..
            } => notes.push(line.to_string()),
            Output::Plain | Output::Terminal { .. } => print_line(&line),
        }
        self.write(&line);
    }

    pub(crate) fn start(&mut self, start: &TrainingStart<'_>) {
        self.last_step = start.last_step;
        if let Output::Terminal {
            interrupter,
            dashboard,
            ..
        } = &mut self.output
        {
            match Dashboard::open(start, interrupter) {
                Ok(opened) => *dashboard = Some(opened),
                // A terminal that cannot be controlled shows plain lines.
                Err(_) => self.output = Output::Plain,
            }
        }
    }

    fn dashboard(&self) -> Option<&Dashboard> {
        match &self.output {
            Output::Terminal { dashboard, .. } => dashboard.as_ref(),
            Output::Silent | Output::Plain => None,
        }
    }

    pub(crate) fn step(&self, step: usize) {
        if let Some(dashboard) = self.dashboard() {
            dashboard.step(step);
        }
    }

    pub(crate) fn log_interval(&mut self, interval: &Interval) {
        if let Some(dashboard) = self.dashboard() {
            dashboard.log_interval(interval);
        }
        self.log_line(&format::interval_line(interval, self.last_step));
    }

    pub(crate) fn log_validation(&mut self, metrics: &Metrics, is_best: bool) {
        let samples = format::sample_lines(metrics);
        if let Some(dashboard) = self.dashboard() {
            dashboard.log_validation(metrics, is_best, &samples);
        }
        self.log_line(&format::validation_line(metrics, is_best));
        for line in samples {
            self.log_line(&line);
        }
    }

    /// Restores the terminal and prints the notes.
    pub(crate) fn close(&mut self) {
        if let Output::Terminal {
            dashboard, notes, ..
        } = &mut self.output
        {
            *dashboard = None;
            for note in notes.drain(..) {
                print_line(note);
            }
        }
    }

    /// A line that the dashboard shows in another way, wrapped.
    fn log_line(&mut self, line: &str) {
        let line = wrap(line, WIDTH);
        let line = line.trim_end();
        if let Output::Plain = self.output {
            print_line(line);
        }
        self.write(line);
    }

    fn write(&mut self, line: &str) {
        match &mut self.log {
            // A failed write to the log must not stop the run.
            Some(log) => drop(log.append(format!("{line}\n"))),
            None => self.pending.push(line.to_owned()),
        }
    }
}

/// An error is printed after the dashboard is closed.
impl Drop for Reporter {
    fn drop(&mut self) {
        self.close();
    }
}
