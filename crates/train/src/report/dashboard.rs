//! Burn's terminal dashboard: metric curves, progress bars, and a key to stop.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_train::Interrupter;
use burn_train::logger::TrainingProgressLogger;
use burn_train::metric::{
    MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericAttributes, NumericEntry,
    SerializedEntry,
};
use burn_train::renderer::tui::TuiMetricsRendererWrapper;
use burn_train::renderer::{MetricState, MetricsRenderer, MetricsRendererTraining};
use zoo_config::Metric;

use super::Interval;
use super::format::metric_value;
use crate::Metrics;
use crate::out::print_line;

pub(super) struct Dashboard {
    /// Only during training, because it takes the whole terminal.
    renderer: Option<TuiMetricsRendererWrapper>,
    interrupter: Interrupter,
    metrics: BTreeMap<&'static str, MetricId>,
    metric: Metric,
    /// Lines to print after the dashboard is closed.
    lines: Vec<String>,
}

impl Dashboard {
    pub(super) fn new(metric: Metric, interrupter: Interrupter) -> Self {
        Self {
            renderer: None,
            interrupter,
            metrics: BTreeMap::new(),
            metric,
            lines: vec![],
        }
    }

    fn register(&mut self, name: &'static str, higher_is_better: bool) {
        let id = MetricId::new(Arc::new(name.to_owned()));
        let attributes = NumericAttributes {
            unit: None,
            higher_is_better,
        };
        if let Some(renderer) = &mut self.renderer {
            renderer.register_metric(MetricDefinition {
                metric_id: id.clone(),
                name: Arc::new(name.to_owned()),
                description: None,
                attributes: MetricAttributes::Numeric(attributes),
            });
        }
        self.metrics.insert(name, id);
    }

    fn state(&self, name: &'static str, value: f64, text: String) -> Option<MetricState> {
        let id = self.metrics.get(name)?;
        let entry = MetricEntry::new(id.clone(), SerializedEntry::new(text, value.to_string()));
        Some(MetricState::Numeric(
            entry,
            Some(NumericEntry::Value(value)),
        ))
    }

    fn update_train(&mut self, name: &'static str, value: f64, text: String) {
        let state = self.state(name, value, text);
        if let (Some(renderer), Some(state)) = (&mut self.renderer, state) {
            renderer.update_train(state);
        }
    }

    pub(super) fn note(&mut self, line: &str) {
        match &self.renderer {
            Some(_) => self.lines.push(line.to_owned()),
            None => print_line(line),
        }
    }

    pub(super) fn start(&mut self, from: usize, to: usize) {
        let mut renderer = TuiMetricsRendererWrapper::new(self.interrupter.clone(), None);
        renderer.start_split("train", to);
        self.renderer = Some(renderer);
        self.step(from);
        self.register("loss", false);
        self.register("learning rate", false);
        self.register("tokens per second", true);
        if self.metric != Metric::Loss {
            self.register(self.metric.name(), !self.metric.lower_is_better());
        }
    }

    pub(super) fn step(&mut self, step: usize) {
        if let Some(renderer) = &mut self.renderer {
            // There are two bars, for epochs and for one epoch. Without epochs the first bar shows
            // the progress of the second, but only if it is reset.
            renderer.start(0, 0, None, Some("training"));
            renderer.update_split(step);
        }
    }

    pub(super) fn log_interval(&mut self, interval: &Interval) {
        self.update_train("loss", interval.loss, format!("{:.4}", interval.loss));
        self.update_train("learning rate", interval.lr, format!("{:.3e}", interval.lr));
        let speed = interval.tokens_per_second;
        self.update_train("tokens per second", speed, format!("{speed:.0}"));
    }

    pub(super) fn log_validation(&mut self, metrics: &Metrics, lines: &[String]) {
        self.lines.extend_from_slice(lines);
        for (metric, value) in metrics.values() {
            let state = self.state(metric.name(), value, metric_value(metric, value));
            if let (Some(renderer), Some(state)) = (&mut self.renderer, state) {
                renderer.update_valid(state);
            }
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // Restore the terminal before printing.
        self.renderer = None;
        for line in &self.lines {
            print_line(line);
        }
    }
}
