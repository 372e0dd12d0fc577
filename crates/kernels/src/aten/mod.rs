//! Bindings for LibTorch operations that tch lacks.
//!
//! tch's bindings are generated, and leave out functions that return more than tensors or write to
//! lists of tensors. A few lines of C++, compiled against the same LibTorch, bind those that are
//! needed here: [flash attention](flash_attention) in half precision and [memory-efficient
//! attention](efficient_attention) with all its options on CUDA, the [backward
//! pass](layer_norm_backward) of layer norm, [fused Adam](adam_step), and tensors that [take
//! ownership of a `Vec`](from_vec).
//!
//! ```no_run
//! use tch::Tensor;
//! use zoo_kernels::aten::{AdamOptions, Error, adam_step, step_tensor};
//!
//! /// The first Adam step of one parameter, in place.
//! fn first_step(parameter: &mut Tensor, gradient: &Tensor) -> Result<(), Error> {
//!     let (mut first, mut second) = (parameter.zeros_like(), parameter.zeros_like());
//!     let options = AdamOptions {
//!         is_adamw: true,
//!         lr: 1e-3,
//!         betas: [0.9, 0.999],
//!         weight_decay: 0.01,
//!         epsilon: 1e-8,
//!     };
//!     let step = step_tensor(parameter.device(), 1);
//!     adam_step(parameter, gradient, [&mut first, &mut second], &step, options)
//! }
//! ```
//!
//! Devices, dtypes, layouts and sizes are checked before memory is accessed. A call that LibTorch
//! rejects returns an [`Error`].

mod host;

pub use self::host::{host_slice, host_slice_mut, host_strided, meta};

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use crate::hosts::HostElement;

unsafe extern "C" {
    fn zoo_aten_free(message: *mut c_char);
    fn zoo_aten_host_data(
        out: *mut *mut c_void,
        is_contiguous: *mut bool,
        tensor: *const C_tensor,
        is_bf16: bool,
    ) -> *mut c_char;
    fn zoo_aten_meta(out: *mut *mut C_tensor, dims: *const i64, rank: usize) -> *mut c_char;
    fn zoo_aten_flash_forward(
        out: *mut *mut C_tensor,
        query: *const C_tensor,
        key: *const C_tensor,
        value: *const C_tensor,
        is_causal: bool,
        scale: f64,
        left: i64,
        right: i64,
    ) -> *mut c_char;
    fn zoo_aten_cudnn_forward(
        out: *mut *mut C_tensor,
        query: *const C_tensor,
        key: *const C_tensor,
        value: *const C_tensor,
        is_causal: bool,
        scale: f64,
    ) -> *mut c_char;
    fn zoo_aten_efficient_forward(
        out: *mut *mut C_tensor,
        query: *const C_tensor,
        key: *const C_tensor,
        value: *const C_tensor,
        bias: *const C_tensor,
        mask: i64,
        scale: f64,
        dropout: f64,
        seed: i64,
    ) -> *mut c_char;
    fn zoo_aten_cuda_memory(out: *mut u64, index: i64, reset_peak: bool) -> *mut c_char;
    fn zoo_aten_layer_norm_backward(
        out: *mut *mut C_tensor,
        output_grad: *const C_tensor,
        input: *const C_tensor,
        gamma: *const C_tensor,
        mean: *const C_tensor,
        rstd: *const C_tensor,
    ) -> *mut c_char;
    fn zoo_aten_from_blob(
        out: *mut *mut C_tensor,
        data: *mut c_void,
        is_bf16: bool,
        dims: *const i64,
        rank: usize,
        owner: *mut c_void,
        deleter: extern "C" fn(*mut c_void),
    ) -> *mut c_char;
    fn zoo_aten_adam(
        parameter: *const C_tensor,
        gradient: *const C_tensor,
        first: *const C_tensor,
        second: *const C_tensor,
        step: *const C_tensor,
        is_adamw: bool,
        lr: f64,
        beta_1: f64,
        beta_2: f64,
        weight_decay: f64,
        epsilon: f64,
    ) -> *mut c_char;
}

/// An error reported by LibTorch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("LibTorch's {op} failed: {message}")]
pub struct Error {
    op: &'static str,
    message: String,
}

/// Converts a returned message to an error.
fn check(op: &'static str, message: *mut c_char) -> Result<(), Error> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: a zero-terminated string that this function owns.
    let text = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: as above; it is not used afterwards.
    unsafe { zoo_aten_free(message) };
    Err(Error { op, message: text })
}

