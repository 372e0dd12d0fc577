//! The last lines of a run: its results and the next command.

use zoo_config::{Config, Model};

use super::format::{duration, metric_value, metric_values};
use crate::{StopReason, TrainOutput};

/// The results of a run, and what to do next.
pub(crate) fn summary_lines(output: &TrainOutput, config: &Config) -> Vec<String> {
    let folder = output.folder.path().display();
    let (steps, elapsed) = (output.steps, duration(output.seconds));
    let mut lines = vec![match output.stop_reason {
        StopReason::Completed => format!("{steps} steps in {elapsed}"),
        StopReason::EarlyStopping => {
            format!("early stopping after {steps} steps in {elapsed}: validation did not improve")
        }
        StopReason::Interrupted => {
            format!("interrupted after {elapsed}; checkpoint of step {steps} saved")
        }
    }];
    if let Some(best) = &output.best {
        let value = metric_value(config.metric(), best.value);
        lines.push(format!(
            "best {}: {value} at step {}",
            best.metric, best.step
        ));
    }
    if let Some(test) = &output.test {
        lines.push(format!("test: {}", metric_values(test)));
    }
    let command = match (output.stop_reason, &config.model) {
        (StopReason::Interrupted, _) => format!("zoo train {folder} --resume"),
        (_, Model::Transformer(_) | Model::Seq2Seq(_)) => format!("zoo translate {folder}"),
        (_, Model::Han(_) | Model::Classifier(_)) => format!("zoo classify {folder}"),
        (_, Model::Gpt(_)) => format!("zoo generate {folder}"),
    };
    lines.push(format!("run: {folder}"));
    lines.push(format!("next: {command}"));
    lines
}
