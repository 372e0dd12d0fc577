//! Embeddings of `zoo-kernels` and their gradients.

use burn::module::Param;
use burn::nn::{Embedding, EmbeddingConfig};
use zoo_kernels::{embedding, is_on_host};

use crate::support::*;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("embedding", |device| {
        // A token that occurs several times, the first and the last one, and one that does not occur.
        let tokens: [[usize; 3]; 2] = [[6, 2, 2], [0, 6, 2]];
        for scale in [1.0, 2.5] {
            let table = named_normal::<2>("table", [7, 5], device);
            let module = Embedding {
                weight: Param::from_tensor(table.clone()).set_require_grad(true),
            };
            let ids = tokens.map(|row| row.map(|token| token as i32));
            let ids = Tensor::<2, Int>::from_ints(ids, device);
            let up = named_normal::<3>("up", [2, 3, 5], device);
            let output = embedding(&module, ids, scale);
            assert_eq!(output.dims(), [2, 3, 5]);
            let gradients = (output.clone() * up.clone()).sum().backward();
            let (rows, up) = (to_vec(table), to_vec(up));
            let mut expected = Vec::new();
            let mut d_table = vec![0.0; 7 * 5];
            for (position, &token) in tokens.as_flattened().iter().enumerate() {
                for column in 0..5 {
                    expected.push(scale * f64::from(rows[token * 5 + column]));
                    d_table[token * 5 + column] += scale * f64::from(up[position * 5 + column]);
                }
            }
            let tolerance = Precision::F32.backward(0.0);
            must(tolerance.check("output", &to_vec(output), &expected));
            let got = module.weight.grad(&gradients).expect("no gradient");
            must(tolerance.check("d_table", &to_vec(got), &d_table));
        }
    }),
    ("embedding-of-an-unknown-token", |device| {
        // Burn's operation, which is called on other devices, may return anything.
        if !is_on_host(&Tensor::<1>::zeros([1], device)) {
            return;
        }
        let module = EmbeddingConfig::new(4, 3).init(device);
        for token in [4, -1] {
            let tokens = Tensor::<2, Int>::from_ints([[0, token]], device);
            assert_panics_containing(
                || embedding(&module, tokens.clone(), 1.0),
                &format!("embedding: no token {token} in a table of 4 rows"),
            );
        }
    }),
];