/// Calls a binding that writes `N` new tensors to its argument and returns an error message or
/// null.
fn call<const N: usize>(
    op: &'static str,
    binding: impl FnOnce(*mut *mut C_tensor) -> *mut c_char,
) -> Result<[Tensor; N], Error> {
    let mut out = [ptr::null_mut(); N];
    check(op, binding(out.as_mut_ptr()))?;
    // SAFETY: without an error, each was created by the call; tch frees it.
    Ok(out.map(|tensor| unsafe { Tensor::from_ptr(tensor) }))
}

/// FlashAttention forward pass on CUDA in `f16` or `bf16`: the context `[batch, seq_q, heads, d]`
/// and the log-sum-exp `[batch, heads, seq_q]`.
///
/// Query is `[batch, seq_q, heads, d]`, key and value `[batch, seq_k, kv_heads, d]`. A window
/// `[left, right]` restricts attention to the keys from `left` before a query's position to `right`
/// after it. The backward pass is [`Tensor::internal_flash_attention_backward`].
pub fn flash_attention(
    [query, key, value]: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
    window: Option<[i64; 2]>,
) -> Result<[Tensor; 2], Error> {
    let [query, key, value] = [query, key, value].map(Tensor::as_ptr);
    let [left, right] = window.unwrap_or([-1, -1]);
    // SAFETY: all tensors outlive the call, and out holds two.
    call("flash attention", |out| unsafe {
        zoo_aten_flash_forward(out, query, key, value, is_causal, scale, left, right)
    })
}

/// cuDNN attention forward pass in `f16` or `bf16`: the context `[batch, heads, seq_q, d]` and the
/// log-sum-exp `[batch, heads, seq_q, 1]` of tensors `[batch, heads, seq, d]`.
///
/// The backward pass is [`Tensor::internal_scaled_dot_product_cudnn_attention_backward`]. cuDNN
/// builds an execution plan for each new shape, which takes a good part of a second.
pub fn cudnn_attention(
    [query, key, value]: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
) -> Result<[Tensor; 2], Error> {
    let [query, key, value] = [query, key, value].map(Tensor::as_ptr);
    // SAFETY: all tensors outlive the call, and out holds two.
    call("cuDNN attention", |out| unsafe {
        zoo_aten_cudnn_forward(out, query, key, value, is_causal, scale)
    })
}

/// Mask of [`efficient_attention`] and its backward pass: LibTorch's `CustomMaskType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// No mask.
    None = 0,
    /// Causal, with the first query aligned with the first key.
    CausalFromTopLeft = 1,
    /// Causal, with the last query aligned with the last key.
    CausalFromBottomRight = 2,
}

/// Dropout of attention weights.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Dropout {
    /// Dropout probability.
    pub probability: f64,
    /// Seed of the dropout mask.
    pub seed: i64,
}

/// Options of [`efficient_attention`].
#[derive(Debug, Clone, Copy)]
pub struct EfficientOptions<'a> {
    /// Mask.
    pub mask: Mask,
    /// `[batch, heads, seq_q, seq_k]`, added to the scores.
    pub bias: Option<&'a Tensor>,
    /// Factor of the scores.
    pub scale: f64,
    /// Dropout of attention weights.
    pub dropout: Option<Dropout>,
}

/// Memory-efficient attention forward pass on CUDA: the context `[batch, seq_q, heads, d]` and the
/// log-sum-exp `[batch, heads, seq_q]`, whose last dimension may be padded.
///
/// Query is `[batch, seq_q, heads, d]`, key and value `[batch, seq_k, heads, d]`. The backward pass
/// is [`Tensor::internal_efficient_attention_backward`].
///
/// The dropout mask is determined by the seed, which the backward pass takes with offset zero. The
/// state of the device's random generator is left unchanged.
pub fn efficient_attention(
    [query, key, value]: [&Tensor; 3],
    options: &EfficientOptions<'_>,
) -> Result<[Tensor; 2], Error> {
    let [query, key, value] = [query, key, value].map(Tensor::as_ptr);
    let dropout = options.dropout.unwrap_or_default();
    loop {
        // SAFETY: all tensors outlive the call, bias may be null, and out holds four.
        let result = call("memory-efficient attention", |out| unsafe {
            zoo_aten_efficient_forward(
                out,
                query,
                key,
                value,
                options.bias.map_or(ptr::null(), Tensor::as_ptr),
                options.mask as i64,
                options.scale,
                dropout.probability,
                dropout.seed,
            )
        });
        let [context, log_sum_exp, seed, offset] = result?;
        // Another thread may have used the generator in between. The backward pass would then drop
        // other weights, so retry. Seed and offset are host tensors.
        let is_seeded = || [seed.int64_value(&[]), offset.int64_value(&[])] == [dropout.seed, 0];
        if dropout.probability == 0.0 || is_seeded() {
            return Ok([context, log_sum_exp]);
        }
    }
}

