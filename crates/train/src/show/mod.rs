//! What is shown while training: Burn's dashboard on a terminal, a line an interval elsewhere.

mod dashboard;
pub(crate) mod line;
mod plain;

use std::io::IsTerminal;

use burn_train::Interrupter;
use zoo_config::Metric;
use zoo_spec::printable_text;

use self::dashboard::Dashboard;
use self::plain::Plain;
use crate::files::Appender;
use crate::{Judgement, TrainError};

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

/// Somebody who shows.
trait Screen: Send {
    /// A line about what is going on.
    fn note(&mut self, line: &str);

    /// Training begins after a step and goes on to another.
    fn start(&mut self, from: usize, to: usize);

    /// A step was made.
    fn step(&mut self, step: usize);

    /// Numbers of steps.
    fn trained(&mut self, interval: &Interval, line: &str);

    /// How good the model was.
    fn validated(&mut self, judgement: &Judgement, lines: &[String]);

    /// There is nothing more to come.
    fn end(&mut self);
}

/// Shows a run, and writes what is shown into its log.
pub(crate) struct Show {
    screen: Box<dyn Screen>,
    log: Option<Appender>,
    /// What came before there was a log.
    before: Vec<String>,
    last_step: usize,
}

impl Show {
    /// On the dashboard if there is a terminal and nobody asks for lines.
    pub(crate) fn new(plain: bool, quiet: bool, metric: Metric, interrupter: &Interrupter) -> Self {
        let screen: Box<dyn Screen> = if quiet {
            Box::new(Silent)
        } else if plain || !std::io::stdout().is_terminal() {
            Box::new(Plain)
        } else {
            Box::new(Dashboard::new(metric, interrupter.clone()))
        };
        Self {
            screen,
            log: None,
            before: vec![],
            last_step: 0,
        }
    }

    /// Writes to this file from here on, and first what was shown before.
    pub(crate) fn log_to(&mut self, path: &std::path::Path) -> Result<(), TrainError> {
        self.log = Some(Appender::open(path)?);
        for line in std::mem::take(&mut self.before) {
            self.write(&line);
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, line: &str) {
        let line = printable_text(line);
        self.screen.note(&line);
        self.write(&line);
    }

    pub(crate) fn start(&mut self, from: usize, to: usize) {
        self.last_step = to;
        self.screen.start(from, to);
    }

    pub(crate) fn step(&mut self, step: usize) {
        self.screen.step(step);
    }

    pub(crate) fn trained(&mut self, interval: &Interval) {
        let line = line::trained(interval, self.last_step);
        self.screen.trained(interval, &line);
        self.write(&line);
    }

    pub(crate) fn validated(&mut self, judgement: &Judgement, is_best: bool) {
        let lines = line::validated(judgement, is_best);
        self.screen.validated(judgement, &lines);
        for line in &lines {
            self.write(line);
        }
    }

    pub(crate) fn end(&mut self) {
        self.screen.end();
    }

    fn write(&mut self, line: &str) {
        match &mut self.log {
            // A log that cannot be written must not end a run.
            Some(log) => drop(log.append(&format!("{line}\n"))),
            None => self.before.push(line.to_owned()),
        }
    }
}

/// Nobody: for tests, and for programs that show runs in their own way.
struct Silent;

impl Screen for Silent {
    fn note(&mut self, _: &str) {}
    fn start(&mut self, _: usize, _: usize) {}
    fn step(&mut self, _: usize) {}
    fn trained(&mut self, _: &Interval, _: &str) {}
    fn validated(&mut self, _: &Judgement, _: &[String]) {}
    fn end(&mut self) {}
}
