//! The gated recurrence of host backends as a backend extension, with a hand-written backward pass.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, ExtensionType, backend_extension};
use zoo_kernels::autodiff::{Step, record};

use super::Update;
use crate::AttentionShape;

/// Arguments of the op besides its tensors. There are as many queries as keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatedSettings {
    pub(crate) shape: AttentionShape,
    pub(crate) update: Update,
    /// The factor of queries.
    pub(crate) scale: f64,
}

/// The input tensors of a call, in `f32`.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct GatedInputs<B: Backend> {
    /// `[batch, heads, seq, d_head]`
    pub(crate) query: FloatTensor<B>,
    /// `[batch, kv_heads, seq, d_head]`
    pub(crate) key: FloatTensor<B>,
    /// `[batch, kv_heads, seq, d_value]`
    pub(crate) value: FloatTensor<B>,
    /// `[batch, kv_heads, seq, 1 or d_head]`
    pub(crate) log_decay: FloatTensor<B>,
    /// `[batch, kv_heads, seq, 1]`
    pub(crate) strength: FloatTensor<B>,
}

/// A gated recurrence of tensors in host memory. A delta rule normalises queries and keys.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait GatedScan: Backend {
    /// The context `[batch, heads, seq, d_value]`.
    #[allow(unused_variables)] // unused without backends
    fn gated_scan(
        #[extension_type] inputs: GatedInputs<Self>,
        settings: GatedSettings,
    ) -> FloatTensor<Self>;
}

/// The passes of a backend.
pub(crate) trait GatedPasses: Backend {
    /// The context and, if `is_tracked`, the states before all chunks.
    fn gated_forward(
        inputs: &GatedInputs<Self>,
        settings: &GatedSettings,
        is_tracked: bool,
    ) -> (FloatTensor<Self>, Vec<f32>);

    /// The gradients of the inputs, in their order.
    fn gated_backward(saved: Saved<Self>, d_context: FloatTensor<Self>) -> [FloatTensor<Self>; 5];
}

/// The state saved for the backward pass.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) inputs: GatedInputs<B>,
    pub(crate) states: std::sync::Arc<Vec<f32>>,
    pub(crate) settings: GatedSettings,
}

impl<B: GatedPasses, C: CheckpointStrategy> GatedScan for Autodiff<B, C> {
    fn gated_scan(inputs: GatedInputs<Self>, settings: GatedSettings) -> FloatTensor<Self> {
        let GatedInputs {
            query,
            key,
            value,
            log_decay,
            strength,
        } = inputs;
        let tensors = [query, key, value, log_decay, strength];
        let parents = tensors.each_ref().map(|tensor| tensor.node());
        let [query, key, value, log_decay, strength] =
            tensors.map(|tensor| tensor.into_primitive());
        let inputs = GatedInputs::<B> {
            query,
            key,
            value,
            log_decay,
            strength,
        };
        let step = Step::<B, Saved<B>, 5>(B::gated_backward);
        let (context, states) = B::gated_forward(&inputs, &settings, true);
        let saved = Saved {
            inputs,
            states: states.into(),
            settings,
        };
        record::<B, C, _, 5>(step, parents, saved, context)
    }
}
