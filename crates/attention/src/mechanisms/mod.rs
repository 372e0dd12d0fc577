//! Every mechanism, and one call for any of them.
//!
//! A mechanism is a struct of `zoo-spec`, with its keys and capabilities, and a file here that
//! implements `Attention` for it. What a file leaves out is derived from
//! [`flash`](crate::flash()) over its pattern.

mod attention;
mod choice;
mod params;

use burn::tensor::Tensor;
pub use zoo_spec::{LinearFeatures, Mechanism, MechanismConfig, for_each_mechanism};

pub(crate) use self::attention::{Attention, Inputs, Output, flops_of_matrix, flops_of_pairs};
pub use self::fixed::fixed;
pub use self::lsh::{Hashing, lsh};
pub(crate) use self::lsh::{hidden_by_hashes, units};
pub(crate) use self::params::{HeadSizes, Mode, Params, init_matrix, init_vector};
pub use self::params::{MechanismParams, drawn_matrix, drawn_vector};
pub use self::strided::strided;
use crate::{AttentionOptions, Body, which_body};

macro_rules! registry {
    ($($module:ident::$type:ident),+ $(,)?) => {
        $( pub mod $module; )+
        pub use zoo_spec::{$($type),+};

        /// The implementation of a mechanism.
        pub(crate) fn of(mechanism: &MechanismConfig) -> &dyn Attention {
            match mechanism {
                $( MechanismConfig::$type(mechanism) => mechanism, )+
            }
        }
    };
}

for_each_mechanism!(registry);

/// Attends with a mechanism: its name, for the default sizes, or a [`MechanismConfig`].
///
/// A mechanism that attends to some of the keys attends to those of them that the options' pattern
/// shows. Parameters are those of the initialisation, always the same, and a mechanism that
/// samples uses its own seed: to measure it, not to train it. `lsh` uses its queries as keys and
/// ignores `key`.
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
/// If the tensors or the options do not fit together, or the mechanism does not support an option.
pub fn attend(
    mechanism: impl Into<MechanismConfig>,
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let inputs = Inputs { query, key, value };
    let mechanism = mechanism.into();
    let output = of(&mechanism).forward(inputs, &Params::default(), options);
    output.context
}

/// Which kernel computes a mechanism that is a single call of [`flash`](crate::flash()), on the
/// backend of these tensors; `None` for the others.
///
/// # Panics
///
/// As for [`attend`].
pub fn which_body_of(
    mechanism: &MechanismConfig,
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
) -> Option<Body> {
    let mechanism = of(mechanism);
    let [.., seq_k, d_head] = key.dims();
    let options = || mechanism.options(options, seq_k, d_head);
    let is_flash = mechanism.is_flash();
    is_flash.then(|| which_body(query, key, value, &options()))
}
