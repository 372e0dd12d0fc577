//! Multi-head latent attention: keys and values of all heads are projections of one latent vector per
//! position.
//!
//! ```text
//! [c_j; r_j] = key_j·W              c_j normalised, r_j with rotary positions
//! k_jh = [c_j·K_h; r_j]             v_jh = c_j·V_h
//! ```
//!
//! Decoding stores `[c_j; r_j]` only. A query `[a; b]` of head `h` has the same product with `k_jh` as
//! `[a·K_hᵀ; b]` has with `[c_j; r_j]`, and a weighted sum of values is that of latent vectors times
//! `V_h`. All heads attend to the same rows, which are keys and values at once.
//!
//! DeepSeek-AI, [DeepSeek-V2](https://arxiv.org/abs/2405.04434), 2024.

use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig, RmsNorm, RmsNormConfig};
use burn::tensor::{Device, Tensor};
use zoo_kernels::rms_norm;
use zoo_spec::Mla;

use super::{MultiHeadAttention, project};
use crate::matmul::matmul;
use crate::mechanisms::Inputs;
use crate::shape::split_heads;
use crate::{DecodeCache, Pattern};

/// Projections of `mla` besides those of every layer. Its key projection computes the latent vectors
/// and the rotary elements, `d_context -> latent + rope`, and its value projection computes values
/// from latent vectors, `latent -> n_heads * d_head`.
#[derive(Module, Debug)]
pub struct LatentProjections {
    /// The norm of the latent vectors.
    pub norm: RmsNorm,
    /// `latent -> n_heads * d_head`: the keys of all heads without their rotary elements.
    pub key: Linear,
}

impl LatentProjections {
    pub(super) fn init(sizes: LatentSizes, initializer: &Initializer, device: &Device) -> Self {
        Self {
            // The epsilon of DeepSeek-V2.
            norm: RmsNormConfig::new(sizes.latent)
                .with_epsilon(1e-6)
                .init(device),
            key: up_projection(sizes, initializer, device),
        }
    }

    fn size(&self) -> usize {
        let [latent, _] = self.key.weight.dims();
        latent
    }

    /// Latent vectors, `[batch, 1, seq, latent]`, of rows `[c_j; r_j]`.
    fn vectors(&self, rows: Tensor<4>) -> Tensor<4> {
        rows.slice_dim(3, 0..self.size())
    }
}

/// Sizes of the projections of `mla`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatentSizes {
    pub(super) latent: usize,
    pub(super) rope: usize,
    /// `n_heads * d_head`
    heads: usize,
}

impl LatentSizes {
    pub(super) fn new(mla: Mla, n_heads: usize, d_head: usize) -> Self {
        Self {
            latent: mla.latent_of(d_head),
            rope: mla.rope_of(d_head),
            heads: n_heads * d_head,
        }
    }
}

/// A projection of latent vectors. It has no bias: a bias of the keys would not change softmax, and
/// one of the values is equivalent to one of the output.
pub(super) fn up_projection(
    sizes: LatentSizes,
    initializer: &Initializer,
    device: &Device,
) -> Linear {
    LinearConfig::new(sizes.latent, sizes.heads)
        .with_bias(false)
        .with_initializer(initializer.clone())
        .init(device)
}

impl MultiHeadAttention {
    /// Rows `[c_j; r_j]` of a key input that starts at a position: `[batch, 1, seq, latent + rope]`.
    pub(super) fn latent_rows(
        &self,
        projections: &LatentProjections,
        key: Tensor<3>,
        first: i64,
    ) -> Tensor<4> {
        let rows = split_heads(project(self.key_projection(), key), 1);
        let [.., width] = rows.dims();
        let norm = &projections.norm;
        let latent = projections.vectors(rows.clone());
        let latent = rms_norm(norm.gamma.val(), norm.epsilon, latent);
        let rotary = rows.slice_dim(3, projections.size()..width);
        Tensor::cat(vec![latent, self.rotate(rotary, first)], 3)
    }

    /// Queries that start at a position, and the keys and values of rows.
    pub(super) fn latent_inputs(
        &self,
        projections: &LatentProjections,
        query: Tensor<3>,
        first: i64,
        rows: Tensor<4>,
    ) -> Inputs {
        let query = self.queries(query, first);
        let key = self.keys_of_latent(projections, rows.clone());
        let value = self.values_of_latent(projections, rows);
        Inputs::new([query, key, value])
    }

    /// The keys of all heads, `[batch, n_heads, seq, d_head + rope]`.
    pub(super) fn keys_of_latent(
        &self,
        projections: &LatentProjections,
        rows: Tensor<4>,
    ) -> Tensor<4> {
        let [batch, _, seq, width] = rows.dims();
        let latent = projections.vectors(rows.clone());
        let keys = self.heads_of_latent(&projections.key, latent);
        let rotary = rows.slice_dim(3, projections.size()..width);
        let rotary = rotary.expand([batch, self.n_heads, seq, self.rope]);
        Tensor::cat(vec![keys, rotary], 3)
    }

    /// The values of all heads, `[batch, n_heads, seq, d_head]`.
    pub(super) fn values_of_latent(
        &self,
        projections: &LatentProjections,
        rows: Tensor<4>,
    ) -> Tensor<4> {
        self.heads_of_latent(&self.value, projections.vectors(rows))
    }

    fn heads_of_latent(&self, projection: &Linear, latent: Tensor<4>) -> Tensor<4> {
        let latent = latent.squeeze_dim(1); // [batch, seq, latent]
        split_heads(project(projection, latent), self.n_heads)
    }

    /// [`step`](Self::step) with a cache of latent vectors.
    pub(super) fn latent_step(
        &self,
        projections: &LatentProjections,
        x: Tensor<3>,
        cache: &mut DecodeCache,
    ) -> Tensor<3> {
        let position = cache.len() as i64;
        let rows = self.latent_rows(projections, x.clone(), position);
        let query = self.queries(x.clone(), position); // [batch, n_heads, 1, d_head + rope]
        let mut options = self.options(&query, Pattern::Causal);
        options.scale = Some(options.scale.unwrap_or_else(|| self.default_scale()));
        let params = self.call_params(&query);
        let query = self.query_of_latent(projections, query);
        let inputs = Inputs::new([query, rows.clone(), rows]);
        let context = cache.step_with(inputs, &params, &options);
        let latent = projections.vectors(context); // [batch, n_heads, 1, latent]
        let by_head = self.weight_by_head(&self.value).swap_dims(2, 3); // [1, n_heads, latent, d_head]
        self.project_output(matmul(latent, by_head), x)
    }

    /// Queries whose products with `[c_j; r_j]` are those of `query` with the keys of its head:
    /// `[batch, n_heads, seq, latent + rope]`.
    fn query_of_latent(&self, projections: &LatentProjections, query: Tensor<4>) -> Tensor<4> {
        let [.., width] = query.dims();
        let of_keys = query.clone().slice_dim(3, 0..self.d_head);
        let rotary = query.slice_dim(3, self.d_head..width);
        let latent = matmul(of_keys, self.weight_by_head(&projections.key));
        Tensor::cat(vec![latent, rotary], 3)
    }

    /// The weight of a projection of latent vectors, `[1, n_heads, d_head, latent]`.
    fn weight_by_head(&self, projection: &Linear) -> Tensor<4> {
        let weight = projection.weight.val();
        let [latent, _] = weight.dims();
        let weight = weight.reshape([1, latent, self.n_heads, self.d_head]);
        weight.permute([0, 2, 3, 1])
    }
}
