//! Weights of layers as matrices with tokens at their sides.

use burn::tensor::Tensor;
use zoo_data::Tokenizer;
use zoo_viz::{HeadMaps, Matrix, Part, PictureError};

/// How tokens are written.
pub(super) fn written(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let token = |id: &u32| tokenizer.token(*id).unwrap_or_else(|| format!("#{id}"));
    ids.iter().map(token).collect()
}

/// The heads of layers, `[1, heads, queries, keys]` each.
pub(super) fn maps(
    title: &str,
    queries: &[String],
    keys: &[String],
    layers: Vec<Tensor<4>>,
) -> Result<Part, PictureError> {
    let layers = layers.into_iter().map(of_heads);
    let layers = layers.collect::<Result<_, _>>()?;
    HeadMaps::new(title, queries.to_vec(), keys.to_vec(), layers).map(Part::Heads)
}

/// `[1, heads, queries, keys]` as a matrix a head.
fn of_heads(weights: Tensor<4>) -> Result<Vec<Matrix>, PictureError> {
    let [_, _, queries, keys] = weights.dims();
    let numbers: Vec<f32> = weights.into_data().iter::<f32>().collect();
    numbers
        .chunks(queries * keys)
        .map(|head| Matrix::new(queries, keys, head.to_vec()))
        .collect()
}

/// `[1, queries, keys]` as a matrix.
pub(super) fn matrix(weights: Tensor<3>) -> Result<Matrix, PictureError> {
    let [_, queries, keys] = weights.dims();
    Matrix::new(queries, keys, weights.into_data().iter::<f32>().collect())
}
