//! MLP scores and their gradients on CUDA, in ATen's operations.
//!
//! ```text
//! t = tanh(q_i + k_j)                         recomputed in the backward pass
//! forward    s_ij = v_i · t
//! backward   dv_i = Σ_j ds_ij t,  g = ds_ij v_i (1 - t²),  dq_i = Σ_j g,  dk_j = Σ_i g
//! ```
//!
//! As many rows are computed at a time as fit into a fixed amount of memory. It is small enough for the
//! L2 cache of large GPUs, since these operations do little but read and write.

use tch::{Kind, Tensor};

/// Activations that are computed at a time: 32 MiB.
const MAX_ACTIVATIONS: i64 = 1 << 23;

/// `[batch, heads, rows, seq_k]` for a query `[batch, heads, rows, d]`, a key
/// `[batch, heads, seq_k, d]` and a vector `[1, heads, rows, d]`.
pub(super) fn scores([query, key, vector]: [&Tensor; 3]) -> Tensor {
    let tiles: Vec<Tensor> = row_tiles(query, key)
        .map(|rows| {
            let [query, vector] = [query, vector].map(|tensor| rows.of(tensor));
            let vector = vector.unsqueeze(4); // [1, heads, tile, d, 1]
            activations(&query, key).matmul(&vector).squeeze_dim(4)
        })
        .collect();
    Tensor::cat(&tiles, 2)
}

/// The gradients of query, key and vector.
pub(super) fn backward([query, key, vector]: [&Tensor; 3], d_scores: &Tensor) -> [Tensor; 3] {
    let (mut d_queries, mut d_vectors) = (Vec::new(), Vec::new());
    let mut d_key = key.zeros_like();
    for rows in row_tiles(query, key) {
        let [query, vector, d_scores] = [query, vector, d_scores].map(|tensor| rows.of(tensor));
        let hidden = activations(&query, key);
        let d_vector = d_scores.unsqueeze(3).matmul(&hidden).squeeze_dim(3);
        d_vectors.push(d_vector.sum_dim_intlist(0, true, None::<Kind>));
        let d_hidden = d_scores.unsqueeze(4) * vector.unsqueeze(3);
        let d_hidden = Tensor::tanh_backward(&d_hidden, &hidden);
        d_queries.push(d_hidden.sum_dim_intlist(3, false, None::<Kind>));
        d_key += d_hidden.sum_dim_intlist(2, false, None::<Kind>);
    }
    [
        Tensor::cat(&d_queries, 2),
        d_key,
        Tensor::cat(&d_vectors, 2),
    ]
}

/// `[batch, heads, rows, seq_k, d]`
fn activations(query: &Tensor, key: &Tensor) -> Tensor {
    (query.unsqueeze(3) + key.unsqueeze(2)).tanh_()
}

/// Some rows of queries.
struct Rows {
    first: i64,
    count: i64,
}

impl Rows {
    fn of(&self, tensor: &Tensor) -> Tensor {
        tensor.narrow(2, self.first, self.count)
    }
}

fn row_tiles(query: &Tensor, key: &Tensor) -> impl Iterator<Item = Rows> + use<> {
    let rows = query.size()[2];
    let size = MAX_ACTIVATIONS / (key.numel() as i64).max(1);
    let size = size.clamp(1, rows.max(1));
    (0..rows).step_by(size as usize).map(move |first| Rows {
        first,
        count: size.min(rows - first),
    })
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// Compared with autograd, on CUDA if there is one, else on the CPU.
    #[test]
    fn scores_and_gradients_match_autograd() {
        let device = Device::cuda_if_available();
        tch::manual_seed(1);
        // The second has several tiles, the last of fewer rows.
        for [batch, heads, rows, seq_k, d] in [[2, 3, 7, 5, 4], [1, 2, 70, 4096, 32]] {
            let random = |size: [i64; 4]| Tensor::randn(size, (Kind::Float, device));
            let inputs = [
                random([batch, heads, rows, d]),
                random([batch, heads, seq_k, d]),
                random([1, heads, rows, d]),
            ];
            let d_scores = random([batch, heads, rows, seq_k]);
            let tracked = inputs
                .each_ref()
                .map(|tensor| tensor.to_kind(Kind::Double).set_requires_grad(true));
            let [query, key, vector] = &tracked;
            let hidden = (query.unsqueeze(3) + key.unsqueeze(2)).tanh();
            let expected = (hidden * vector.unsqueeze(3)).sum_dim_intlist(4, false, None::<Kind>);
            (&expected * &d_scores).sum(Kind::Double).backward();
            let inputs = inputs.each_ref();
            let grads = backward(inputs, &d_scores);
            let pairs = grads.iter().zip(tracked.iter().map(Tensor::grad));
            let mut pairs: Vec<_> = pairs.collect();
            let got = scores(inputs);
            pairs.push((&got, expected.detach()));
            for (got, expected) in pairs {
                assert_eq!(got.size(), expected.size());
                let error = (got - &expected).abs().max().double_value(&[]);
                let largest = expected.abs().max().double_value(&[]);
                assert!(error < 2e-6 * largest, "{rows} rows: {error} of {largest}");
            }
        }
    }
}
