//! Learning rate schedules.
//!
//! ```text
//! constant              rate
//! noam                  rate · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)
//! inverse-square-root   rate · sqrt(warmup / step)
//! cosine                rate · (f + (1 - f) · (1 + cos(π · done)) / 2)
//! plateau               rate · factor^reductions
//! ```
//!
//! each times `step / warmup` while that is below 1. Steps count from 1. The rate is a function of
//! the step, and for a plateau also of the validation history, so that a resumed run has the same
//! rates as an uninterrupted one.

use serde::{Deserialize, Serialize};
use zoo_config::{Config, Model, Schedule};

#[derive(Debug, Clone)]
pub(crate) struct LrSchedule {
    rate: f64,
    schedule: Schedule,
    last_step: usize,
    d_model: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct PlateauState {
    #[serde(rename = "count")]
    pub(crate) reductions: usize,
    /// Validations without improvement since the last reduction.
    #[serde(rename = "waited")]
    pub(crate) bad_validations: usize,
}

impl LrSchedule {
    pub(crate) fn new(config: &Config, last_step: usize) -> Self {
        Self {
            rate: config.optimizer.learning_rate(),
            schedule: config.schedule.clone(),
            last_step,
            d_model: match &config.model {
                Model::Transformer(model) => model.d_model,
                Model::Gpt(model) => model.d_model,
                Model::Classifier(model) => model.d_model,
                Model::Seq2Seq(model) => model.d_hidden,
                Model::Han(model) => model.d_word,
            },
        }
    }

    /// The learning rate of a step, counted from 1.
    pub(crate) fn lr(&self, step: usize, plateau: PlateauState) -> f64 {
        let now = step.max(1) as f64;
        let warmup = self.schedule.warmup() as f64;
        let warmup_factor = match warmup {
            0.0 => 1.0,
            _ => (now / warmup).min(1.0),
        };
        match &self.schedule {
            Schedule::Constant(_) => self.rate * warmup_factor,
            // The warmup is part of the formula: both terms are equal at the step `warmup`.
            Schedule::Noam(_) => {
                let size = (self.d_model as f64).powf(-0.5);
                self.rate * size * now.powf(-0.5).min(now * warmup.powf(-1.5))
            }
            Schedule::InverseSquareRoot(_) | Schedule::Cosine(_) if now < warmup => {
                self.rate * warmup_factor
            }
            Schedule::InverseSquareRoot(_) => self.rate * (warmup / now).sqrt(),
            Schedule::Cosine(config) => {
                let last = config.steps.unwrap_or(self.last_step) as f64;
                let done = if last > warmup {
                    ((now - warmup) / (last - warmup)).clamp(0.0, 1.0)
                } else {
                    1.0
                };
                let cosine = (1.0 + (std::f64::consts::PI * done).cos()) / 2.0;
                let factor = config.min_lr_ratio + (1.0 - config.min_lr_ratio) * cosine;
                self.rate * factor
            }
            Schedule::Plateau(config) => {
                let factor = config.factor.powi(plateau.reductions as i32);
                self.rate * warmup_factor * factor.max(config.min_lr_ratio)
            }
        }
    }

    pub(crate) fn update_plateau(&self, is_better: bool, plateau: &mut PlateauState) {
        let Schedule::Plateau(config) = &self.schedule else {
            return;
        };
        plateau.bad_validations += 1;
        if is_better {
            plateau.bad_validations = 0;
        } else if plateau.bad_validations >= config.patience {
            plateau.reductions += 1;
            plateau.bad_validations = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str, last_step: usize) -> LrSchedule {
        let text = format!(
            "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\nd_model = 64\n\
             [optimizer]\nkind = \"adam\"\nlearning_rate = 0.5\n[schedule]\n{text}\n"
        );
        let config = Config::parse("a.toml", &text, &[]).unwrap();
        LrSchedule::new(&config, last_step)
    }

    fn assert_rates(schedule: &LrSchedule, expected: &[(usize, f64)]) {
        for (step, rate) in expected {
            let got = schedule.lr(*step, PlateauState::default());
            assert!((got - rate).abs() < 1e-12, "step {step}: {got}, not {rate}");
        }
    }

    #[test]
    fn schedules_follow_their_formulas() {
        let constant = schedule("kind = \"constant\"\nwarmup = 10", 100);
        assert_rates(&constant, &[(1, 0.05), (5, 0.25), (10, 0.5), (99, 0.5)]);
        let none = schedule("kind = \"constant\"\nwarmup = 0", 100);
        assert_rates(&none, &[(1, 0.5)]);
        let root = schedule("kind = \"inverse-square-root\"\nwarmup = 100", 1000);
        assert_rates(&root, &[(50, 0.25), (100, 0.5), (400, 0.25)]);
        // 64^-0.5 = 1/8; at the end of the warmup both terms are warmup^-0.5.
        let noam = schedule("kind = \"noam\"\nwarmup = 100", 1000);
        assert_rates(
            &noam,
            &[
                (50, 0.5 / 8.0 * 0.05),
                (100, 0.5 / 80.0),
                (400, 0.5 / 160.0),
            ],
        );
        let cosine = schedule("kind = \"cosine\"\nwarmup = 10\nmin_lr_ratio = 0.2", 110);
        let rates = [(5, 0.25), (10, 0.5), (60, 0.3), (110, 0.1), (500, 0.1)];
        assert_rates(&cosine, &rates);
        let short = "kind = \"cosine\"\nwarmup = 10\nsteps = 60\nmin_lr_ratio = 0.2";
        let short = schedule(short, 110);
        assert_rates(&short, &[(35, 0.3), (60, 0.1)]);
    }

    #[test]
    fn a_plateau_reduces_the_rate() {
        let text = "kind = \"plateau\"\nwarmup = 0\nfactor = 0.5\npatience = 2\nmin_lr_ratio = 0.2";
        let schedule = schedule(text, 100);
        let mut plateau = PlateauState::default();
        let mut rates = vec![];
        for is_better in [true, false, false, true, false, false, false, false] {
            schedule.update_plateau(is_better, &mut plateau);
            rates.push(schedule.lr(9, plateau));
        }
        // The patience is 2; the rate never falls below a fifth.
        assert_eq!(rates, [0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.1]);
    }
}
