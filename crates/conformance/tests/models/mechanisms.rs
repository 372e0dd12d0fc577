//! Mechanisms in models at sizes that short sequences show them by.

use burn::tensor::Device;
use libtest_mimic::Failed;
use zoo_attention::MechanismConfig;
use zoo_conformance::differs_from_full;
use zoo_oracle::Mask;

/// Checks that a mechanism is not full attention in a decoder with four heads over so many tokens.
pub(crate) fn differs_in_a_decoder(
    mechanism: &MechanismConfig,
    tokens: usize,
    device: &Device,
) -> Result<(), Failed> {
    Ok(differs_from_full(
        mechanism,
        4,
        [tokens; 2],
        Mask::Causal,
        device,
    )?)
}

/// The same for an encoder.
pub(crate) fn differs_in_an_encoder(
    mechanism: &MechanismConfig,
    tokens: usize,
    device: &Device,
) -> Result<(), Failed> {
    Ok(differs_from_full(
        mechanism,
        4,
        [tokens; 2],
        Mask::Full,
        device,
    )?)
}
