//! Which calls are computed on bf16 tensors, and by which kernel. Others are widened to `f32`.

use burn::tensor::bf16 as Bf16;
#[cfg(target_arch = "x86_64")]
use zoo_kernels::cpu::bf16::Bf16Set;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::call::{BackwardInputs, Call};
use super::{decode, is_decode};
use crate::flash::call::{Program, TiledSettings};

/// Whether the call is computed by the kernels that multiply bf16 with AMX, or would be with a backward
/// pass.
pub(in crate::flash) fn uses_amx(settings: &TiledSettings, is_differentiable: bool) -> bool {
    has_amx() && has_bf16_kernels(settings) && (is_differentiable || !is_decode_call(settings))
}

/// Whether the call is computed on bf16 tensors, by [these kernels](uses_amx) or, in decoding without
/// gradients, by kernels that widen keys and values in registers.
pub(in crate::flash) fn reads_bf16(settings: &TiledSettings, is_differentiable: bool) -> bool {
    uses_amx(settings, is_differentiable) || (!is_differentiable && is_decode_call(settings))
}

/// Whether the bf16 kernels with AMX support a call. Gathered rows would have to be packed for every
/// tile, and the other programs are not products of bf16.
fn has_bf16_kernels(settings: &TiledSettings) -> bool {
    match settings.program {
        Program::Softmax => settings.gather.is_none(),
        Program::Additive | Program::Gaussian { .. } | Program::Sigmoid | Program::Hard(_) => false,
    }
}

/// [`is_decode`] for the settings of a call.
fn is_decode_call(settings: &TiledSettings) -> bool {
    settings.shape.seq_q <= decode::MAX_QUERIES
        && settings.gather.is_none()
        && settings.dropout.is_none()
        && settings.program == Program::Softmax
        && settings.score_mod.is_none()
}

fn has_amx() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_amx = Bf16Set::detect().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    let has_amx = false;
    has_amx
}

/// Context and statistics, as [`forward`](super::forward); `None` if the call must be computed in
/// `f32`: because an element is not finite, or without AMX.
pub(in crate::flash) fn forward_bf16(call: &Call<'_, Bf16>) -> Option<(Vec<Bf16>, Vec<f32>)> {
    // The statistics of the decoding kernel are not those of the kernels of the backward pass.
    if is_decode(call) && !call.is_tracked {
        let (context, stats) = decode::forward(call);
        return Some((context.into_iter().map(Bf16::from_f32).collect(), stats));
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(set) = Bf16Set::detect() {
        return bf16::forward(set, call);
    }
    None
}

/// The gradients of query, key and value; `None` as for [`forward_bf16`].
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(in crate::flash) fn backward_bf16(
    call: &Call<'_, Bf16>,
    saved: &BackwardInputs<'_, Bf16>,
) -> Option<[Vec<Bf16>; 3]> {
    #[cfg(target_arch = "x86_64")]
    if let Some(set) = Bf16Set::detect() {
        return bf16::backward(set, call, saved);
    }
    None
}
