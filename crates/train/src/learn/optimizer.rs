//! The config's optimizer, as Burn has it.

use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, ModuleOptimizer, SgdConfig};
use zoo_config::Optimizer;

/// Makes it, without a memory yet. Clipping is not its own: see [`clip`](super::clip).
pub(crate) fn optimizer(said: &Optimizer) -> ModuleOptimizer {
    match said {
        Optimizer::Adam(adam) => AdamConfig::new()
            .with_beta_1(adam.beta_1 as f32)
            .with_beta_2(adam.beta_2 as f32)
            .with_epsilon(adam.epsilon as f32)
            .with_weight_decay(decay(adam.weight_decay))
            .init(),
        Optimizer::AdamW(adam) => AdamWConfig::new()
            .with_beta_1(adam.beta_1 as f32)
            .with_beta_2(adam.beta_2 as f32)
            .with_epsilon(adam.epsilon as f32)
            .with_weight_decay(adam.weight_decay as f32)
            .init(),
        Optimizer::Sgd(sgd) => SgdConfig::new()
            .with_momentum((sgd.momentum > 0.0).then(|| MomentumConfig {
                momentum: sgd.momentum,
                dampening: 0.0,
                nesterov: sgd.nesterov,
            }))
            .with_weight_decay(decay(sgd.weight_decay))
            .init(),
    }
}

fn decay(share: f64) -> Option<WeightDecayConfig> {
    (share > 0.0).then(|| WeightDecayConfig::new(share as f32))
}
