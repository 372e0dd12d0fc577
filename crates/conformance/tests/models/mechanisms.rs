//! Mechanisms at sizes that a few tokens are enough for.

use zoo_attention::{Mechanism, MechanismConfig};

/// A mechanism that sees less than all of ten places, if it ever does.
pub(crate) fn small(mechanism: Mechanism) -> MechanismConfig {
    match mechanism {
        Mechanism::SlidingWindow => MechanismConfig::SlidingWindow { window: 2 },
        Mechanism::LocalM => MechanismConfig::LocalM { window: 2 },
        Mechanism::LocalP => MechanismConfig::LocalP { window: 2 },
        Mechanism::Block => MechanismConfig::Block { size: 3 },
        Mechanism::Fixed => MechanismConfig::Fixed {
            block: None,
            summary: 1,
        },
        Mechanism::Longformer => MechanismConfig::Longformer {
            window: 1,
            global: 1,
        },
        Mechanism::BigBird => MechanismConfig::BigBird {
            block: 2,
            neighbours: 0,
            global: 1,
            random: 1,
            seed: 0,
        },
        Mechanism::Lsh => MechanismConfig::Lsh {
            bucket: 2,
            rounds: 1,
            seed: 0,
        },
        Mechanism::Performer => MechanismConfig::Performer {
            features: 16,
            seed: 0,
            redraw: None,
        },
        other => other.into(),
    }
}
