//! The number types tensors are stored in.

crate::words! {
    /// A number type by the word people write for it.
    pub enum Dtype: "dtype" = F32 {
        /// 32 bits.
        F32 = "f32",
        /// 16 bits; small gradients vanish without a loss scale.
        F16 = "f16",
        /// 16 bits with the range of `f32`.
        Bf16 = "bf16",
    }
}
