//! Linear attention with random features that approximate the exponential of softmax.
//!
//! Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.

use burn::tensor::{Device, Tensor};
use zoo_spec::Performer;

use super::{Attention, HeadSizes, Inputs, MechanismParams, Params};
use crate::analysis::weights::WeightFunction;
use crate::counter::mix;
use crate::mechanisms::linear::linear;
pub use crate::scan::ResampledFeatures;
use crate::scan::{FeatureMap, LinearState, RandomFeatures};
use crate::seed::next_seed;
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Performer {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        // Features that are resampled are part of the record, so their first sample may be random.
        let resampled = |interval| {
            let seed = mix(self.seed ^ next_seed(device));
            let first = RandomFeatures::new(self.features, seed);
            ResampledFeatures::new(first, interval, sizes.d_head, device)
        };
        MechanismParams {
            features: self.resample_interval().map(resampled),
            ..MechanismParams::none()
        }
    }

    fn forward(
        &self,
        inputs: Inputs,
        params: &Params,
        options: &AttentionOptions,
    ) -> AttentionOutput {
        let Inputs { query, key, value } = inputs;
        let features = params.features.clone().unwrap_or(random_features(self));
        linear(query, key, value, features, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weight_fn(&self, params: &Params, _: &Tensor<4>, _: &AttentionShape) -> WeightFunction {
        WeightFunction::Features(params.features.clone().unwrap_or(random_features(self)))
    }

    fn features(&self) -> Option<FeatureMap> {
        Some(random_features(self))
    }

    fn state(&self, _: usize) -> Option<LinearState> {
        Some(LinearState::from_features(random_features(self)))
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, self.features)
    }
}

fn random_features(performer: &Performer) -> FeatureMap {
    FeatureMap::FavorPlus(RandomFeatures::new(performer.features, performer.seed))
}
