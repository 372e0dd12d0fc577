//! Data types of tensors.

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
