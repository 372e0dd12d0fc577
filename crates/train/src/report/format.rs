//! Formatting of log lines.

use zoo_config::Metric;
use zoo_spec::Printable;

use super::Interval;
use crate::Metrics;
use crate::evaluate::Sample;

/// Longer texts are truncated in log lines.
const MAX_CHARS: usize = 100;

/// A log line, at most 80 columns wide for runs of up to a million steps.
pub(crate) fn interval_line(interval: &Interval, last_step: usize) -> String {
    let width = last_step.to_string().len();
    let grad_norm = match interval.grad_norm {
        Some(norm) => format!(" norm {norm:<4.2}"),
        None => String::new(),
    };
    format!(
        "step {:>width$}/{last_step} loss {:<6.4} lr {:.1e}{grad_norm} {:>5} tok/s {:>5} ETA {}",
        interval.step,
        interval.loss,
        interval.lr,
        thousands(interval.tokens_per_second),
        duration(interval.seconds).replace(' ', ""),
        duration(interval.eta).replace(' ', ""),
    )
}

pub(crate) fn validation_line(metrics: &Metrics, is_best: bool) -> String {
    let best = if is_best { " (best)" } else { "" };
    format!("  valid: {}{best}", metric_values(metrics))
}

/// The samples of a validation, a line each.
pub(crate) fn sample_lines(metrics: &Metrics) -> Vec<String> {
    let line = |sample: &Sample| {
        let prediction = short(&sample.prediction);
        let result = match &sample.reference {
            Some(reference) if *reference == sample.prediction => {
                format!("{prediction} (correct)")
            }
            Some(reference) => format!("{prediction} (reference: {})", short(reference)),
            None => prediction,
        };
        format!("    {} -> {result}", short(&sample.source))
    };
    metrics.samples.iter().map(line).collect()
}

pub(crate) fn metric_values(metrics: &Metrics) -> String {
    let value = |(metric, value): (Metric, f64)| {
        format!("{} {}", metric.name(), metric_value(metric, value))
    };
    let values: Vec<String> = metrics.values().into_iter().map(value).collect();
    values.join(" ")
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

pub(crate) fn thousands(number: f64) -> String {
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
            "step   50/2000 loss 2.5000 lr 1.0e-3 norm 0.50 12.3k tok/s 1m15s ETA 1h06m"
        );
        let other = interval_line(&interval(2000, 0.0321), 2000);
        assert_eq!(line.find("lr"), other.find("lr"));
        let long = interval_line(&interval(1_000_000, 9.8765), 1_000_000);
        assert!(long.len() <= 80, "{long}");
    }

    #[test]
    fn values_durations_and_texts_are_formatted() {
        assert_eq!(metric_value(Metric::Exact, 0.9875), "98.75%");
        assert_eq!(metric_value(Metric::Bleu, 41.023), "41.02");
        assert_eq!(duration(59.6), "1m 00s");
        assert_eq!(duration(7500.0), "2h 05m");
        // Control characters are escaped, and long texts are truncated to one line.
        assert_eq!(short("a\u{1b}[2J 好\u{202e}"), "a\\u{1b}[2J 好\\u{202e}");
        let truncated = format!("{}a…", "a b".repeat(33));
        assert_eq!(short(&"a\nb".repeat(80)), truncated);
    }
}
