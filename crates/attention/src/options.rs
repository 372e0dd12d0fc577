//! Options of softmax attention.

use burn::tensor::{DType, Device, Tensor};

use crate::pattern::is_broadcastable;
use crate::score_mod::ScoreMod;
use crate::shape::check_device;
use crate::{AttentionShape, Dropout, Pattern, precision};

/// Options of an attention call: the pattern, and how scores and weights are computed.
///
/// ```text
/// s      = score_mod(scale · query · key)
/// score  = softcap · tanh(s / softcap) - slope · distance + bias + relative_bias
/// weight = dropout(softmax(score))
/// ```
#[derive(Debug, Clone, Default)]
pub struct AttentionOptions {
    /// Which keys each query may attend to. Default: all.
    pub pattern: Pattern,
    /// Factor of the dot products; `None` is `1/sqrt(d_head)`.
    pub scale: Option<f64>,
    /// Cap of the scaled dot products.
    pub softcap: Option<f64>,
    /// ALiBi slopes, one per query head: each score is reduced by the slope times the distance
    /// between query and key. [`alibi_slopes`](crate::alibi_slopes) computes the usual ones.
    pub alibi: Option<Vec<f32>>,
    /// `[batch, heads, seq_q, seq_k]`, broadcastable: added to the scores. It may require
    /// gradients; minus infinity masks a key.
    pub bias: Option<Tensor<4>>,
    /// `[heads, seq_q + seq_k - 1]`: a bias for each relative position of query and key, which are
    /// aligned at the end. Query `i` and key `j` have element `j - i + seq_q - 1`, so the first one is
    /// that of the last query and the first key. It may require gradients.
    /// [`RelativeBuckets`](crate::RelativeBuckets) makes it from the table of a T5 model.
    pub relative_bias: Option<Tensor<2>>,
    /// A function of the scaled dot products, applied before the softcap.
    pub score_mod: Option<ScoreMod>,
    /// Dropout of the attention weights.
    pub dropout: Option<Dropout>,
    /// Whether masked keys and values may be assumed to be finite. Default: no, which costs a pass
    /// over them on some backends. If they are not, output and gradients are undefined.
    pub assume_finite: bool,
}

impl AttentionOptions {
    /// The default options: every key is visible, with the default scale.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts which keys each query may attend to.
    pub fn with_pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Multiplies the dot products by `scale` instead of `1/sqrt(d_head)`.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Caps the scores at `softcap · tanh(score / softcap)`.
    pub fn with_softcap(mut self, softcap: f64) -> Self {
        self.softcap = Some(softcap);
        self
    }

    /// Adds ALiBi with one slope per query head.
    pub fn with_alibi(mut self, slopes: impl Into<Vec<f32>>) -> Self {
        self.alibi = Some(slopes.into());
        self
    }

    /// Adds `bias` to the scores.
    pub fn with_bias(mut self, bias: Tensor<4>) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Adds a bias for each relative position of query and key.
    pub fn with_relative_bias(mut self, relative_bias: Tensor<2>) -> Self {
        self.relative_bias = Some(relative_bias);
        self
    }

    /// Modifies the scaled dot products by a function.
    pub fn with_score_mod(mut self, score_mod: ScoreMod) -> Self {
        self.score_mod = Some(score_mod);
        self
    }

    /// Drops attention weights at random.
    pub fn with_dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// Skips the check that keeps NaN and infinities in masked keys and values out of the output
    /// and the gradients. A backend on which the check is free may ignore this.
    pub fn with_assume_finite(mut self, assume_finite: bool) -> Self {
        self.assume_finite = assume_finite;
        self
    }

    /// The options with their pattern intersected with another.
    pub(crate) fn restricted_to(&self, pattern: Pattern) -> Self {
        let pattern = match &self.pattern {
            Pattern::Full => pattern,
            own => own.clone().and(pattern),
        };
        self.clone().with_pattern(pattern)
    }

