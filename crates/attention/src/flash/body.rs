//! What computes a call.

use std::fmt;

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use zoo_kernels::cpu::InstructionSet;

/// What computes [`flash`](super::flash) for a call, on some backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Body {
    /// The kernels for CPUs, with AVX-512.
    CpuAvx512,
    /// The same with AVX2 and FMA.
    CpuAvx2,
    /// The same with what every processor has.
    CpuPortable,
    /// LibTorch's own kernels, on CUDA.
    Aten,
    /// The kernels for the backends of CubeCL.
    Cube,
    /// The same with the matrix instructions of a GPU, half precision as it is.
    CubeMatrices,
    /// Tile loops over the backend's operations.
    Tiles,
    /// The same, recorded by autodiff one by one, so that training holds the matrices
    /// after all: no feature of the backend's name was asked for.
    Recorded,
}

impl Body {
    /// Whether it is one of the kernels for CPUs.
    pub fn is_cpu(self) -> bool {
        matches!(self, Self::CpuAvx512 | Self::CpuAvx2 | Self::CpuPortable)
    }

    /// Whether it multiplies half precision as it is, and adds up in `f32`. The others compute
    /// all of it in `f32`.
    pub fn keeps_half(self) -> bool {
        matches!(self, Self::Aten | Self::CubeMatrices)
    }

    /// How it is called in tables and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::CpuAvx512 => "cpu-avx512",
            Self::CpuAvx2 => "cpu-avx2",
            Self::CpuPortable => "cpu-portable",
            Self::Aten => "aten",
            Self::Cube => "cube",
            Self::CubeMatrices => "cube-matrices",
            Self::Tiles => "tiles",
            Self::Recorded => "recorded",
        }
    }
}

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
impl From<InstructionSet> for Body {
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

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
