//! The training state in a checkpoint, and the best checkpoint.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zoo_config::Metric;
use zoo_data::Position;

use crate::training::{DataFingerprint, PlateauState, UnloggedLoss};

/// The training state, stored as `state.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) step: usize,
    pub(crate) position: Position,
    pub(crate) best: Option<BestCheckpoint>,
    /// Validations without improvement since the best one.
    #[serde(rename = "waited")]
    pub(crate) bad_validations: usize,
    #[serde(rename = "falls")]
    pub(crate) plateau: PlateauState,
    pub(crate) scale: Option<ScaleState>,
    #[serde(default, rename = "unshown")]
    pub(crate) unlogged: Option<UnloggedLoss>,
    /// Missing in checkpoints of earlier versions.
    #[serde(default)]
    pub(crate) data: Option<DataFingerprint>,
    pub(crate) seconds: f64,
    /// The optimizer's parameter IDs by name.
    pub(crate) parameters: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScaleState {
    pub(crate) scale: f64,
    /// Steps without overflow since the last change.
    pub(crate) good_steps: usize,
}

/// The best checkpoint in validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "BestRecord", into = "BestRecord")]
pub struct BestCheckpoint {
    /// The step.
    pub step: usize,
    /// The name of the metric.
    pub metric: String,
    /// The value of the metric.
    pub value: f64,
    /// The validation loss, which breaks ties. Missing in runs of earlier versions.
    pub loss: Option<f64>,
}

impl BestCheckpoint {
    /// Whether a validation is better: by the metric, or equal with a lower loss.
    pub(crate) fn is_beaten_by(&self, metric: Metric, value: f64, loss: Option<f64>) -> bool {
        if value == self.value {
            let losses = loss.zip(self.loss);
            return losses.is_some_and(|(now, then)| now < then);
        }
        if metric.lower_is_better() {
            value < self.value
        } else {
            value > self.value
        }
    }
}

/// The JSON form. Values are also stored as bits: `serde_json` may be off by the last bit, and a
/// resumed run would then take a tie for an improvement.
#[derive(Clone, Serialize, Deserialize)]
struct BestRecord {
    step: usize,
    metric: String,
    value: f64,
    #[serde(default)]
    loss: Option<f64>,
    #[serde(default)]
    bits: Option<(u64, Option<u64>)>,
}

impl From<BestRecord> for BestCheckpoint {
    fn from(record: BestRecord) -> Self {
        let (value, loss) = match record.bits {
            Some((value, loss)) => (f64::from_bits(value), loss.map(f64::from_bits)),
            None => (record.value, record.loss),
        };
        Self {
            step: record.step,
            metric: record.metric,
            value,
            loss,
        }
    }
}

impl From<BestCheckpoint> for BestRecord {
    fn from(best: BestCheckpoint) -> Self {
        Self {
            step: best.step,
            metric: best.metric,
            value: best.value,
            loss: best.loss,
            bits: Some((best.value.to_bits(), best.loss.map(f64::to_bits))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(value: f64, loss: Option<f64>) -> BestCheckpoint {
        BestCheckpoint {
            step: 3,
            metric: "exact".to_owned(),
            value,
            loss,
        }
    }

    #[test]
    fn ties_are_broken_by_the_loss() {
        let one = best(0.0, Some(2.5));
        assert!(one.is_beaten_by(Metric::Exact, 0.0, Some(2.4)));
        assert!(!one.is_beaten_by(Metric::Exact, 0.0, Some(2.5)));
        assert!(!one.is_beaten_by(Metric::Exact, 0.0, None));
        assert!(one.is_beaten_by(Metric::Exact, 0.1, Some(9.0)));
        assert!(one.is_beaten_by(Metric::Loss, -0.1, Some(9.0)));
        assert!(!one.is_beaten_by(Metric::Loss, 0.1, Some(1.0)));
        assert!(!one.is_beaten_by(Metric::Exact, f64::NAN, Some(1.0)));
        assert!(!best(0.0, None).is_beaten_by(Metric::Exact, 0.0, Some(1.0)));
    }

    #[test]
    fn values_survive_a_round_trip() {
        let mut bits = 0x3FE5_5555_5555_5555_u64;
        for _ in 0..1000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // From 0.5 to 1, arbitrary digits.
            let value = f64::from_bits(0x3FE0_0000_0000_0000 | bits >> 12);
            let written = serde_json::to_string(&best(value, Some(value * 3.0))).unwrap();
            let read: BestCheckpoint = serde_json::from_str(&written).unwrap();
            assert_eq!(read, best(value, Some(value * 3.0)));
        }
        // Written by an earlier version.
        let text = r#"{"step": 3, "metric": "exact", "value": 0.5}"#;
        let read: BestCheckpoint = serde_json::from_str(text).unwrap();
        assert_eq!(read, best(0.5, None));
    }
}
