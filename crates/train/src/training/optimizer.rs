//! The config's optimizer: zoo-kernels' Adam, or Burn's SGD.

use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{ModuleOptimizer, SgdConfig};
use zoo_config::Optimizer;
use zoo_kernels::{AdamConfig, AdamKind};

/// Creates the optimizer with an empty state. Gradients are clipped in `gradients.rs`.
pub(crate) fn init_optimizer(config: &Optimizer) -> ModuleOptimizer {
    match config {
        Optimizer::Adam(adam) => AdamConfig::new(AdamKind::Adam)
            .with_beta_1(adam.beta_1)
            .with_beta_2(adam.beta_2)
            .with_epsilon(adam.epsilon)
            .with_weight_decay(adam.weight_decay)
            .init(),
        Optimizer::AdamW(adam) => AdamConfig::new(AdamKind::Adamw)
            .with_beta_1(adam.beta_1)
            .with_beta_2(adam.beta_2)
            .with_epsilon(adam.epsilon)
            .with_weight_decay(adam.weight_decay)
            .init(),
        Optimizer::Sgd(sgd) => {
            let momentum = MomentumConfig {
                momentum: sgd.momentum,
                // Burn's default of 0.1 would take a tenth of every gradient away.
                dampening: 0.0,
                nesterov: sgd.nesterov,
            };
            let decay = WeightDecayConfig::new(sgd.weight_decay as f32);
            SgdConfig::new()
                .with_momentum((sgd.momentum > 0.0).then_some(momentum))
                .with_weight_decay((sgd.weight_decay > 0.0).then_some(decay))
                .init()
        }
    }
}
