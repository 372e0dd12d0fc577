//! What a person sees while cases run: a bar on a terminal, lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use zoo_bench_core::record::{CaseId, CaseLine};
use zoo_bench_core::run::Watcher;

/// The bar, or the lines in its place.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new() -> Self {
        // Drawn on stderr, and not at all where that is no terminal.
        let bar = ProgressBar::no_length();
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar }
    }

    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Progress {
    fn begins(&mut self, id: &CaseId, done: usize, total: usize, left: Option<Duration>) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        let left = match left {
            Some(left) if left.as_secs() >= 60 => {
                format!("{} min left", left.as_secs().div_ceil(60))
            }
            Some(left) => format!("{} s left", left.as_secs() + 1),
            None => "starting".to_owned(),
        };
        self.bar.set_message(format!("{left}  {id}"));
    }

    fn ended(&mut self, line: &CaseLine) {
        let outcome = line.outcome.summary();
        if self.bar.is_hidden() {
            let (at, of) = (
                self.bar.position() + 1,
                self.bar.length().unwrap_or_default(),
            );
            eprintln!("[{at}/{of}] {}: {outcome}", line.id);
        } else if line.outcome.measured().is_none() {
            self.bar.println(format!("{}: {outcome}", line.id));
        }
    }
}
