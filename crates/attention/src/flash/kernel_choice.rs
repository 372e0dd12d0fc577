//! The implementations of flash attention.

use std::fmt;

#[cfg(feature = "tch")]
use burn::backend::BackendTensor;
use burn::backend::DispatchTensorKind;
#[cfg(feature = "cube")]
use burn::backend::TensorMetadata;
use burn::tensor::{DType, Tensor};
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use zoo_kernels::cpu::InstructionSet;

use super::call::TiledSettings;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use super::cpu;
#[cfg(feature = "cube")]
use super::cube;
#[cfg(feature = "tch")]
use super::libtorch;
use crate::precision::widened;

/// The implementation that computes a call of [`flash`](super::flash).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlashKernel {
    /// CPU kernels with AMX and AVX-512, for bf16.
    CpuAmx,
    /// CPU kernels with AVX-512.
    CpuAvx512,
    /// CPU kernels with AVX2 and FMA.
    CpuAvx2,
    /// CPU kernels without special instructions.
    CpuPortable,
    /// LibTorch's own kernels, on CUDA.
    Aten,
    /// CubeCL kernels.
    Cube,
    /// CubeCL kernels that use the GPU's matrix instructions.
    CubeCmma,
    /// CubeCL kernels for NVIDIA GPUs that keep scores and weights in the registers of their matrix
    /// instructions.
    CubeMma,
    /// Tile loops over the backend's operations.
    TileLoops,
    /// The same tile loops, differentiated by autodiff operation by operation, so training keeps
    /// the score matrices in memory. Used if the feature of the backend is not enabled.
    Composite,
}

impl FlashKernel {
    /// Whether this is one of the CPU kernels.
    pub fn is_cpu(self) -> bool {
        matches!(
            self,
            Self::CpuAmx | Self::CpuAvx512 | Self::CpuAvx2 | Self::CpuPortable
        )
    }

    /// Whether the kernel multiplies half-precision tensors directly and accumulates in `f32`. The others
    /// compute in `f32`.
    pub fn supports_half(self) -> bool {
        matches!(
            self,
            Self::CpuAmx | Self::Aten | Self::CubeCmma | Self::CubeMma
        )
    }

    /// Name of the kernel in tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuAmx => "cpu-amx",
            Self::CpuAvx512 => "cpu-avx512",
            Self::CpuAvx2 => "cpu-avx2",
            Self::CpuPortable => "cpu-portable",
            Self::Aten => "aten",
            Self::Cube => "cube",
            Self::CubeCmma => "cube-cmma",
            Self::CubeMma => "cube-mma",
            Self::TileLoops => "tile-loops",
            Self::Composite => "composite",
        }
    }
}

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
impl From<InstructionSet> for FlashKernel {
    fn from(set: InstructionSet) -> Self {
        match set {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => Self::CpuAvx512,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => Self::CpuAvx2,
            InstructionSet::Portable => Self::CpuPortable,
        }
    }
}

impl fmt::Display for FlashKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kernel of a call and the type it computes in: the stored type if the kernel supports half
/// precision and the bias, else `f32`.
pub(super) fn select(
    query: &Tensor<4>,
    has_mask: bool,
    bias: Option<&Tensor<4>>,
    settings: &TiledSettings,
) -> (FlashKernel, DType) {
    let stored = query.dtype();
    let kind = query.clone().into_dispatch().kind;
    let has_mask_or_bias = has_mask || bias.is_some();
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    if stored == DType::BF16 && zoo_kernels::is_on_host(query) {
        let is_differentiable = is_autodiff(&kind);
        if cpu::uses_amx(settings, is_differentiable) {
            return (FlashKernel::CpuAmx, stored);
        }
        let dtype = match cpu::reads_bf16(settings, is_differentiable) {
            true => stored,
            false => DType::F32,
        };
        return (InstructionSet::detect().into(), dtype);
    }
    let kernel = kernel_for(&kind, stored, has_mask_or_bias, settings);
    let supports_bias = match kernel {
        FlashKernel::Aten => bias.is_none_or(|bias| bias.dtype() == stored),
        // The tile loops compute the bias gradient, in `f32`.
        FlashKernel::CubeCmma | FlashKernel::CubeMma => bias.is_none(),
        FlashKernel::CpuAmx
        | FlashKernel::CpuAvx512
        | FlashKernel::CpuAvx2
        | FlashKernel::CpuPortable
        | FlashKernel::Cube
        | FlashKernel::TileLoops
        | FlashKernel::Composite => false,
    };
    if kernel.supports_half() && supports_bias {
        return (kernel, stored);
    }
    let dtype = widened(stored);
    (kernel_for(&kind, dtype, has_mask_or_bias, settings), dtype)
}

/// The type of the bias of a kernel that computes in `dtype`.
pub(super) fn bias_dtype(kernel: FlashKernel, dtype: DType) -> DType {
    match kernel {
        // They add it to scores in `f32`.
        FlashKernel::CpuAmx
        | FlashKernel::CpuAvx512
        | FlashKernel::CpuAvx2
        | FlashKernel::CpuPortable => DType::F32,
        FlashKernel::Aten
        | FlashKernel::Cube
        | FlashKernel::CubeCmma
        | FlashKernel::CubeMma
        | FlashKernel::TileLoops
        | FlashKernel::Composite => dtype,
    }
}

/// Whether the tensor may require gradients.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
fn is_autodiff(kind: &DispatchTensorKind) -> bool {
    match kind {
        DispatchTensorKind::Autodiff(_) => true,
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(_)) => true,
        // The other backends, depending on the features.
        _ => false,
    }
}

/// The kernel that computes a call on the backend of a tensor.
#[allow(unused_variables, clippy::only_used_in_recursion)] // depends on the features
fn kernel_for(
    kind: &DispatchTensorKind,
    dtype: DType,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> FlashKernel {
    match kind {
        _ if zoo_kernels::reference::is_enabled() => FlashKernel::Composite,
        DispatchTensorKind::Autodiff(inner) => kernel_for(inner, dtype, has_mask_or_bias, settings),
        #[cfg(feature = "flex")]
        DispatchTensorKind::Flex(_) => InstructionSet::detect().into(),
        #[cfg(feature = "ndarray")]
        DispatchTensorKind::NdArray(_) => InstructionSet::detect().into(),
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Float(tensor)) => {
            libtorch::kernel_for(tensor, dtype, has_mask_or_bias, settings)
        }
        #[cfg(feature = "tch")]
        DispatchTensorKind::LibTorch(BackendTensor::Autodiff(tensor)) => {
            libtorch::kernel_for(tensor.primitive(), dtype, has_mask_or_bias, settings)
        }
        #[cfg(feature = "cube")]
        DispatchTensorKind::Cube(tensor) => {
            cube::kernel_for(&tensor.device(), dtype, has_mask_or_bias, settings)
        }
        #[allow(unreachable_patterns)] // depends on the features
        _ => FlashKernel::Composite,
    }
}
