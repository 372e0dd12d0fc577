//! Operations of LibTorch that tch has no binding for.
//!
//! tch's bindings are generated, and leave out what returns more than tensors or writes into
//! lists of them. What the zoo needs of that is bound here, by a few lines of C++ that are
//! compiled against the same LibTorch: [flash attention](flash_attention) in half precision
//! and the [memory-efficient one](efficient_attention) with all it can be told on CUDA, the [way
//! back](layer_norm_backward) from its layer norm, a [step of Adam](adam_step) in one kernel, and
//! tensors of [numbers that are there already](of_numbers).
//!
//! ```no_run
//! use tch::Tensor;
//! use zoo_kernels::aten::{Adam, Error, adam_step, time_on};
//!
//! /// The first step of Adam for one parameter, which is written over, as are its moments.
//! fn first_step(parameter: &mut Tensor, gradient: &Tensor) -> Result<(), Error> {
//!     let (mut first, mut second) = (parameter.zeros_like(), parameter.zeros_like());
//!     let adam = Adam {
//!         is_adamw: true,
//!         rate: 1e-3,
//!         betas: [0.9, 0.999],
//!         decay: 0.01,
//!         epsilon: 1e-8,
//!     };
//!     let time = time_on(parameter.device(), 1);
//!     adam_step(parameter, gradient, [&mut first, &mut second], &time, adam)
//! }
//! ```
//!
//! Devices, dtypes, layouts and sizes are checked before a kernel or a slice looks at memory.

mod host;

pub use self::host::{host_slice, host_slice_mut, host_strided, meta};

use std::ffi::{CStr, c_char, c_void};
use std::{fmt, ptr};

use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

unsafe extern "C" {
    fn zoo_aten_free(message: *mut c_char);
    fn zoo_aten_host_data(
        out: *mut *mut f32,
        is_contiguous: *mut bool,
        tensor: *const C_tensor,
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
        dropped: f64,
        seed: i64,
    ) -> *mut c_char;
    fn zoo_aten_cuda_memory(out: *mut u64, index: i64, forget_peaks: bool) -> *mut c_char;
    fn zoo_aten_layer_norm_backward(
        out: *mut *mut C_tensor,
        arrived: *const C_tensor,
        input: *const C_tensor,
        gamma: *const C_tensor,
        mean: *const C_tensor,
        factor: *const C_tensor,
    ) -> *mut c_char;
    fn zoo_aten_of_numbers(
        out: *mut *mut C_tensor,
        numbers: *mut f32,
        dims: *const i64,
        rank: usize,
        owner: *mut c_void,
        done: extern "C" fn(*mut c_void),
    ) -> *mut c_char;
    fn zoo_aten_adam(
        parameter: *const C_tensor,
        gradient: *const C_tensor,
        first: *const C_tensor,
        second: *const C_tensor,
        time: *const C_tensor,
        is_adamw: bool,
        rate: f64,
        beta_1: f64,
        beta_2: f64,
        decay: f64,
        epsilon: f64,
    ) -> *mut c_char;
}

/// What LibTorch said when it could not compute something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    op: &'static str,
    message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LibTorch's {} failed: {}", self.op, self.message)
    }
}

impl std::error::Error for Error {}

/// An error, if LibTorch left a message.
fn check(op: &'static str, message: *mut c_char) -> Result<(), Error> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: a string of ours, ended by zero, which nobody else has.
    let text = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: as above; it is not used again.
    unsafe { zoo_aten_free(message) };
    Err(Error { op, message: text })
}

/// The tensors that LibTorch makes in a call, which has room for them and returns a message.
fn made<const N: usize>(
    op: &'static str,
    call: impl FnOnce(*mut *mut C_tensor) -> *mut c_char,
) -> Result<[Tensor; N], Error> {
    let mut out = [ptr::null_mut(); N];
    check(op, call(out.as_mut_ptr()))?;
    // SAFETY: each was just made for us, as `check` has seen, and is dropped by tch.
    Ok(out.map(|tensor| unsafe { Tensor::from_ptr(tensor) }))
}

