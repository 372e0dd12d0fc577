//! Burn's dashboard: curves of every number, progress, and a key to stop.

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
use super::line::number;
use crate::Judgement;
use crate::out::print_line;

pub(super) struct Dashboard {
    /// There while training goes on: it takes the whole terminal.
    renderer: Option<TuiMetricsRendererWrapper>,
    interrupter: Interrupter,
    metrics: BTreeMap<&'static str, MetricId>,
    metric: Metric,
    /// What there was to say, to be read when the dashboard is gone.
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

    fn state(&self, name: &'static str, value: f64, shown: String) -> Option<MetricState> {
        let id = self.metrics.get(name)?;
        let entry = MetricEntry::new(id.clone(), SerializedEntry::new(shown, value.to_string()));
        Some(MetricState::Numeric(
            entry,
            Some(NumericEntry::Value(value)),
        ))
    }

    fn train_value(&mut self, name: &'static str, value: f64, shown: String) {
        let state = self.state(name, value, shown);
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
            self.register(self.metric.word(), !self.metric.less_is_better());
        }
    }

    pub(super) fn step(&mut self, step: usize) {
        if let Some(renderer) = &mut self.renderer {
            // There are two bars, for epochs and for what is in one. Without epochs the first
            // takes what the second has, but only where it is as it was at the start.
            renderer.start(0, 0, None, Some("training"));
            renderer.update_split(step);
        }
    }

    pub(super) fn trained(&mut self, interval: &Interval) {
        self.train_value("loss", interval.loss, format!("{:.4}", interval.loss));
        self.train_value(
            "learning rate",
            interval.rate,
            format!("{:.3e}", interval.rate),
        );
        let speed = interval.tokens_per_second;
        self.train_value("tokens per second", speed, format!("{speed:.0}"));
    }

    pub(super) fn validated(&mut self, judgement: &Judgement, lines: &[String]) {
        self.lines.extend_from_slice(lines);
        for (metric, value) in judgement.values() {
            let state = self.state(metric.word(), value, number(metric, value));
            if let (Some(renderer), Some(state)) = (&mut self.renderer, state) {
                renderer.update_valid(state);
            }
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        // The terminal is given back before anything is printed on it.
        self.renderer = None;
        for line in &self.lines {
            print_line(line);
        }
    }
}
