//! Tiled attention on bf16 tensors, with AMX.
//!
//! The structure is that of the `f32` kernels: a score tile has a row per key and a column per query,
//! in `f32`, so that masks, biases, softcap and score functions are applied by the same code. Only
//! the matmuls differ. They multiply bf16 and sum in `f32`:
//!
//! ```text
//! scores = K · Qᵀ           contextᵀ += Vᵀ · weights            weights rounded to bf16
//! d_weights = V · dOᵀ       dV += weights · dO    dK += d_scores · Q    dQᵀ += Kᵀ · d_scores
//! ```
//!
//! Keys and values are packed once per call, in time linear in the sequence length. Calls with NaN or
//! infinity in a tensor are computed in `f32`, whose kernels keep them out of masked keys.

mod backward;
mod forward;
mod operands;
mod softmax;
#[cfg(test)]
mod tests;

use burn::tensor::bf16;
use rayon::prelude::*;
use zoo_kernels::cpu::bf16::{Bf16Set, zeros};

pub(super) use self::backward::backward;
use self::operands::{ForwardKeys, is_all_finite};
use super::call::{Call, STATS};
use super::kernel::QUERIES;

/// Calls a kernel for the instruction set, in a function with the instructions of its vectors.
macro_rules! dispatch_bf16 {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $kind:ty),* $(,)?) by $kernel:ident;) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The CPU supports the instruction set, and the arguments are valid for the kernel.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
        $vis unsafe fn $name(set: Bf16Set, $($arg: $kind),*) {
            // SAFETY: as promised by the caller.
            unsafe {
                match set {
                    Bf16Set::Amx => $kernel::<Amx>($($arg),*),
                    Bf16Set::Avx512 => $kernel::<Avx512Bf16>($($arg),*),
                }
            }
        }
    };
}
use dispatch_bf16;

/// Context `[batch, heads, seq_q, d_value]` and [statistics](super::forward); `None` if an input is
/// not finite.
pub(super) fn forward(set: Bf16Set, call: &Call<'_, bf16>) -> Option<(Vec<bf16>, Vec<f32>)> {
    let shape = call.shape;
    let packed = ForwardKeys::pack(set, call)?;
    if !is_all_finite(set, call.query) {
        return None;
    }
    let heads = shape.batch * shape.heads;
    let mut context = zeros(heads * shape.seq_q * shape.d_value);
    let mut stats = vec![0.0; heads * shape.seq_q * STATS];
    context
        .par_chunks_mut(shape.seq_q * shape.d_value)
        .zip(stats.par_chunks_mut(shape.seq_q * STATS))
        .enumerate()
        .for_each(|(head, (context, stats))| {
            context
                .par_chunks_mut(QUERIES * shape.d_value)
                .zip(stats.par_chunks_mut(QUERIES * STATS))
                .enumerate()
                .for_each(|(row, (context, stats))| {
                    // SAFETY: the CPU supports the instruction set.
                    unsafe { forward::forward(set, call, &packed, head, row, context, stats) };
                });
        });
    Some((context, stats))
}
