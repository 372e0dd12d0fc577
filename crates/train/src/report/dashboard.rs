//! The terminal dashboard: progress, curves over steps, and the latest predictions.
//!
//! A thread of its own draws it and reads the keys, so that it reacts while a step is computed.

mod chart;
mod draw;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use zoo_config::Metric;

use super::{Interval, TrainingStart};
use crate::run::Row;
use crate::{Interrupter, Metrics};

/// Time between two frames, and the longest time until a key is handled.
const FRAME: Duration = Duration::from_millis(200);

/// Two Ctrl-C within this time count as one.
const TOGETHER: Duration = Duration::from_millis(500);

/// Whether a dashboard controls the terminal.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether a dashboard controls the terminal: nothing else may be printed then.
pub(crate) fn is_open() -> bool {
    IS_OPEN.load(Ordering::Relaxed)
}

/// Restores the terminal, before the process is killed.
pub(crate) fn restore_terminal() {
    if IS_OPEN.swap(false, Ordering::Relaxed) {
        ratatui::restore();
    }
}

/// What the dashboard shows.
struct View {
    name: String,
    folder: String,
    /// Model and device.
    setup: String,
    metric: Metric,
    step: usize,
    last_step: usize,
    start: Instant,
    /// Seconds of training before a resume.
    previous_seconds: f64,
    interval: Option<(Interval, Instant)>,
    train_loss: Vec<(f64, f64)>,
    valid_loss: Vec<(f64, f64)>,
    /// Values of the metric, unless it is the loss.
    metric_values: Vec<(f64, f64)>,
    /// Step and value of the best validation.
    best: Option<(usize, f64)>,
    samples: Vec<String>,
    is_log_scale: bool,
    asks_to_stop: bool,
    interrupter: Interrupter,
    first_interrupt: Option<Instant>,
}

impl View {
    fn new(start: &TrainingStart<'_>, interrupter: Interrupter) -> Self {
        let mut view = Self {
            name: start.name.to_owned(),
            folder: start.folder.display().to_string(),
            setup: start.setup.clone(),
            metric: start.metric,
            step: start.first_step,
            last_step: start.last_step,
            start: Instant::now(),
            previous_seconds: start.previous_seconds,
            interval: None,
            train_loss: vec![],
            valid_loss: vec![],
            metric_values: vec![],
            best: start.best,
            samples: vec![],
            is_log_scale: false,
            asks_to_stop: false,
            interrupter,
            first_interrupt: None,
        };
        for row in start.history {
            view.add_row(row);
        }
        view
    }

    /// Adds the points of a row of an earlier part of the run.
    fn add_row(&mut self, row: &Row) {
        let point = |name: &str| Some((row.step as f64, *row.values.get(name)?));
        let loss = point(Metric::Loss.name());
        match row.part.as_str() {
            "train" => self.train_loss.extend(loss),
            "valid" => {
                self.valid_loss.extend(loss);
                self.metric_values.extend(point(self.metric.name()));
            }
            _ => {}
        }
    }

    fn seconds(&self) -> f64 {
        self.previous_seconds + self.start.elapsed().as_secs_f64()
    }

    /// Remaining seconds: the latest estimate, less the time since.
    fn eta(&self) -> Option<f64> {
        let (interval, at) = self.interval.as_ref()?;
        Some((interval.eta - at.elapsed().as_secs_f64()).max(0.0))
    }

    /// Handles a key. Returns whether the process must exit immediately.
    fn handle_key(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return self.interrupt(),
            KeyCode::Char('y') if self.asks_to_stop => {
                self.asks_to_stop = false;
                self.interrupter.stop();
            }
            KeyCode::Char('n') | KeyCode::Esc => self.asks_to_stop = false,
            KeyCode::Char('q') => self.asks_to_stop = !self.interrupter.should_stop(),
            KeyCode::Char('l') => self.is_log_scale = !self.is_log_scale,
            _ => {}
        }
        false
    }

    /// The first Ctrl-C stops the run, a later one exits immediately.
    fn interrupt(&mut self) -> bool {
        self.interrupter.stop();
        self.asks_to_stop = false;
        let first = *self.first_interrupt.get_or_insert_with(Instant::now);
        first.elapsed() > TOGETHER
    }
}

pub(super) struct Dashboard {
    view: Arc<Mutex<View>>,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Dashboard {
    /// Takes control of the terminal.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be controlled.
    pub(super) fn open(start: &TrainingStart<'_>, interrupter: &Interrupter) -> io::Result<Self> {
        let mut terminal = ratatui::try_init()?;
        IS_OPEN.store(true, Ordering::Relaxed);
        let view = Arc::new(Mutex::new(View::new(start, interrupter.clone())));
        let is_closing = Arc::new(AtomicBool::new(false));
        let thread = {
            let (view, is_closing) = (Arc::clone(&view), Arc::clone(&is_closing));
            let show = move || {
                while !is_closing.load(Ordering::Relaxed) && show_frame(&mut terminal, &view) {}
            };
            std::thread::Builder::new()
                .name("dashboard".to_owned())
                .spawn(show)
        };
        if thread.is_err() {
            restore_terminal();
        }
        Ok(Self {
            view,
            is_closing,
            thread: Some(thread?),
        })
    }

    fn view(&self) -> MutexGuard<'_, View> {
        lock(&self.view)
    }

    pub(super) fn step(&self, step: usize) {
        self.view().step = step;
    }

    pub(super) fn log_interval(&self, interval: &Interval) {
        let mut view = self.view();
        view.train_loss.push((interval.step as f64, interval.loss));
        view.interval = Some((interval.clone(), Instant::now()));
    }

    pub(super) fn log_validation(&self, metrics: &Metrics, is_best: bool, samples: &[String]) {
        let mut view = self.view();
        let step = view.step;
        let point = |metric| Some((step as f64, metrics.value(metric)?));
        let value = point(view.metric);
        view.valid_loss.extend(point(Metric::Loss));
        view.metric_values.extend(value);
        if is_best {
            view.best = value.map(|(_, value)| (step, value));
        }
        view.samples = samples.to_vec();
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore_terminal();
    }
}

fn lock(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws a frame, and handles a key if one is pressed before the next frame. Returns false if the
/// terminal is gone; the run continues without it.
fn show_frame(terminal: &mut DefaultTerminal, view: &Mutex<View>) -> bool {
    if terminal
        .draw(|frame| draw::draw(frame, &lock(view)))
        .is_err()
    {
        return false;
    }
    match event::poll(FRAME).and_then(|is_ready| is_ready.then(event::read).transpose()) {
        Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => {
            if lock(view).handle_key(key) {
                restore_terminal();
                exit_now();
            }
        }
        Ok(_) => {}
        // No keys, for example because standard input is not the terminal.
        Err(_) => std::thread::sleep(FRAME),
    }
    true
}

/// Exits as Ctrl-C does without a handler: not by `exit`, which would run destructors of objects in
/// use.
fn exit_now() {
    #[cfg(unix)]
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
    #[cfg(not(unix))]
    std::process::abort();
}

#[cfg(test)]
mod tests;
