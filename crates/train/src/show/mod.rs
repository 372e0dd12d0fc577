//! What is shown while training: Burn's dashboard on a terminal, a line an interval elsewhere.

mod dashboard;
pub(crate) mod line;

use std::io::IsTerminal;

use burn_train::Interrupter;
use zoo_config::Metric;
use zoo_spec::printable_text;

use self::dashboard::Dashboard;
use crate::files::Appender;
use crate::out::print_line;
use crate::{Judgement, Result};

/// Numbers of the steps since they were last shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Interval {
    pub(crate) step: usize,
    pub(crate) epoch: usize,
    pub(crate) loss: f64,
    pub(crate) rate: f64,
    /// The norm of the gradients, where it was computed.
    pub(crate) norm: Option<f64>,
    pub(crate) tokens_per_second: f64,
    /// Since the run began.
    pub(crate) seconds: f64,
    /// Until it ends, if it goes on like this.
    pub(crate) left: f64,
}

enum Screen {
    /// Nowhere: for tests, and for programs that show runs in their own way.
    Silent,
    /// A line an interval, for logs and for people without a terminal.
    Plain,
    Dashboard(Box<Dashboard>),
}

/// Shows a run, and writes what is shown into its log.
pub(crate) struct Show {
    screen: Screen,
    log: Option<Appender>,
    /// What came before there was a log.
    before: Vec<String>,
    last_step: usize,
}

impl Show {
    /// On the dashboard if there is a terminal and nobody asks for lines.
    pub(crate) fn new(plain: bool, quiet: bool, metric: Metric, interrupter: &Interrupter) -> Self {
        let screen = if quiet {
            Screen::Silent
        } else if plain || !std::io::stdout().is_terminal() {
            Screen::Plain
        } else {
            Screen::Dashboard(Box::new(Dashboard::new(metric, interrupter.clone())))
        };
        Self {
            screen,
            log: None,
            before: vec![],
            last_step: 0,
        }
    }

    /// Writes to this file from here on, and first what was shown before.
    pub(crate) fn log_to(&mut self, path: &std::path::Path) -> Result<()> {
        self.log = Some(Appender::open(path)?);
        for line in std::mem::take(&mut self.before) {
            self.write(&line);
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, line: &str) {
        let line = printable_text(line);
        match &mut self.screen {
            Screen::Dashboard(dashboard) => dashboard.note(&line),
            _ => self.print(&line),
        }
        self.write(&line);
    }

    pub(crate) fn start(&mut self, from: usize, to: usize) {
        self.last_step = to;
        if let Screen::Dashboard(dashboard) = &mut self.screen {
            dashboard.start(from, to);
        }
    }

    pub(crate) fn step(&mut self, step: usize) {
        if let Screen::Dashboard(dashboard) = &mut self.screen {
            dashboard.step(step);
        }
    }

    pub(crate) fn trained(&mut self, interval: &Interval) {
        let line = line::trained(interval, self.last_step);
        match &mut self.screen {
            Screen::Dashboard(dashboard) => dashboard.trained(interval),
            _ => self.print(&line),
        }
        self.write(&line);
    }

    pub(crate) fn validated(&mut self, judgement: &Judgement, is_best: bool) {
        let lines = line::validated(judgement, is_best);
        if let Screen::Dashboard(dashboard) = &mut self.screen {
            dashboard.validated(judgement, &lines);
        }
        for line in &lines {
            self.print(line);
            self.write(line);
        }
    }

    /// Prints a line where there is no dashboard.
    fn print(&self, line: &str) {
        if let Screen::Plain = self.screen {
            print_line(line);
        }
    }

    fn write(&mut self, line: &str) {
        match &mut self.log {
            // A log that cannot be written must not end a run.
            Some(log) => drop(log.append(&format!("{line}\n"))),
            None => self.before.push(line.to_owned()),
        }
    }
}
