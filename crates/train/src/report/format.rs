//! Formatting of log lines.

use zoo_config::Metric;
use zoo_spec::Printable;

use super::Interval;
use crate::Metrics;

const MAX_CHARS: usize = 100;

pub(crate) fn interval_line(interval: &Interval, last_step: usize) -> String {
    let width = last_step.to_string().len();
    let grad_norm = match interval.grad_norm {
        Some(norm) => format!("  grad norm {norm:<7.3}"),
        None => String::new(),
    };
    format!(
        "step {:>width$}/{last_step}  epoch {:<3}  loss {:<7.4}  lr {:<9.3e}{grad_norm}  {:>7} \
         tokens/s  {} elapsed, ETA {}",
        interval.step,
        interval.epoch,
        interval.loss,
        interval.lr,
        thousands(interval.tokens_per_second),
        duration(interval.seconds),
        duration(interval.eta),
    )
}

pub(crate) fn validation_lines(metrics: &Metrics, is_best: bool) -> Vec<String> {
    let best = if is_best { "  (best so far)" } else { "" };
    let mut lines = vec![format!("  validation: {}{best}", metric_values(metrics))];
    for sample in &metrics.samples {
        let prediction = short(&sample.prediction);
        let result = match &sample.reference {
            Some(reference) if *reference == sample.prediction => {
                format!("{prediction} (correct)")
            }
            Some(reference) => format!("{prediction} (reference: {})", short(reference)),
            None => prediction,
        };
        lines.push(format!("    {} -> {result}", short(&sample.source)));
    }
    lines
}

pub(crate) fn metric_values(metrics: &Metrics) -> String {
    let values = metrics.values().into_iter();
    let values =
        values.map(|(metric, value)| format!("{} {}", metric.name(), metric_value(metric, value)));
    values.collect::<Vec<_>>().join("  ")
}

/// The value of a metric; fractions as percentages.
pub(crate) fn metric_value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Exact | Metric::Accuracy | Metric::MacroF1 => format!("{:.2}%", 100.0 * value),
        Metric::Bleu | Metric::Chrf => format!("{value:.2}"),
        Metric::Loss => format!("{value:.4}"),
        Metric::Perplexity => format!("{value:.3}"),
    }
}

/// A duration: `48s`, `3m 20s`, `2h 05m`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

fn thousands(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.2}M", number / 1e6),
        number if number >= 1e4 => format!("{:.1}k", number / 1e3),
        number => format!("{number:.0}"),
    }
}

fn short(text: &str) -> String {
    let text = text.trim().replace(['\n', '\r', '\t'], " ");
    let text = Printable(&text).to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((byte, _)) => format!("{}…", &text[..byte]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_aligned() {
        let interval = |step: usize, loss: f64| Interval {
            step,
            epoch: 1,
            loss,
            lr: 1e-3,
            grad_norm: Some(0.5),
            tokens_per_second: 12_345.0,
            seconds: 75.0,
            eta: 4000.0,
        };
        let line = interval_line(&interval(50, 2.5), 2000);
        assert_eq!(
            line,
            "step   50/2000  epoch 1    loss 2.5000   lr 1.000e-3   grad norm 0.500      12.3k \
             tokens/s  1m 15s elapsed, ETA 1h 06m"
        );
        let other = interval_line(&interval(2000, 0.0321), 2000);
        assert_eq!(line.find("lr"), other.find("lr"));
    }

    #[test]
    fn values_and_durations_are_formatted() {
        assert_eq!(metric_value(Metric::Exact, 0.9875), "98.75%");
        assert_eq!(metric_value(Metric::Bleu, 41.023), "41.02");
        assert_eq!(duration(59.6), "1m 00s");
        assert_eq!(duration(7500.0), "2h 05m");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(short("a\u{1b}[2J 好\u{202e}"), "a\\u{1b}[2J 好\\u{202e}");
    }

    #[test]
    fn long_texts_are_truncated_to_one_line() {
        let text = short(&"a\nb".repeat(80));
        assert!(!text.contains('\n'), "{text}");
        assert!(
            text.ends_with('…') && text.chars().count() == MAX_CHARS + 1,
            "{text}"
        );
    }
}
