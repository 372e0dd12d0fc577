//! How far a run has come, and what was best on the way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use zoo_config::Metric;
use zoo_data::Position;

use crate::learn::{DataFingerprint, Falls, Unshown};

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) step: usize,
    pub(crate) position: Position,
    pub(crate) best: Option<Best>,
    /// Validations without anything better since.
    pub(crate) waited: usize,
    pub(crate) falls: Falls,
    /// What the loss is multiplied by.
    pub(crate) scale: Option<ScaleState>,
    /// Losses that were not shown yet.
    #[serde(default)]
    pub(crate) unshown: Option<Unshown>,
    /// What it is trained with; checkpoints of earlier versions have none.
    #[serde(default)]
    pub(crate) data: Option<DataFingerprint>,
    pub(crate) seconds: f64,
    /// Which parameter the optimizer means by which number.
    pub(crate) parameters: BTreeMap<String, u64>,
}

/// What the loss is multiplied by, and for how long that went well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScaleState {
    pub(crate) scale: f64,
    pub(crate) good_steps: usize,
}

/// Which checkpoint was best in validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Best {
    /// Its step.
    pub step: usize,
    /// What it is best in.
    pub metric: String,
    /// How good it is.
    pub value: f64,
    /// Its loss in validation, by which two that are equally good are told apart. Runs of
    /// earlier versions have none.
    pub loss: Option<f64>,
}

impl Best {
    /// Whether this is better: by the metric, or as good and with a lower loss.
    pub(crate) fn is_beaten_by(&self, metric: Metric, value: f64, loss: Option<f64>) -> bool {
        if value == self.value {
            let losses = loss.zip(self.loss);
            return losses.is_some_and(|(now, then)| now < then);
        }
        match metric.less_is_better() {
            true => value < self.value,
            false => value > self.value,
        }
    }
}

/// The same as it is written. Numbers are there twice: `serde_json` reads decimals to within the
/// last bit alone, and by that bit a run that is gone on with would take a tie for something
/// better.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    step: usize,
    metric: String,
    value: f64,
    #[serde(default)]
    loss: Option<f64>,
    #[serde(default)]
    bits: Option<(u64, Option<u64>)>,
}

impl From<Written> for Best {
    fn from(written: Written) -> Self {
        let (value, loss) = match written.bits {
            Some((value, loss)) => (f64::from_bits(value), loss.map(f64::from_bits)),
            None => (written.value, written.loss),
        };
        Self {
            step: written.step,
            metric: written.metric,
            value,
            loss,
        }
    }
}

impl From<Best> for Written {
    fn from(best: Best) -> Self {
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

    fn best(value: f64, loss: Option<f64>) -> Best {
        Best {
            step: 3,
            metric: "exact".to_owned(),
            value,
            loss,
        }
    }

    #[test]
    fn of_two_that_are_as_good_the_lower_loss_is_better() {
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
    fn every_bit_is_read_again() {
        let mut bits = 0x3FE5_5555_5555_5555_u64;
        for _ in 0..1000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // From 0.5 to 1, any digits.
            let value = f64::from_bits(0x3FE0_0000_0000_0000 | bits >> 12);
            let written = serde_json::to_string(&best(value, Some(value * 3.0))).unwrap();
            let read: Best = serde_json::from_str(&written).unwrap();
            assert_eq!(read, best(value, Some(value * 3.0)));
        }
        // What an earlier version wrote.
        let text = r#"{"step": 3, "metric": "exact", "value": 0.5}"#;
        let read: Best = serde_json::from_str(text).unwrap();
        assert_eq!(read, best(0.5, None));
    }
}