/// Flash attention on CUDA, forward, in `f16` or `bf16`: the context `[batch, seq_q, heads, d]`
/// and the log-sum-exp `[batch, heads, seq_q]`.
///
/// Query is `[batch, seq_q, heads, d]`, key and value `[batch, seq_k, kv_heads, d]`. A window
/// `[left, right]` shows the keys from so many before a query's own place to so many after
/// it. The way back is [`Tensor::internal_flash_attention_backward`].
///
/// # Errors
///
/// What LibTorch says, if it cannot compute it.
pub fn flash_attention(
    [query, key, value]: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
    window: Option<[i64; 2]>,
) -> Result<[Tensor; 2], Error> {
    let [left, right] = window.unwrap_or([-1, -1]);
    // SAFETY: all are tensors that live through the call, and there is room for two.
    made("flash attention", |out| unsafe {
        zoo_aten_flash_forward(
            out,
            query.as_ptr(),
            key.as_ptr(),
            value.as_ptr(),
            is_causal,
            scale,
            left,
            right,
        )
    })
}

/// cuDNN's attention, forward, in `f16` or `bf16`: the context `[batch, heads, seq_q, d]` and the
/// log-sum-exp `[batch, heads, seq_q, 1]`, of tensors `[batch, heads, seq, d]`.
///
/// The way back is [`Tensor::internal_scaled_dot_product_cudnn_attention_backward`]. Each new
/// shape is planned for, which takes a good part of a second.
///
/// # Errors
///
/// What LibTorch says, if it cannot compute it.
pub fn cudnn_attention(
    [query, key, value]: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
) -> Result<[Tensor; 2], Error> {
    // SAFETY: all are tensors that live through the call, and there is room for two.
    made("attention by cuDNN", |out| unsafe {
        zoo_aten_cudnn_forward(
            out,
            query.as_ptr(),
            key.as_ptr(),
            value.as_ptr(),
            is_causal,
            scale,
        )
    })
}

/// Who sees whom, as [`efficient_attention`] and its backward pass are told by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// Everyone sees everything.
    Nothing = 0,
    /// A query sees the keys up to its own, the first of both being level.
    CausalFromFirst = 1,
    /// The same, the last of both being level.
    CausalToLast = 2,
}

/// Which weights are forgotten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The share of them.
    pub probability: f64,
    /// What they are chosen by.
    pub seed: i64,
}

/// What [`efficient_attention`] is told besides its tensors.
#[derive(Debug, Clone, Copy)]
pub struct Efficient<'a> {
    /// Who sees whom.
    pub mask: Mask,
    /// `[batch, heads, seq_q, seq_k]`, added to the scores.
    pub bias: Option<&'a Tensor>,
    /// What products are multiplied by.
    pub scale: f64,
    /// Weights that are forgotten.
    pub dropout: Option<Dropout>,
}

/// Memory-efficient attention on CUDA, forward: the context `[batch, seq_q, heads, d]` and the
/// log-sum-exp `[batch, heads, seq_q]`, or with room for a few more.
///
/// Query is `[batch, seq_q, heads, d]`, key and value `[batch, seq_k, heads, d]`. The way back is
/// [`Tensor::internal_efficient_attention_backward`].
///
/// Which weights are dropped follows from the seed, which the backward pass is told with an
/// offset of zero. The device's own random numbers go on as if nothing had been drawn.
///
/// # Errors
///
/// What LibTorch says, if it cannot compute it.
pub fn efficient_attention(
    [query, key, value]: [&Tensor; 3],
    told: &Efficient<'_>,
) -> Result<[Tensor; 2], Error> {
    let dropout = told.dropout.unwrap_or(Dropout {
        probability: 0.0,
        seed: 0,
    });
    loop {
        // SAFETY: all are tensors that live through the call, or none, and there is room
        // for four.
        let made = made("memory-efficient attention", |out| unsafe {
            zoo_aten_efficient_forward(
                out,
                query.as_ptr(),
                key.as_ptr(),
                value.as_ptr(),
                told.bias.map_or(ptr::null(), Tensor::as_ptr),
                told.mask as i64,
                told.scale,
                dropout.probability,
                dropout.seed,
            )
        });
        let [context, log_sum_exp, seed, offset] = made?;
        // Another thread may have drawn from the device in between, and then the backward
        // pass would drop others. Both are numbers on the host.
        let is_as_told = || [seed.int64_value(&[]), offset.int64_value(&[])] == [dropout.seed, 0];
        if dropout.probability == 0.0 || is_as_told() {
            return Ok([context, log_sum_exp]);
        }
    }
}

