//! The attention mechanisms and their registry.
//!
//! A mechanism is a struct of `zoo-spec`, with its keys and capabilities, and a file here that
//! implements `Attention` for it. By default a mechanism is [`flash`](crate::flash()) with its
//! pattern.

mod attention;
mod block_selection;
mod gates;
mod params;
mod recurrence;
mod short_convolution;

use burn::tensor::Tensor;
pub use zoo_spec::{LinearFeatures, Mechanism, MechanismConfig, for_each_mechanism};

pub(crate) use self::attention::{Attention, Call, Inputs, Retained, pair_flops, projection_flops};
pub use self::fixed::fixed;
pub(crate) use self::gates::Gates;
pub use self::gates::{init_branch_gates, init_log_decays, init_strengths};
pub use self::lsh::{Hashing, lsh};
pub(crate) use self::lsh::{lsh_mask, normalize_rows};
pub(crate) use self::params::{HeadSizes, Mode, Params, matrix_param, vector_param};
pub use self::params::{
    MechanismParams, init_differential, init_matrix, init_projection, init_table, init_vector,
};
pub(crate) use self::short_convolution::ConvolutionInputs;
pub use self::short_convolution::ShortConvolution;
pub use self::strided::strided;
use crate::AttentionOptions;
use crate::flash::FlashKernel;
use crate::scan::ScanKernel;

macro_rules! registry {
    ($($module:ident::$type:ident),+ $(,)?) => {
        $( pub mod $module; )+
        pub use zoo_spec::{$($type),+};

        /// The implementation of a mechanism.
        pub(crate) fn implementation(mechanism: &MechanismConfig) -> &dyn Attention {
            match mechanism {
                $( MechanismConfig::$type(mechanism) => mechanism, )+
            }
        }
    };
}

for_each_mechanism!(registry);

/// Computes attention with a mechanism, given by its name (with default settings) or as a
/// [`MechanismConfig`].
///
/// The mask of a sparse mechanism is intersected with the pattern of the options. Parameters have
/// their initial values, which are always the same, and a mechanism that samples uses its own seed:
/// this is meant for benchmarks, not for training. `lsh` uses its queries as keys and ignores
/// `key`.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the shapes or the options do not match, or the mechanism does not support an option.
pub fn attend(
    mechanism: impl Into<MechanismConfig>,
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let inputs = Inputs::new([query, key, value]);
    let mechanism = mechanism.into();
    let params = &Params::default();
    let output = implementation(&mechanism).forward(inputs, Call { params, options });
    output.context
}

/// The implementation that computes a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MechanismKernel {
    /// Of a single call of the tiled kernels.
    Flash(FlashKernel),
    /// Of a chunked recurrence.
    Scan(ScanKernel),
}

impl MechanismKernel {
    /// Name of the kernel in tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flash(kernel) => kernel.name(),
            Self::Scan(kernel) => kernel.name(),
        }
    }
}

/// The kernel that computes a mechanism on the backend of these tensors, or `None` if the mechanism
/// is neither a single call of the tiled kernels nor a chunked recurrence. Panics are those of
/// [`attend`].
pub fn selected_kernel_of(
    mechanism: &MechanismConfig,
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> Option<MechanismKernel> {
    let mechanism = implementation(mechanism);
    let shape = options.check_call("attention", [query, key, value]);
    if let Some(kernel) = mechanism.scan_kernel(query, &shape) {
        return Some(MechanismKernel::Scan(kernel));
    }
    let kernel = mechanism.kernel([query, key, value], options);
    kernel.map(MechanismKernel::Flash)
}
