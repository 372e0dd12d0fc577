//! What a person sees while cases run: a bar on a terminal, lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use zoo_bench_core::run::Event;

/// A bar, drawn on stderr, and not at all where that is no terminal.
pub(super) fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {eta} left  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows what happens on the bar, or as a line in its place.
pub(super) fn show(bar: &ProgressBar, event: Event<'_>) {
    match event {
        Event::Run(total) => bar.set_length(total as u64),
        Event::Begin(id) => bar.set_message(id.to_string()),
        Event::End(line) => {
            bar.inc(1);
            let outcome = line.outcome.summary();
            if bar.is_hidden() {
                let (at, of) = (bar.position(), bar.length().unwrap_or_default());
                eprintln!("[{at}/{of}] {}: {outcome}", line.id);
            } else if line.outcome.measured().is_none() {
                bar.println(format!("{}: {outcome}", line.id));
            }
        }
    }
}
