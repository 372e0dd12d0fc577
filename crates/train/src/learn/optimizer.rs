//! The config's optimizer: zoo-kernels' Adam, or Burn's descent.

use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{ModuleOptimizer, SgdConfig};
use zoo_config::Optimizer;
use zoo_kernels::{AdamConfig, AdamKind};

/// Makes it, without a memory yet. Clipping is not its own: see `gradients.rs`.
pub(crate) fn optimizer(said: &Optimizer) -> ModuleOptimizer {
    match said {
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
                // Burn's own default takes a tenth of every gradient away.
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
