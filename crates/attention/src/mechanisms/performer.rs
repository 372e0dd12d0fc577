//! Linear attention by random features, whose products approximate the exponential of softmax.
//!
//! Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.

use burn::tensor::{Device, Tensor};
use zoo_spec::Performer;

use super::{Attention, HeadSizes, Inputs, MechanismParams, Output, Params};
use crate::analysis::weighing::Weighing;
pub use crate::scan::RedrawnFeatures;
use crate::scan::{FeatureMap, LinearState, RandomFeatures};
use crate::{AttentionOptions, AttentionShape, linear};

impl Attention for Performer {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let first = RandomFeatures::new(self.features, self.seed);
        let redrawn = |interval| RedrawnFeatures::new(first, interval, sizes.d_head, device);
        MechanismParams {
            features: self.redraw_interval().map(redrawn),
            ..MechanismParams::none()
        }
    }

    fn forward(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let features = params.features.clone().unwrap_or(random_features(self));
        linear(query, key, value, features, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, params: &Params, _: &Tensor<4>, _: &AttentionShape) -> Weighing {
        Weighing::Features(params.features.clone().unwrap_or(random_features(self)))
    }

    fn features(&self) -> Option<FeatureMap> {
        Some(random_features(self))
    }

    fn state(&self, _: usize) -> Option<LinearState> {
        Some(LinearState::of_features(random_features(self)))
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, self.features)
    }
}

fn random_features(performer: &Performer) -> FeatureMap {
    FeatureMap::FavorPlus(RandomFeatures::new(performer.features, performer.seed))
}
