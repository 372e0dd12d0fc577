//! Inverses of unit lower triangular matrices.

use burn::tensor::Tensor;

use crate::matmul::matmul;

/// Rows that are computed one after the other.
const BLOCK: usize = 16;

/// The inverse of `I + B` for strictly lower triangular matrices `B`, `[.., size, size]`.
///
/// By forward substitution in blocks of 16 rows, which are then merged. A series of powers of `B` would
/// have fewer steps, but its terms can be many orders of magnitude larger than their sum.
pub(super) fn inverse(lower: Tensor<5>) -> Tensor<5> {
    let dims = lower.dims();
    let [batch, heads, count, size, _] = dims;
    let flat = lower.reshape([batch * heads * count, size, size]);
    #[cfg(feature = "cube")]
    if let Some(inverse) = super::cube::inverse(&flat) {
        return inverse.reshape(dims);
    }
    let value = invert(flat.clone().detach());
    // The derivative of the inverse T is -T dB T; the difference is zero.
    let change = flat.clone() - flat.detach();
    let correction = matmul(matmul(value.clone(), change), value.clone());
    (value - correction).reshape(dims)
}

fn invert(lower: Tensor<3>) -> Tensor<3> {
    let [_, size, _] = lower.dims();
    if size <= BLOCK {
        return substitute(lower);
    }
    let half = (size / 2).next_multiple_of(BLOCK);
    let block = |rows: [usize; 2], columns: [usize; 2]| {
        let rows = lower.clone().slice_dim(1, rows[0]..rows[1]);
        rows.slice_dim(2, columns[0]..columns[1])
    };
    let first = invert(block([0, half], [0, half]));
    let second = invert(block([half, size], [half, size]));
    let below = block([half, size], [0, half]);
    let below = matmul(matmul(second.clone(), below), first.clone()).neg();
    let [count, ..] = first.dims();
    let above = Tensor::zeros([count, half, size - half], (&first.device(), first.dtype()));
    Tensor::cat(
        vec![
            Tensor::cat(vec![first, above], 2),
            Tensor::cat(vec![below, second], 2),
        ],
        1,
    )
}

/// Row by row: row `i` of the inverse is that of `I` minus row `i` of `B` times the rows before it.
fn substitute(lower: Tensor<3>) -> Tensor<3> {
    let [count, size, _] = lower.dims();
    let identity = Tensor::<2>::eye(size, &lower.device()).cast(lower.dtype());
    let identity = identity.unsqueeze_dim::<3>(0).expand([count, size, size]);
    let mut rows = identity.clone().slice_dim(1, 0..1);
    for row in 1..size {
        let factors = lower
            .clone()
            .slice_dim(1, row..row + 1)
            .slice_dim(2, 0..row);
        let next = identity.clone().slice_dim(1, row..row + 1) - matmul(factors, rows.clone());
        rows = Tensor::cat(vec![rows, next], 1);
    }
    rows
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::{Device, Distribution};

    use super::*;

    fn identity_error(lower: Tensor<5>) -> f32 {
        let [.., size, _] = lower.dims();
        let identity = Tensor::<2>::eye(size, &lower.device()).unsqueeze::<5>();
        let product = matmul(lower.clone() + identity.clone(), inverse(lower));
        (product - identity).abs().max().into_scalar()
    }

    #[test]
    fn products_with_inverses_are_the_identity() {
        let device = Device::default();
        for size in [1, 2, 15, 16, 17, 40, 64] {
            let lower = Tensor::<5>::random(
                [1, 2, 3, size, size],
                Distribution::Normal(0.0, 0.3),
                &device,
            );
            let error = identity_error(lower.tril(-1));
            assert!(error < 1e-3, "{size}: {error}");
            // Powers of this matrix have elements of up to 1e18.
            let ones = Tensor::<5>::ones([1, 1, 1, size, size], &device);
            let error = identity_error(ones.tril(-1));
            assert!(error < 1e-6, "{size}: {error}");
        }
    }
}
