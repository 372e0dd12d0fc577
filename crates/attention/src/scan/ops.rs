//! The fused scan as a backend extension, with a hand-written backward pass: one op on backends with
//! kernels.

use std::fmt::Debug;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};
use zoo_kernels::autodiff::{Step, record};

use super::call::{ScanInputs, ScanSettings};
use crate::flash::DenseMask;

/// Linear attention or retention, for the calls of which [`kernel_for`](super::kernel_for) selects a
/// kernel.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait LinearScan: Backend {
    /// The context `[batch, heads, seq_q, d_value]`.
    #[allow(unused_variables)] // unused without backends
    fn linear_scan(
        #[extension_type] inputs: ScanInputs<Self>,
        settings: ScanSettings,
    ) -> FloatTensor<Self>;
}

/// The passes of a backend with kernels.
pub(crate) trait ScanPasses: Backend {
    /// What the forward pass saves besides the context.
    type Stats: Debug + Clone + Send + 'static;

    fn scan_forward(
        inputs: &ScanInputs<Self>,
        settings: &ScanSettings,
    ) -> (FloatTensor<Self>, Self::Stats);

    /// The gradients of query, key and value.
    fn scan_backward(saved: Saved<Self>, d_context: FloatTensor<Self>) -> [FloatTensor<Self>; 3];
}

/// The state saved for the backward pass.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: ScanPasses> {
    pub(crate) inputs: ScanInputs<B>,
    /// `None` for retention, whose gradients do not depend on it.
    pub(crate) context: Option<FloatTensor<B>>,
    pub(crate) stats: B::Stats,
    pub(crate) settings: ScanSettings,
}

impl<B: ScanPasses, C: CheckpointStrategy> LinearScan for Autodiff<B, C> {
    fn linear_scan(inputs: ScanInputs<Self>, settings: ScanSettings) -> FloatTensor<Self> {
        let tensors = [inputs.query, inputs.key, inputs.value];
        let parents = tensors.each_ref().map(|tensor| tensor.node());
        let [query, key, value] = tensors.map(|tensor| tensor.into_primitive());
        let inputs = ScanInputs::<B> {
            query,
            key,
            value,
            masked: match inputs.masked {
                DenseMask::None => DenseMask::None,
                DenseMask::Bool(masked) => DenseMask::Bool(masked),
            },
        };
        let (context, stats) = B::scan_forward(&inputs, &settings);
        let saved = Saved {
            inputs,
            context: settings.map.is_normalised().then(|| context.clone()),
            stats,
            settings,
        };
        record::<B, C, _, 3>(Step(B::scan_backward), parents, saved, context)
    }
}
