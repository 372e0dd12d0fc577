//! Windowed and block-local attention in chunks: each chunk of queries attends to a range of keys,
//! with a mask that is the same for every chunk.
//!
//! ```text
//! queries   |   chunk   |
//! keys   |left|  chunk  |right|
//! ```
//!
//! All chunks with a complete range of keys are one call of the [kernel](super::efficient), on
//! overlapping views without a copy. The chunks at both ends have fewer keys and are calls of their
//! own. Blocks attend to themselves only, and need a mask only if they are causal; in half precision
//! they are calls of the [flash kernel](super::flash).
//!
//! The query heads that share a key head are further rows of a chunk, so that keys and values need
//! not be repeated for them.

use std::ops::Range;
use std::sync::Arc;

use burn::backend::libtorch::TchTensor;
use tch::{Device, Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{BackwardInputs, EfficientArgs, aligned, kernel_dropout};
use super::efficient::{MASKED_BIAS, broadcast_bias, kernel_backward, kernel_forward, pad_to_32};
use super::flash;
use crate::AttentionShape;
use crate::flash::call::TiledSettings;
use crate::memo::Memo;
use crate::pattern::rule::Rule;

/// What the queries of a chunk attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkPattern {
    /// Keys before the query's position and after it.
    Window([usize; 2]),
    /// The keys of their own block; if causal, up to their own position.
    Block { size: usize, is_causal: bool },
}

impl ChunkPattern {
    /// The blocks of a rule, if there are several of more than one position.
    pub(super) fn blocks(rule: &Rule, shape: &AttentionShape) -> Option<Self> {
        let (size, is_causal) = match rule {
            Rule::Block { size } => (*size, false),
            Rule::And(a, b) => match (a.as_ref(), b.as_ref()) {
                (Rule::Block { size }, Rule::Causal) | (Rule::Causal, Rule::Block { size }) => {
                    (*size, true)
                }
                _ => return None,
            },
            _ => return None,
        };
        let fits = shape.seq_q / size <= u16::MAX as usize;
        let is_supported = shape.seq_q == shape.seq_k && (2..shape.seq_k).contains(&size);
        (is_supported && fits).then_some(Self::Block { size, is_causal })
    }

    /// A window, if the sequence is long enough to be split into chunks.
    pub(super) fn window(window: [usize; 2], shape: &AttentionShape) -> Option<Self> {
        let pattern = Self::Window(window);
        let [left, right] = window;
        let chunks = shape.seq_q / pattern.size();
        let is_worthwhile = shape.seq_q >= 2 * (pattern.size() + left + right);
        (is_worthwhile && chunks <= u16::MAX as usize).then_some(pattern)
    }

    /// Queries in a chunk. With a window, half of it, so that half of the computed scores are
    /// visible; a multiple of 64, and enough to occupy the device.
    fn size(self) -> usize {
        match self {
            Self::Window([left, right]) => {
                ((left + right) / 2).next_multiple_of(64).clamp(64, 1024)
            }
            Self::Block { size, .. } => size,
        }
    }

    /// Keys of a chunk before its first query and after its last.
    fn margins(self) -> [usize; 2] {
        match self {
            Self::Window(sides) => sides,
            Self::Block { .. } => [0, 0],
        }
    }

    /// The window that is visible among the keys of a chunk, unless all are.
    fn band(self) -> Option<[usize; 2]> {
        match self {
            Self::Window(sides) => Some(sides),
            Self::Block { size, is_causal } => is_causal.then_some([size, 0]),
        }
    }

    fn parts(self, seq: usize) -> Vec<Part> {
        let (size, [left, right]) = (self.size(), self.margins());
        let mut parts: Vec<Part> = Vec::new();
        for start in (0..seq).step_by(size) {
            let queries = start..seq.min(start + size);
            let keys = start.saturating_sub(left)..seq.min(start + size + right);
            let is_complete = start >= left && start + size + right <= seq;
            match parts.last_mut() {
                Some(last) if is_complete && last.keys.len() == left + size + right => {
                    last.queries.end = queries.end;
                    last.chunks += 1;
                }
                // The first chunks have fewer keys: together they are one chunk.
                Some(last) if start < left && keys.start == 0 => {
                    last.queries.end = queries.end;
                    last.keys.end = keys.end;
                }
                _ => parts.push(Part {
                    queries,
                    chunks: 1,
                    keys,
                }),
            }
        }
        parts
    }
}

