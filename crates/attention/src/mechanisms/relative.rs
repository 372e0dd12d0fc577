//! Softmax attention with a learned bias for each bucket of relative positions.
//!
//! ```text
//! score_ij = scale · q_i · k_j + table[bucket(j - i)]
//! ```
//!
//! Raffel et al., [Exploring the Limits of Transfer Learning with a Unified Text-to-Text
//! Transformer](https://arxiv.org/abs/1910.10683), 2020.

use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use zoo_spec::Relative;

use super::{Attention, Call, HeadSizes, Inputs, MechanismParams, init_table};
use crate::precision::widen;
use crate::{AttentionOptions, RelativeBuckets};

impl Attention for Relative {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let table = initial_table(self, sizes.heads, (device, DType::F32));
        MechanismParams {
            table: Some(Param::from_tensor(table)),
            ..MechanismParams::default()
        }
    }

    fn options(&self, inputs: &Inputs, call: Call<'_>) -> AttentionOptions {
        let [_, heads, seq_q, _] = inputs.query.dims();
        let [_, _, seq_k, _] = inputs.key.dims();
        let options = (&inputs.query.device(), inputs.query.dtype());
        let table = call.params.table.clone();
        let table = table.unwrap_or_else(|| initial_table(self, heads, options));
        let buckets = RelativeBuckets {
            num_buckets: self.num_buckets,
            max_distance: self.max_distance,
            is_bidirectional: self.bidirectional,
        };
        let bias = buckets.bias(widen(table), seq_q, seq_k);
        let bias = match call.options.relative_bias.clone() {
            Some(other) => widen(other) + bias,
            None => bias,
        };
        call.options.clone().with_relative_bias(bias)
    }
}

fn initial_table(config: &Relative, heads: usize, options: (&Device, DType)) -> Tensor<2> {
    let values = init_table(heads, config.num_buckets);
    Tensor::from_data(
        TensorData::new(values, [heads, config.num_buckets]),
        options,
    )
}
