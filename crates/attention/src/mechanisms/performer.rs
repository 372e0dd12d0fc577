//! Linear attention with random features that approximate the exponential of softmax.
//!
//! Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.

use burn::tensor::{Device, Tensor};
use zoo_spec::Performer;

use super::{Attention, Call, HeadSizes, Inputs, MechanismParams};
use crate::counter::mix;
use crate::mechanisms::linear::linear;
use crate::scan::{FeatureMap, RandomFeatures, ResampledFeatures, ScanKernel, kernel_for};
use crate::seed::next_seed;
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Performer {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        // Features that are resampled are part of the record, so their first sample may be random.
        let resampled = |interval| {
            let seed = mix(self.seed ^ next_seed(device));
            let first = RandomFeatures::new(self.n_features, seed);
            ResampledFeatures::new(first, interval, sizes.d_head, device)
        };
        MechanismParams {
            features: self.resample_interval().map(resampled),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let features = call.params.features.clone();
        let features = features.unwrap_or(random_features(self));
        linear(query, key, value, features, call.options).into()
    }

    fn features(&self) -> Option<FeatureMap> {
        Some(random_features(self))
    }

    fn scan_kernel(&self, query: &Tensor<4>, shape: &AttentionShape) -> Option<ScanKernel> {
        Some(kernel_for(query, shape, self.n_features).0)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, self.n_features)
    }
}

fn random_features(performer: &Performer) -> FeatureMap {
    FeatureMap::FavorPlus(RandomFeatures::new(performer.n_features, performer.seed))
}
