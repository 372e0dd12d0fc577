//! The implementations of linear attention, and which of them computes a call.

use std::fmt;

use burn::backend::DispatchTensorKind;
#[cfg(feature = "cube")]
use burn::backend::TensorMetadata;
use burn::tensor::{DType, Tensor};
use zoo_kernels::hosts::location::is_on_host;

use crate::AttentionShape;
use crate::precision::widened;

/// The implementation that computes a call of linear attention, retention or a gated recurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScanKernel {
    /// CPU kernels, in `f32`.
    Cpu,
    /// CubeCL kernels. Random features are computed by the backend's operations first.
    Cube,
    /// The backend's operations, differentiated by autodiff operation by operation.
    Composite,
}

impl ScanKernel {
    /// Name of the kernel in tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cube => "cube",
            Self::Composite => "composite",
        }
    }
}

impl fmt::Display for ScanKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kernel of a call with this number of features and the type it computes in: the stored type
/// if the kernel supports it, else `f32`.
pub(crate) fn kernel_for(
    query: &Tensor<4>,
    shape: &AttentionShape,
    features: usize,
) -> (ScanKernel, DType) {
    let stored = query.dtype();
    let wide = widened(stored);
    if is_on_host(query) {
        return (ScanKernel::Cpu, wide);
    }
    let shape = AttentionShape {
        d_head: features,
        ..*shape
    };
    let kind = query.clone().into_dispatch().kind;
    for dtype in [stored, wide] {
        if has_cube_kernel(&kind, dtype, &shape) {
            return (ScanKernel::Cube, dtype);
        }
    }
    (ScanKernel::Composite, wide)
}

/// Whether the CubeCL kernels support a call on the backend of a tensor.
#[allow(unused_variables, clippy::only_used_in_recursion)] // depends on the features
fn has_cube_kernel(kind: &DispatchTensorKind, dtype: DType, shape: &AttentionShape) -> bool {
    match kind {
        _ if zoo_kernels::reference::is_enabled() => false,
        DispatchTensorKind::Autodiff(inner) => has_cube_kernel(inner, dtype, shape),
        #[cfg(feature = "cube")]
        DispatchTensorKind::Cube(tensor) => super::cube::supports(&tensor.device(), dtype, shape),
        #[allow(unreachable_patterns)] // depends on the features
        _ => false,
    }
}
