//! Data types of tensors, and compute precisions.

crate::names! {
    /// A floating-point data type.
    pub enum Dtype: "dtype" = F32 {
        /// Single precision.
        F32 = "f32",
        /// Half precision; small gradients underflow without loss scaling.
        F16 = "f16",
        /// bfloat16, with the range of `f32`.
        Bf16 = "bf16",
    }
}

crate::names! {
    /// A compute precision.
    pub enum Precision: "precision" = F32 {
        /// Single precision.
        F32 = "f32",
        /// Single precision, but linear layers round the operands of their matmuls to TF32 (11
        /// significant bits); only on `cuda`.
        Tf32 = "tf32",
        /// Half precision; small gradients underflow without loss scaling.
        F16 = "f16",
        /// bfloat16, with the range of `f32`.
        Bf16 = "bf16",
    }
}

impl Precision {
    /// The type of the tensors.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::F32 | Self::Tf32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
        }
    }
}

impl From<Dtype> for Precision {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
        }
    }
}