/// Adjacent chunks that are one call of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// The queries of all chunks.
    queries: Range<usize>,
    /// The number of chunks.
    chunks: usize,
    /// The keys of the first chunk.
    keys: Range<usize>,
}

impl Part {
    /// Queries per chunk.
    fn rows(&self) -> usize {
        self.queries.len() / self.chunks
    }

    /// A view of the chunks of a contiguous tensor with `group` heads for each key head,
    /// `[batch · kv_heads, group, rows, chunks, d]`. The chunks have `rows` rows from row `first`.
    fn view(&self, tensor: &Tensor, first: usize, rows: usize, group: usize) -> Tensor {
        let size = tensor.size();
        let (seq, width, group) = (size[2], size[3], group as i64);
        let (chunks, step) = (self.chunks as i64, self.rows() as i64);
        tensor.narrow(2, first as i64, rows as i64).as_strided(
            [size[0] * size[1] / group, group, rows as i64, chunks, width],
            [group * seq * width, seq * width, width, step * width, 1],
            None,
        )
    }

    /// The queries of all chunks of a contiguous tensor.
    fn query_view(&self, tensor: &Tensor, shape: &AttentionShape) -> Tensor {
        self.view(tensor, self.queries.start, self.rows(), shape.group())
    }

    /// The keys of all chunks, `[batch · kv_heads, keys, chunks, d]`.
    fn key_view(&self, tensor: &Tensor) -> Tensor {
        let keys = self.keys.len();
        self.view(tensor, self.keys.start, keys, 1).squeeze_dim(1)
    }

    /// `[batch · kv_heads, group, rows, chunks, d]` as `[batch, heads, chunks · rows, d]`.
    fn join(&self, tensor: &Tensor, shape: &AttentionShape) -> Tensor {
        let [batch, heads] = [shape.batch, shape.heads].map(|size| size as i64);
        let rows = self.queries.len() as i64;
        let joined = tensor.transpose(2, 3);
        joined.reshape([batch, heads, rows, *tensor.size().last().unwrap_or(&1)])
    }
}

/// The arguments of a call that its parts share.
struct Call<'a> {
    pattern: ChunkPattern,
    settings: &'a TiledSettings,
    /// Whether the flash kernel is used.
    is_flash: bool,
}

impl<'a> Call<'a> {
    fn new(pattern: ChunkPattern, settings: &'a TiledSettings, query: &Tensor) -> Self {
        let is_flash = query.kind() != Kind::Float;
        #[cfg(test)]
        let is_flash = is_flash || tests::FORCE_FLASH.get();
        Self {
            pattern,
            settings,
            is_flash,
        }
    }

    fn is_causal(&self) -> bool {
        let ChunkPattern::Block { is_causal, .. } = self.pattern else {
            return false;
        };
        is_causal
    }

    /// The arguments of the memory-efficient kernel. Every part has a dropout seed of its own.
    fn args(&self, index: usize, part: &Part, query: &Tensor) -> EfficientArgs {
        let shape = &self.settings.shape;
        let alibi = self.settings.alibi.as_deref();
        let args = EfficientArgs {
            mask: Mask::None,
            bias: None,
            may_mask_rows: false,
            scale: self.settings.scale,
            dropout: kernel_dropout(self.settings, index),
        };
        // With several heads in the rows, the kernel's causal mask does not fit.
        if self.is_causal() && alibi.is_none() && shape.group() == 1 {
            return EfficientArgs {
                mask: Mask::CausalFromTopLeft,
                ..args
            };
        }
        if self.pattern.band().is_none() && alibi.is_none() {
            return args;
        }
        let rows = shape.group() * part.rows();
        let batch = shape.batch * shape.kv_heads;
        let dims = [batch, part.chunks, rows, part.keys.len()].map(|size| size as i64);
        let bias = self.bias(part, query);
        EfficientArgs {
            bias: Some(broadcast_bias(&bias.tensor, dims)),
            ..args
        }
    }

    /// The bias of masked keys and ALiBi, `[1 or batch · kv_heads, 1, group · rows, keys]`. Cached.
    fn bias(&self, part: &Part, query: &Tensor) -> Arc<TchTensor> {
        static CACHE: Memo<BiasKey, TchTensor> = Memo::new();
        let shape = &self.settings.shape;
        let key = BiasKey {
            sizes: [part.rows(), part.keys.len()],
            first: part.keys.start as i64 - part.queries.start as i64,
            band: self.pattern.band(),
            alibi: self.settings.alibi.clone(),
            heads: [shape.batch, shape.kv_heads, shape.group()],
            kind: query.kind(),
            device: query.device(),
        };
        CACHE.get(key, |key| TchTensor::new(key.bias()))
    }
}

