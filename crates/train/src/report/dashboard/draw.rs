//! The layout of the dashboard.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Gauge, Paragraph, Wrap};
use zoo_config::Metric;

use super::View;
use super::chart::{Curve, Scaled};
use crate::report::format::{duration, metric_value, thousands};

/// The narrowest terminal with two charts side by side.
const TWO_CHARTS: u16 = 76;

pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let samples = match view.samples.len() {
        0 => 0,
        // A line may wrap once, and the border.
        count => 2 * count as u16 + 2,
    };
    let [head, bar, charts, samples, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(8),
        Constraint::Max(samples),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(view)), head);
    frame.render_widget(progress_bar(view), bar);
    draw_charts(frame, view, charts);
    if !view.samples.is_empty() {
        let lines: Vec<Line<'_>> = view.samples.iter().map(|line| line.trim().into()).collect();
        let panel = Paragraph::new(lines)
            .wrap(Wrap { trim: true })
            .block(Block::bordered().title(" latest predictions "));
        frame.render_widget(panel, samples);
    }
    frame.render_widget(Paragraph::new(footer(view)), foot);
    if view.asks_to_stop {
        draw_dialog(frame, view);
    }
}

fn header(view: &View) -> Vec<Line<'_>> {
    let title = Line::from_iter([view.name.as_str().bold(), format!("  {}", view.setup).dim()]);
    let mut status = format!("elapsed {}", duration(view.seconds()));
    if let Some(eta) = view.eta() {
        status += &format!("   ETA {}", duration(eta));
    }
    if let Some((interval, _)) = &view.interval {
        status += &format!(
            "   loss {:.4}   lr {:.1e}   {} tok/s",
            interval.loss,
            interval.lr,
            thousands(interval.tokens_per_second)
        );
    }
    vec![title, status.into()]
}

fn progress_bar(view: &View) -> Gauge<'_> {
    let fraction = view.step as f64 / view.last_step.max(1) as f64;
    let epoch = match &view.interval {
        Some((interval, _)) => format!(", epoch {}", interval.epoch),
        None => String::new(),
    };
    Gauge::default()
        .ratio(fraction.clamp(0.0, 1.0))
        .label(format!("step {}/{}{epoch}", view.step, view.last_step))
        .gauge_style(Color::Blue)
}

fn draw_charts(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let has_metric = view.metric != Metric::Loss && area.width >= TWO_CHARTS;
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(u16::from(has_metric))])
            .areas(area);
    let losses = [
        Curve {
            name: "training",
            points: &view.train_loss,
            color: Color::Cyan,
            marker: Marker::Braille,
        },
        Curve {
            name: "validation",
            points: &view.valid_loss,
            color: Color::Yellow,
            marker: Marker::Dot,
        },
    ];
    let scale = if view.is_log_scale { " (log)" } else { "" };
    let mut title = vec![format!(" loss{scale}: ").into()];
    title.extend(
        losses
            .iter()
            .map(|curve| format!("{} ", curve.name).fg(curve.color)),
    );
    if view.metric == Metric::Loss {
        title.extend(best_text(view));
    }
    let scaled = Scaled::new(&losses, view.is_log_scale);
    frame.render_widget(scaled.chart(title.into(), &losses, view.step), left);
    if !has_metric {
        return;
    }
    let values = [Curve {
        name: "validation",
        points: &view.metric_values,
        color: Color::Yellow,
        marker: Marker::Dot,
    }];
    let mut title = vec![format!(" {}: ", view.metric.name()).into()];
    title.extend(
        values
            .iter()
            .map(|curve| format!("{} ", curve.name).fg(curve.color)),
    );
    title.extend(best_text(view));
    let scaled = Scaled::new(&values, false);
    frame.render_widget(scaled.chart(title.into(), &values, view.step), right);
}

fn best_text(view: &View) -> Option<Span<'static>> {
    let (step, value) = view.best?;
    let value = metric_value(view.metric, value);
    Some(format!("best {value} at {step} ").into())
}

fn footer(view: &View) -> Line<'_> {
    if view.interrupter.should_stop() {
        let text = "stopping after this step with a checkpoint (Ctrl-C again: exit immediately)";
        return text.yellow().into();
    }
    "q stop and save   Ctrl-C the same, without asking   l log or linear scale"
        .dim()
        .into()
}

fn draw_dialog(frame: &mut Frame<'_>, view: &View) {
    let lines = vec![
        Line::from("Stop training after this step?").bold(),
        Line::default(),
        Line::from(format!(
            "The checkpoint of step {} and all metrics so far will be saved in {}. \
             --resume continues the run.",
            view.step + 1,
            view.folder
        )),
        Line::default(),
        Line::from("y: stop and save    n: continue training"),
    ];
    let area = frame.area();
    let width = area.width.saturating_sub(4).min(64);
    // The path may take several lines.
    let path_lines = 2 + view.folder.chars().count() as u16 / width.max(1);
    let area = area.centered(
        Constraint::Length(width),
        Constraint::Length(7 + path_lines),
    );
    let dialog = Paragraph::new(lines)
        .wrap(Wrap { trim: true })
        .block(Block::bordered().title(" stop "));
    frame.render_widget(Clear, area);
    frame.render_widget(dialog, area);
}
