//! Numbers as people read them, in lines that stand under each other.

use zoo_config::Metric;
use zoo_spec::Printable;

use super::Interval;
use crate::Judgement;

/// Characters that are shown of a text.
const SHOWN: usize = 100;

pub(crate) fn trained(interval: &Interval, last_step: usize) -> String {
    let width = last_step.to_string().len();
    let norm = match interval.norm {
        Some(norm) => format!("  norm {norm:<7.3}"),
        None => String::new(),
    };
    format!(
        "step {:>width$}/{last_step}  epoch {:<3}  loss {:<7.4}  rate {:<9.3e}{norm}  {:>8} tokens/s  {} gone, {} left",
        interval.step,
        interval.epoch,
        interval.loss,
        interval.rate,
        thousands(interval.tokens_per_second),
        time(interval.seconds),
        time(interval.left),
    )
}

/// What there is to say about a validation: its numbers, and some of what the model said.
pub(crate) fn validated(judgement: &Judgement, is_best: bool) -> Vec<String> {
    let best = if is_best { "  (the best so far)" } else { "" };
    let mut lines = vec![format!("  validation: {}{best}", values(judgement))];
    for sample in &judgement.samples {
        let said = match &sample.wanted {
            Some(wanted) if *wanted == sample.said => format!("{} (right)", short(&sample.said)),
            Some(wanted) => format!("{} (wanted: {})", short(&sample.said), short(wanted)),
            None => short(&sample.said),
        };
        lines.push(format!("    {} -> {said}", short(&sample.given)));
    }
    lines
}

pub(crate) fn values(judgement: &Judgement) -> String {
    let values = judgement.values().into_iter();
    let values =
        values.map(|(metric, value)| format!("{} {}", metric.word(), number(metric, value)));
    values.collect::<Vec<_>>().join("  ")
}

/// A number of a metric: shares in percent.
pub(crate) fn number(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Exact | Metric::Accuracy | Metric::MacroF1 => format!("{:.2}%", 100.0 * value),
        Metric::Bleu | Metric::Chrf => format!("{value:.2}"),
        Metric::Loss => format!("{value:.4}"),
        Metric::Perplexity => format!("{value:.3}"),
    }
}

/// How long something takes: `48 s`, `3 min 20 s`, `2 h 05 min`.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

fn thousands(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{:.2} M", number / 1e6),
        number if number >= 1e4 => format!("{:.1} k", number / 1e3),
        number => format!("{number:.0}"),
    }
}

/// A text on one line, and not all of a long one.
fn short(text: &str) -> String {
    let text = text.trim().replace(['\n', '\r', '\t'], " ");
    let text = Printable(&text).to_string();
    match text.char_indices().nth(SHOWN) {
        Some((byte, _)) => format!("{}…", &text[..byte]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_under_each_other() {
        let interval = |step: usize, loss: f64| Interval {
            step,
            epoch: 1,
            loss,
            rate: 1e-3,
            norm: Some(0.5),
            tokens_per_second: 12_345.0,
            seconds: 75.0,
            left: 4000.0,
        };
        let line = trained(&interval(50, 2.5), 2000);
        assert_eq!(
            line,
            "step   50/2000  epoch 1    loss 2.5000   rate 1.000e-3   norm 0.500      12.3 k tokens/s  \
             1 min 15 s gone, 1 h 06 min left"
        );
        let other = trained(&interval(2000, 0.0321), 2000);
        assert_eq!(line.find("rate"), other.find("rate"));
    }

    #[test]
    fn shares_are_in_percent() {
        assert_eq!(number(Metric::Exact, 0.9875), "98.75%");
        assert_eq!(number(Metric::Bleu, 41.023), "41.02");
        assert_eq!(time(59.6), "1 min 00 s");
        assert_eq!(time(7500.0), "2 h 05 min");
    }

    #[test]
    fn texts_of_the_data_do_not_reach_the_terminal_as_they_are() {
        assert_eq!(short("a\u{1b}[2J 好\u{202e}"), "a\\u{1b}[2J 好\\u{202e}");
    }

    #[test]
    fn long_texts_are_cut_and_stay_on_a_line() {
        let text = short(&"a\nb".repeat(80));
        assert!(!text.contains('\n'), "{text}");
        assert!(
            text.ends_with('…') && text.chars().count() == SHOWN + 1,
            "{text}"
        );
    }
}