#[derive(Debug, PartialEq)]
struct BiasKey {
    /// Rows and keys of a chunk.
    sizes: [usize; 2],
    /// The first key of a chunk relative to its first query.
    first: i64,
    /// The visible keys before the query's position and after it.
    band: Option<[usize; 2]>,
    alibi: Option<Arc<[f32]>>,
    /// Batch size, key and value heads, and query heads for each of these.
    heads: [usize; 3],
    kind: Kind,
    device: Device,
}

impl BiasKey {
    fn bias(&self) -> Tensor {
        let [rows, keys] = self.sizes.map(|size| size as i64);
        let [batch, kv_heads, group] = self.heads.map(|size| size as i64);
        let options = (self.kind, self.device);
        let band = match self.band {
            Some(band) => band_bias([rows, keys], self.first, band, options),
            None => Tensor::zeros([rows, keys], options),
        };
        let Some(slopes) = &self.alibi else {
            return band
                .expand([1, group, rows, keys], false)
                .reshape([1, 1, group * rows, keys]);
        };
        let positions = |count: i64| Tensor::arange(count, options);
        let distance = positions(keys).unsqueeze(0) + self.first as f64;
        let distance = (distance - positions(rows).unsqueeze(1)).abs();
        let slopes = Tensor::from_slice(slopes).to_device(self.device);
        let bias = band - slopes.to_kind(self.kind).reshape([-1, 1, 1]) * distance;
        let size = [batch, kv_heads, group * rows, keys];
        bias.reshape([1, kv_heads, group * rows, keys])
            .expand(size, false)
            .reshape([batch * kv_heads, 1, group * rows, keys])
    }
}

/// A bias of zero within the window and [`MASKED_BIAS`] elsewhere, `[rows, keys]`; `first` is the
/// first key relative to the first query.
fn band_bias(
    size: [i64; 2],
    first: i64,
    [left, right]: [usize; 2],
    options: (Kind, Device),
) -> Tensor {
    let masked = Tensor::full(size, MASKED_BIAS, options);
    // The keys from `-left` to `right` of a query are visible; `triu` and `tril` set them to zero.
    let later = masked.triu(right as i64 - first + 1);
    let earlier = masked.tril(-(left as i64) - first - 1);
    later + earlier
}

pub(super) fn forward(
    tensors: &[Tensor; 3],
    pattern: ChunkPattern,
    settings: &TiledSettings,
) -> [Tensor; 2] {
    let shape = &settings.shape;
    let [query, key, value] = tensors.each_ref().map(|tensor| tensor.contiguous());
    let call = Call::new(pattern, settings, &query);
    let mut contexts = Vec::new();
    let mut log_sum_exps = Vec::new();
    for (index, part) in pattern.parts(shape.seq_q).iter().enumerate() {
        let queries = part.query_view(&query, shape);
        let (keys, values) = (part.key_view(&key), part.key_view(&value));
        let [context, log_sum_exp] = if call.is_flash {
            let tensors = [&to_flash(&queries), &keys, &values];
            let outputs = flash::kernel_forward(tensors, call.is_causal(), settings.scale, None);
            from_flash(outputs, shape)
        } else {
            let args = call.args(index, part, &query);
            let outputs = kernel_forward([&to_rows(&queries), &keys, &values], &args);
            from_rows(outputs, part, shape)
        };
        contexts.push(part.join(&context, shape));
        log_sum_exps.push(part.join(&log_sum_exp, shape));
    }
    [concat(contexts), concat(log_sum_exps)]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    pattern: ChunkPattern,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let shape = &settings.shape;
    let [query, key, value] = tensors.each_ref().map(|tensor| tensor.contiguous());
    let [context, d_context] =
        [results.context, results.d_context].map(|tensor| aligned(&tensor.contiguous()));
    let log_sum_exp = results.log_sum_exp.contiguous();
    let call = Call::new(pattern, settings, &query);
    let mut d_queries = Vec::new();
    let (mut d_key, mut d_value) = (key.zeros_like(), value.zeros_like());
    for (index, part) in pattern.parts(shape.seq_q).iter().enumerate() {
        let [queries, contexts, d_contexts, log_sum_exps] =
            [&query, &context, &d_context, &log_sum_exp].map(|it| part.query_view(it, shape));
        let (keys, values) = (part.key_view(&key), part.key_view(&value));
        let [d_query, d_key_part, d_value_part] = if call.is_flash {
            // `[batch · kv_heads, chunks · group, rows]`
            let log_sum_exps = to_flash(&log_sum_exps).squeeze_dim(3).transpose(1, 2);
            let [d_query, d_keys, d_values] = flash::kernel_backward(
                [&to_flash(&queries), &keys, &values],
                [
                    &to_flash(&contexts),
                    &log_sum_exps.contiguous(),
                    &to_flash(&d_contexts),
                ],
                call.is_causal(),
                settings.scale,
                None,
            );
            [split_flash(&d_query, shape), d_keys, d_values]
        } else {
            // `[batch · kv_heads, chunks, group · rows]`
            let log_sum_exps = to_rows(&log_sum_exps).squeeze_dim(3).transpose(1, 2);
            let ([d_query, d_keys, d_values], _) = kernel_backward(
                [&to_rows(&queries), &keys, &values],
                [
                    &to_rows(&contexts),
                    &pad_to_32(&log_sum_exps),
                    &to_rows(&d_contexts),
                ],
                &call.args(index, part, &query),
                false,
            );
            [split_rows(&d_query, part, shape), d_keys, d_values]
        };
        d_queries.push(part.join(&d_query, shape));
        add_chunks(&mut d_key, &d_key_part, part);
        add_chunks(&mut d_value, &d_value_part, part);
    }
    [concat(d_queries), d_key, d_value]
}

