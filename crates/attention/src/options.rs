//! What every softmax mechanism can be told besides its tensors.

use burn::tensor::{DType, Device, Tensor};

use crate::pattern::fits;
use crate::shape::check_device;
use crate::{AttentionShape, Dropout, Pattern, precision};

/// How to attend: who sees whom, and what becomes of the scores.
///
/// ```text
/// product = scale · query · key
/// score   = softcap · tanh(product / softcap) - slope · distance + bias
/// weight  = softmax(score), dropped at random
/// ```
#[derive(Debug, Clone, Default)]
pub struct AttentionOptions {
    /// Who may see whom; everyone sees everything unless said otherwise.
    pub pattern: Pattern,
    /// What products are multiplied by; `None` is `1/sqrt(d_head)`.
    pub scale: Option<f64>,
    /// What products are kept within, on either side of zero.
    pub softcap: Option<f64>,
    /// For each query head, what a score loses with each place that the key is away
    /// from the query's own: ALiBi. [`alibi_slopes`](crate::alibi_slopes) has the usual ones.
    pub alibi: Option<Vec<f32>>,
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all: added to the
    /// scores. It can be learned; minus infinity hides.
    pub bias: Option<Tensor<4>>,
    /// Weights forgotten while training.
    pub dropout: Option<Dropout>,
    /// Whether masked keys and values may be assumed to be finite, so that nothing is spent on
    /// those that are not. Default: no.
    pub assume_finite: bool,
}

impl AttentionOptions {
    /// Everyone sees everything, at the default scale.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts who may see whom.
    pub fn with_pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Multiplies products by `scale` instead of `1/sqrt(d_head)`.
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Keeps products between `-softcap` and `softcap`.
    pub fn with_softcap(mut self, softcap: f64) -> Self {
        self.softcap = Some(softcap);
        self
    }

    /// Lets scores fall with the distance, by a slope for each head.
    pub fn with_alibi(mut self, slopes: impl Into<Vec<f32>>) -> Self {
        self.alibi = Some(slopes.into());
        self
    }

    /// Adds `bias` to the scores.
    pub fn with_bias(mut self, bias: Tensor<4>) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Forgets weights at random.
    pub fn with_dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }

    /// Skips what keeps NaN and infinities in masked keys and values from reaching the result
    /// and the gradients: with such inputs both are undefined. A backend on which this costs
    /// nothing may ignore it.
    pub fn with_assume_finite(mut self, assume_finite: bool) -> Self {
        self.assume_finite = assume_finite;
        self
    }

    /// Panics unless the bias is on the device of the queries. A mask is checked where it is
    /// used.
    pub(crate) fn check_device(&self, op: &str, query: &Device) {
        if let Some(bias) = &self.bias {
            check_device(op, "a bias", query, &bias.device());
        }
    }

    /// The sizes of a call to `op` with a query, a key and a value, after all of it was checked but
    /// the pattern.
    pub(crate) fn check_call(
        &self,
        op: &str,
        [query, key, value]: [&Tensor<4>; 3],
    ) -> AttentionShape {
        let shape = AttentionShape::of(op, query, key, value);
        precision::check(op, [query, key, value].map(Tensor::dtype));
        self.check(op, &shape);
        shape
    }

    /// Panics unless all but the pattern, which is checked where it is used, fits.
    pub(crate) fn check(&self, op: &str, shape: &AttentionShape) {
        let [batch, heads, seq_q, seq_k] = shape.scores();
        if let Some(scale) = self.scale {
            assert!(
                (scale as f32).is_finite(),
                "{op}: a scale must be a finite number, got {scale}"
            );
        }
        if let Some(softcap) = self.softcap {
            assert!(
                (1e-30..=1e30).contains(&softcap),
                "{op}: a softcap must be above 0 and at most 1e30, got {softcap}"
            );
        }
        if let Some(slopes) = &self.alibi {
            assert!(
                slopes.len() == heads,
                "{op}: an ALiBi slope must be given for each of the {heads} heads, got {}",
                slopes.len()
            );
            if let Some(slope) = slopes.iter().find(|slope| !slope.is_finite()) {
                panic!("{op}: an ALiBi slope must be a finite number, got {slope}");
            }
        }
        if let Some(bias) = &self.bias {
            assert!(
                matches!(bias.dtype(), DType::F32 | DType::F16 | DType::BF16),
                "{op}: a bias must be f32, f16 or bf16, got {:?}",
                bias.dtype()
            );
            assert!(
                fits(bias.dims(), shape.scores()),
                "{op}: a bias must be [batch = {batch}, heads = {heads}, seq_q = {seq_q}, \
                 seq_k = {seq_k}], or 1 in place of any, got {:?}",
                bias.dims()
            );
        }
        if let Some(dropout) = &self.dropout {
            dropout.check(op);
        }
    }
}