/// Backward pass of [`Tensor::native_layer_norm`]: the gradients of input, gamma and beta, from the
/// output gradient and the mean and reciprocal standard deviation of each row.
pub fn layer_norm_backward(
    [output_grad, input, gamma]: [&Tensor; 3],
    [mean, rstd]: [&Tensor; 2],
) -> Result<[Tensor; 3], Error> {
    let [output_grad, input, gamma] = [output_grad, input, gamma].map(Tensor::as_ptr);
    let [mean, rstd] = [mean, rstd].map(Tensor::as_ptr);
    // SAFETY: all tensors outlive the call, and out holds three.
    call("layer norm backward", |out| unsafe {
        zoo_aten_layer_norm_backward(out, output_grad, input, gamma, mean, rstd)
    })
}

/// A tensor on the CPU that takes ownership of its elements. Unlike [`Tensor::from_slice`], it
/// neither copies them nor fills the tensor with zeros first.
///
/// # Errors
///
/// If LibTorch cannot create the tensor.
///
/// # Panics
///
/// If the number of elements does not match the dimensions.
pub fn from_vec<T: HostElement>(elements: Vec<T>, dims: &[usize]) -> Result<Tensor, Error> {
    let count = dims.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
    assert!(
        count == Some(elements.len()),
        "a tensor of shape {dims:?} cannot have {} elements",
        elements.len()
    );
    extern "C" fn deleter<T>(owner: *mut c_void) {
        // SAFETY: created below, and LibTorch calls this once.
        drop(unsafe { Box::from_raw(owner.cast::<Vec<T>>()) });
    }
    let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let owner = Box::into_raw(Box::new(elements));
    // SAFETY: the elements stay in place until `deleter`, and only the tensor accesses them.
    let result = call("tensor creation", |out| unsafe {
        let data = (*owner).as_mut_ptr().cast();
        let (dims, rank) = (dims.as_ptr(), dims.len());
        zoo_aten_from_blob(
            out,
            data,
            T::IS_BF16,
            dims,
            rank,
            owner.cast(),
            deleter::<T>,
        )
    });
    result.map(|[tensor]| tensor)
}

/// Options of [`adam_step`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// Decoupled weight decay (AdamW) instead of L2 regularisation.
    pub is_adamw: bool,
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and second moment.
    pub betas: [f64; 2],
    /// Weight decay.
    pub weight_decay: f64,
    /// Added to the square root of the second moment.
    pub epsilon: f64,
}

/// A fused Adam step: updates the parameter and its two moments in place. No other tensor may share
/// their memory.
///
/// `step` is a [`step_tensor`] on their device.
pub fn adam_step(
    parameter: &mut Tensor,
    gradient: &Tensor,
    [first, second]: [&mut Tensor; 2],
    step: &Tensor,
    options: AdamOptions,
) -> Result<(), Error> {
    // SAFETY: all tensors outlive the call.
    let message = unsafe {
        zoo_aten_adam(
            parameter.as_ptr(),
            gradient.as_ptr(),
            first.as_ptr(),
            second.as_ptr(),
            step.as_ptr(),
            options.is_adamw,
            options.lr,
            options.betas[0],
            options.betas[1],
            options.weight_decay,
            options.epsilon,
        )
    };
    check("Adam", message)
}

/// Memory of a CUDA device that LibTorch's caching allocator uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMemory {
    /// Currently allocated by tensors.
    pub allocated: u64,
    /// Peak of `allocated`.
    pub peak_allocated: u64,
}

/// The memory statistics of a CUDA device, optionally after resetting the peak.
///
/// # Errors
///
/// If there is no such device, or nothing was computed on it yet.
pub fn cuda_memory(index: usize, reset_peak: bool) -> Result<CudaMemory, Error> {
    let mut out = [0; 2];
    // SAFETY: out holds two values.
    let message = unsafe { zoo_aten_cuda_memory(out.as_mut_ptr(), index as i64, reset_peak) };
    check("memory statistics", message)?;
    let [allocated, peak_allocated] = out;
    Ok(CudaMemory {
        allocated,
        peak_allocated,
    })
}

/// The number of a step (starting at 1) as a tensor for [`adam_step`].
pub fn step_tensor(device: Device, step: usize) -> Tensor {
    Tensor::full([1], step as f64, (Kind::Float, device))
}

#[cfg(test)]
mod tests;