/// `[batch · kv_heads, group, rows, chunks, d]` as the memory-efficient kernel's
/// `[batch · kv_heads, group · rows, chunks, d]`. Copied if there are several heads in a group.
fn to_rows(tensor: &Tensor) -> Tensor {
    tensor.flatten(1, 2)
}

/// The inverse of [`to_rows`].
fn split_rows(tensor: &Tensor, part: &Part, shape: &AttentionShape) -> Tensor {
    let (group, rows) = (shape.group() as i64, part.rows() as i64);
    let size = tensor.size();
    tensor.reshape([size[0], group, rows, size[2], size[3]])
}

fn from_rows(
    [context, log_sum_exp]: [Tensor; 2],
    part: &Part,
    shape: &AttentionShape,
) -> [Tensor; 2] {
    let rows = shape.group() * part.rows();
    // The kernel pads the log-sum-exp.
    let log_sum_exp = log_sum_exp.narrow(2, 0, rows as i64).transpose(1, 2);
    [context, log_sum_exp.unsqueeze(3)].map(|tensor| split_rows(&tensor, part, shape))
}

/// `[batch · kv_heads, group, rows, chunks, d]` as the flash kernel's
/// `[batch · kv_heads, rows, chunks · group, d]`: consecutive heads share a key head. Copied if
/// there are several heads in a group.
fn to_flash(tensor: &Tensor) -> Tensor {
    tensor.permute([0, 2, 3, 1, 4]).flatten(2, 3)
}

/// The inverse of [`to_flash`].
fn split_flash(tensor: &Tensor, shape: &AttentionShape) -> Tensor {
    let group = shape.group() as i64;
    let size = tensor.size();
    tensor
        .reshape([size[0], size[1], size[2] / group, group, size[3]])
        .permute([0, 3, 1, 2, 4])
}

fn from_flash([context, log_sum_exp]: [Tensor; 2], shape: &AttentionShape) -> [Tensor; 2] {
    let log_sum_exp = log_sum_exp.transpose(1, 2).unsqueeze(3);
    [context, log_sum_exp].map(|tensor| split_flash(&tensor, shape))
}

/// Concatenates the rows of the parts.
fn concat(mut parts: Vec<Tensor>) -> Tensor {
    match parts.len() {
        1 => parts.remove(0),
        _ => Tensor::cat(&parts, 2),
    }
}

/// Adds the gradients of the keys of each chunk, `[batch · kv_heads, keys, chunks, d]`. Each step
/// adds as many rows as there are between chunks, so that the written views do not overlap.
fn add_chunks(sum: &mut Tensor, grad: &Tensor, part: &Part) {
    let keys = part.keys.len();
    let step = if part.chunks == 1 { keys } else { part.rows() };
    for start in (0..keys).step_by(step) {
        let rows = step.min(keys - start);
        let into = part.view(sum, part.keys.start + start, rows, 1);
        let _ = into
            .squeeze_dim(1)
            .g_add_(&grad.narrow(1, start as i64, rows as i64));
    }
}

#[cfg(test)]
mod tests;