    /// The options of a single head.
    pub(crate) fn at_head(&self, head: usize) -> Self {
        Self {
            pattern: self.pattern.at_head(head),
            alibi: self.alibi.as_ref().map(|slopes| vec![slopes[head]]),
            bias: self.bias.clone().map(|bias| match bias.dims() {
                [_, 1, ..] => bias,
                _ => bias.slice_dim(1, head..head + 1),
            }),
            relative_bias: self
                .relative_bias
                .clone()
                .map(|bias| bias.slice_dim(0, head..head + 1)),
            dropout: self.dropout.map(|dropout| Dropout {
                first_head: head,
                ..dropout
            }),
            ..self.clone()
        }
    }

    /// Whether a bias of either kind is added to the scores.
    pub(crate) fn has_bias(&self) -> bool {
        self.bias.is_some() || self.relative_bias.is_some()
    }

    /// The relative bias of some queries, `[1, heads, queries, seq_k]`, in `f32`.
    pub(crate) fn relative_bias_rows(
        &self,
        shape: &AttentionShape,
        queries: impl Iterator<Item = usize>,
    ) -> Option<Tensor<4>> {
        let bias = precision::widen(self.relative_bias.clone()?);
        let row = |query: usize| {
            let first = shape.seq_q - 1 - query;
            bias.clone().slice_dim(1, first..first + shape.seq_k)
        };
        let rows: Tensor<3> = Tensor::stack(queries.map(row).collect(), 1);
        Some(rows.unsqueeze_dim(0))
    }

    /// Panics unless the bias is on the device of the queries. The pattern is checked where it is
    /// used.
    pub(crate) fn check_device(&self, op: &str, query: &Device) {
        if let Some(bias) = &self.bias {
            check_device(op, "a bias", query, &bias.device());
        }
        if let Some(bias) = &self.relative_bias {
            check_device(op, "a relative bias", query, &bias.device());
        }
    }

    /// Checks a call of `op` except for its pattern, and returns its shape.
    pub(crate) fn check_call(
        &self,
        op: &str,
        [query, key, value]: [&Tensor<4>; 3],
    ) -> AttentionShape {
        let shape = AttentionShape::from_tensors(op, query, key, value);
        precision::check(op, [query, key, value].map(Tensor::dtype));
        self.check(op, &shape);
        shape
    }

    /// Panics unless the options match the shape. The pattern is checked where it is used.
    pub(crate) fn check(&self, op: &str, shape: &AttentionShape) {
        let [batch, heads, seq_q, seq_k] = shape.scores();
        if let Some(scale) = self.scale {
            assert!(
                (scale as f32).is_finite(),
                "{op}: the scale must be finite, got {scale}"
            );
        }
        if let Some(softcap) = self.softcap {
            assert!(
                (1e-30..=1e30).contains(&softcap),
                "{op}: the softcap must be from 1e-30 to 1e30, got {softcap}"
            );
        }
        if let Some(slopes) = &self.alibi {
            assert!(
                slopes.len() == heads,
                "{op}: expected one ALiBi slope for each of the {heads} heads, got {}",
                slopes.len()
            );
            if let Some(slope) = slopes.iter().find(|slope| !slope.is_finite()) {
                panic!("{op}: ALiBi slopes must be finite, got {slope}");
            }
        }
        if let Some(bias) = &self.bias {
            assert!(
                matches!(bias.dtype(), DType::F32 | DType::F16 | DType::BF16),
                "{op}: the bias must be f32, f16 or bf16, got {:?}",
                bias.dtype()
            );
            assert!(
                is_broadcastable(bias.dims(), shape.scores()),
                "{op}: the bias must be broadcastable to [batch = {batch}, heads = {heads}, \
                 seq_q = {seq_q}, seq_k = {seq_k}], got {:?}",
                bias.dims()
            );
        }
        if let Some(bias) = &self.relative_bias {
            assert!(
                matches!(bias.dtype(), DType::F32 | DType::F16 | DType::BF16),
                "{op}: the relative bias must be f32, f16 or bf16, got {:?}",
                bias.dtype()
            );
            let expected = [heads, seq_q + seq_k - 1];
            assert!(
                bias.dims() == expected,
                "{op}: the relative bias must be [heads, seq_q + seq_k - 1] = {expected:?}, got {:?}",
                bias.dims()
            );
        }
        if let Some(dropout) = &self.dropout {
            dropout.check(op);
        }
    }
}
