//! How the learning rate goes.
//!
//! ```text
//! constant              rate
//! noam                  rate · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)
//! inverse-square-root   rate · sqrt(warmup / step)
//! cosine                rate · (f + (1 - f) · (1 + cos(π · done)) / 2)
//! plateau               rate · factor^falls
//! ```
//!
//! each times `step / warmup` while that is below 1. Steps count from 1. The rate is a function
//! of the step, and for a plateau of how validation went, so that a run that is gone on with has
//! the rates it would have had.

use serde::{Deserialize, Serialize};
use zoo_config::{Config, Model, Schedule};

/// The learning rate of every step.
#[derive(Debug, Clone)]
pub(crate) struct Rates {
    rate: f64,
    schedule: Schedule,
    last_step: usize,
    d_model: usize,
}

/// How often the rate has fallen for want of anything better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Falls {
    pub(crate) count: usize,
    /// Validations without anything better since.
    pub(crate) waited: usize,
}

impl Rates {
    /// Those of a config whose training ends at a step.
    pub(crate) fn of(config: &Config, last_step: usize) -> Self {
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

    /// The rate of a step, counted from 1.
    pub(crate) fn at(&self, step: usize, falls: Falls) -> f64 {
        let now = step.max(1) as f64;
        let warmup = self.schedule.warmup() as f64;
        let rising = match warmup {
            0.0 => 1.0,
            _ => (now / warmup).min(1.0),
        };
        match &self.schedule {
            Schedule::Constant(_) => self.rate * rising,
            // Its warm-up is part of the formula: both sides meet at the step `warmup`.
            Schedule::Noam(_) => {
                let size = (self.d_model as f64).powf(-0.5);
                self.rate * size * now.powf(-0.5).min(now * warmup.powf(-1.5))
            }
            Schedule::InverseSquareRoot(_) => match now < warmup {
                true => self.rate * rising,
                false => self.rate * (warmup / now).sqrt(),
            },
            Schedule::Cosine(said) => {
                let last = said.steps.unwrap_or(self.last_step) as f64;
                let done = match last > warmup {
                    true => ((now - warmup) / (last - warmup)).clamp(0.0, 1.0),
                    false => 1.0,
                };
                let wave = (1.0 + (std::f64::consts::PI * done).cos()) / 2.0;
                let share = said.final_share + (1.0 - said.final_share) * wave;
                match now < warmup {
                    true => self.rate * rising,
                    false => self.rate * share,
                }
            }
            Schedule::Plateau(said) => {
                let share = said.factor.powi(falls.count as i32).max(said.final_share);
                self.rate * rising * share
            }
        }
    }

    /// What a validation does to the rate.
    pub(crate) fn validated(&self, is_better: bool, falls: Falls) -> Falls {
        let Schedule::Plateau(said) = &self.schedule else {
            return falls;
        };
        let waited = falls.waited + 1;
        if is_better {
            Falls { waited: 0, ..falls }
        } else if waited >= said.patience {
            Falls {
                count: falls.count + 1,
                waited: 0,
            }
        } else {
            Falls { waited, ..falls }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: &str, last_step: usize) -> Rates {
        let text = format!(
            "[data]\nkind = \"reverse\"\n[model]\nkind = \"transformer\"\nd_model = 64\n\
             [optimizer]\nkind = \"adam\"\nlearning_rate = 0.5\n[schedule]\n{schedule}\n"
        );
        let config = Config::parse("a.toml", &text, &[]).unwrap();
        Rates::of(&config, last_step)
    }

    fn close(rates: &Rates, expected: &[(usize, f64)]) {
        for (step, rate) in expected {
            let got = rates.at(*step, Falls::default());
            assert!((got - rate).abs() < 1e-12, "step {step}: {got}, not {rate}");
        }
    }

    #[test]
    fn rates_follow_their_formulas() {
        let constant = rates("kind = \"constant\"\nwarmup = 10", 100);
        close(&constant, &[(1, 0.05), (5, 0.25), (10, 0.5), (99, 0.5)]);
        let none = rates("kind = \"constant\"\nwarmup = 0", 100);
        close(&none, &[(1, 0.5)]);
        let root = rates("kind = \"inverse-square-root\"\nwarmup = 100", 1000);
        close(&root, &[(50, 0.25), (100, 0.5), (400, 0.25)]);
        // 64^-0.5 = 1/8; at the end of the warm-up both sides are warmup^-0.5.
        let noam = rates("kind = \"noam\"\nwarmup = 100", 1000);
        close(
            &noam,
            &[
                (50, 0.5 / 8.0 * 0.05),
                (100, 0.5 / 80.0),
                (400, 0.5 / 160.0),
            ],
        );
        let cosine = rates("kind = \"cosine\"\nwarmup = 10\nfinal_share = 0.2", 110);
        close(
            &cosine,
            &[(5, 0.25), (10, 0.5), (60, 0.3), (110, 0.1), (500, 0.1)],
        );
        let short = rates(
            "kind = \"cosine\"\nwarmup = 10\nsteps = 60\nfinal_share = 0.2",
            110,
        );
        close(&short, &[(35, 0.3), (60, 0.1)]);
    }

    #[test]
    fn a_plateau_makes_the_rate_fall() {
        let rates = rates(
            "kind = \"plateau\"\nwarmup = 0\nfactor = 0.5\npatience = 2\nfinal_share = 0.2",
            100,
        );
        let mut falls = Falls::default();
        let mut seen = vec![];
        for is_better in [true, false, false, true, false, false, false, false] {
            falls = rates.validated(is_better, falls);
            seen.push(rates.at(9, falls));
        }
        // Two in a row without anything better are one fall; a fifth of the rate is always left.
        assert_eq!(seen, [0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.1]);
    }
}