/// What [`Tensor::native_layer_norm`] gave, back: the gradients by input, gamma and beta, from
/// what arrives and the mean and the factor of each row.
///
/// # Errors
///
/// What LibTorch says, if it cannot compute it.
pub fn layer_norm_backward(
    [arrived, input, gamma]: [&Tensor; 3],
    [mean, factor]: [&Tensor; 2],
) -> Result<[Tensor; 3], Error> {
    // SAFETY: all are tensors that live through the call, and there is room for three.
    made("layer norm, backward,", |out| unsafe {
        zoo_aten_layer_norm_backward(
            out,
            arrived.as_ptr(),
            input.as_ptr(),
            gamma.as_ptr(),
            mean.as_ptr(),
            factor.as_ptr(),
        )
    })
}

/// A tensor on the CPU of these numbers, which it takes over: nothing is copied, as
/// [`Tensor::from_slice`] would, or filled with zeros before.
///
/// # Errors
///
/// What LibTorch says, if it cannot make it.
///
/// # Panics
///
/// If there are not as many numbers as the dimensions say.
pub fn of_numbers(numbers: Vec<f32>, dims: &[usize]) -> Result<Tensor, Error> {
    let count = dims.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
    assert!(
        count == Some(numbers.len()),
        "a tensor of {dims:?} cannot have {} numbers",
        numbers.len()
    );
    extern "C" fn done(owner: *mut c_void) {
        // SAFETY: made below, and LibTorch calls this once.
        drop(unsafe { Box::from_raw(owner.cast::<Vec<f32>>()) });
    }
    let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let owner = Box::into_raw(Box::new(numbers));
    // SAFETY: the numbers stay where they are until `done`, and nobody else has them.
    let made = made("tensor of numbers", |out| unsafe {
        let numbers = (*owner).as_mut_ptr();
        zoo_aten_of_numbers(out, numbers, dims.as_ptr(), dims.len(), owner.cast(), done)
    });
    made.map(|[tensor]| tensor)
}

/// What Adam is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// Whether decay is taken from the parameter, not added to its gradient.
    pub is_adamw: bool,
    /// The learning rate.
    pub rate: f64,
    /// The shares of the first and the second moment that stay.
    pub betas: [f64; 2],
    /// The weight decay.
    pub decay: f64,
    /// What is added to the root of the second moment.
    pub epsilon: f64,
}

/// A step of Adam in one kernel: the parameter and its two moments are written over, which
/// nobody else may look at.
///
/// `time` is one `f32` on their device: which step it is, counted from 1.
///
/// # Errors
///
/// What LibTorch says, if it cannot compute it.
pub fn adam_step(
    parameter: &mut Tensor,
    gradient: &Tensor,
    [first, second]: [&mut Tensor; 2],
    time: &Tensor,
    adam: Adam,
) -> Result<(), Error> {
    // SAFETY: all are tensors that live through the call.
    let message = unsafe {
        zoo_aten_adam(
            parameter.as_ptr(),
            gradient.as_ptr(),
            first.as_ptr(),
            second.as_ptr(),
            time.as_ptr(),
            adam.is_adamw,
            adam.rate,
            adam.betas[0],
            adam.betas[1],
            adam.decay,
            adam.epsilon,
        )
    };
    check("Adam", message)
}

/// What LibTorch has of a CUDA device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMemory {
    /// What tensors have now.
    pub allocated: u64,
    /// What they had at most.
    pub most_allocated: u64,
    /// What was kept for them at most.
    pub most_reserved: u64,
}

/// Counts the memory of a CUDA device; both peaks start from now on, if so asked.
///
/// # Errors
///
/// What LibTorch says, if there is no such device or nothing was computed on it yet.
pub fn cuda_memory(index: usize, forget_peaks: bool) -> Result<CudaMemory, Error> {
    let mut out = [0; 3];
    // SAFETY: there is room for three numbers.
    let message = unsafe { zoo_aten_cuda_memory(out.as_mut_ptr(), index as i64, forget_peaks) };
    check("count of memory", message)?;
    let [allocated, most_allocated, most_reserved] = out;
    Ok(CudaMemory {
        allocated,
        most_allocated,
        most_reserved,
    })
}

/// A number for [`adam_step`].
pub fn time_on(device: Device, time: usize) -> Tensor {
    Tensor::full([1], time as f64, (Kind::Float, device))
}

#[cfg(test)]
mod tests;
