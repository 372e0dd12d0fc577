//! Progress reports of training: Burn's dashboard on a terminal, plain log lines elsewhere.

mod dashboard;
pub(crate) mod format;

use std::io::IsTerminal;

use burn_train::Interrupter;
use zoo_config::Metric;
use zoo_spec::printable_text;

use self::dashboard::Dashboard;
use crate::files::Appender;
use crate::out::print_line;
use crate::{Metrics, Result};

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

enum Output {
    Silent,
    Plain,
    Dashboard(Box<Dashboard>),
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
    /// Uses the dashboard on a terminal, unless `plain` or `quiet` is set.
    pub(crate) fn new(plain: bool, quiet: bool, metric: Metric, interrupter: &Interrupter) -> Self {
        let output = if quiet {
            Output::Silent
        } else if plain || !std::io::stdout().is_terminal() {
            Output::Plain
        } else {
            Output::Dashboard(Box::new(Dashboard::new(metric, interrupter.clone())))
        };
        Self {
            output,
            log: None,
            pending: vec![],
            last_step: 0,
        }
    }

    /// Opens the log file and writes the pending lines to it.
    pub(crate) fn log_to(&mut self, path: &std::path::Path) -> Result<()> {
        self.log = Some(Appender::open(path)?);
        for line in std::mem::take(&mut self.pending) {
            self.write(&line);
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, line: &str) {
        let line = printable_text(line);
        match &mut self.output {
            Output::Dashboard(dashboard) => dashboard.note(&line),
            _ => self.print(&line),
        }
        self.write(&line);
    }

    pub(crate) fn start(&mut self, from: usize, to: usize) {
        self.last_step = to;
        if let Output::Dashboard(dashboard) = &mut self.output {
            dashboard.start(from, to);
        }
    }

    pub(crate) fn step(&mut self, step: usize) {
        if let Output::Dashboard(dashboard) = &mut self.output {
            dashboard.step(step);
        }
    }

    pub(crate) fn log_interval(&mut self, interval: &Interval) {
        let line = format::interval_line(interval, self.last_step);
        match &mut self.output {
            Output::Dashboard(dashboard) => dashboard.log_interval(interval),
            _ => self.print(&line),
        }
        self.write(&line);
    }

    pub(crate) fn log_validation(&mut self, metrics: &Metrics, is_best: bool) {
        let lines = format::validation_lines(metrics, is_best);
        if let Output::Dashboard(dashboard) = &mut self.output {
            dashboard.log_validation(metrics, &lines);
        }
        for line in &lines {
            self.print(line);
            self.write(line);
        }
    }

    fn print(&self, line: &str) {
        if let Output::Plain = self.output {
            print_line(line);
        }
    }

    fn write(&mut self, line: &str) {
        match &mut self.log {
            // A failed write to the log must not stop the run.
            Some(log) => drop(log.append(&format!("{line}\n"))),
            None => self.pending.push(line.to_owned()),
        }
    }
}
