//! The matmul in `f32` of mechanisms on devices with tensor cores.

use zoo_kernels::matmul::matmul_by_units;
use zoo_oracle::Tolerance;

use crate::prelude::*;

/// Not aligned to tiles, and with broadcast batch dimensions. The last two split the inner dimension of
/// the product and of the gradient of the right operand.
const SHAPES: [[[usize; 4]; 2]; 6] = [
    [[1, 1, 1, 1], [1, 1, 1, 1]],
    [[2, 3, 5, 7], [2, 3, 7, 4]],
    [[2, 3, 70, 33], [1, 3, 33, 130]],
    [[1, 2, 1, 300], [4, 1, 300, 65]],
    [[1, 1, 40, 512], [1, 1, 512, 70]],
    [[1, 1, 512, 9], [1, 1, 9, 20]],
];

pub(crate) const TESTS: &[(&str, Test)] = &[("gradients", |device| {
    for [left, right] in SHAPES {
        let sines = |dims: [usize; 4], factor: f32| -> Tensor<4> {
            let elements = (0..dims.iter().product()).map(|i: usize| (i as f32 * factor).sin());
            tensor_of(elements.collect(), dims, device).require_grad()
        };
        let (lhs, rhs) = (sines(left, 1.7), sines(right, 2.3));
        let product = matmul_by_units(lhs.clone(), rhs.clone());
        let up = sines(product.dims(), 0.9);
        let gradients = (product.clone() * up.clone()).sum().backward();
        let gradient = |tensor: &Tensor<4>| to_vec(tensor.grad(&gradients).expect("a gradient"));

        let [a, b, up] = [&lhs, &rhs, &up].map(Matrices::from_tensor);
        let want = a.times(&b);
        let check =
            |name: &str, pass: Tolerance, got: Vec<f32>, factors: [&Matrices; 2], want: &[f64]| {
                // Terms cancel: their sum is small compared with its rounding errors.
                let [a, b] = factors;
                let scale = (a.dims[3] as f64).sqrt() * a.largest() * b.largest();
                must(pass.check_with_min_scale(scale, name, &got, want));
            };
        let forward = Precision::F32.forward(0.0);
        check(
            "product",
            forward,
            to_vec(product),
            [&a, &b],
            &want.elements,
        );
        if [left, right].iter().all(|dims| dims[..2] == [1, 1]) {
            let [lhs, rhs] = [&lhs, &rhs].map(|tensor| tensor.clone().squeeze_dims::<2>(&[0, 1]));
            let product = to_vec(matmul_by_units(lhs, rhs));
            check("of matrices", forward, product, [&a, &b], &want.elements);
        }
        let backward = Precision::F32.backward(0.0);
        let [of_a, of_b] = [a.transposed(), b.transposed()];
        let d_lhs = up.times(&of_b).summed_to(left);
        check("d_lhs", backward, gradient(&lhs), [&up, &of_b], &d_lhs);
        let d_rhs = of_a.times(&up).summed_to(right);
        check("d_rhs", backward, gradient(&rhs), [&of_a, &up], &d_rhs);
    }
})];

/// Matrices in `f64`, `[outer, inner, rows, columns]`.
struct Matrices {
    dims: [usize; 4],
    elements: Vec<f64>,
}

impl Matrices {
    fn from_tensor(tensor: &Tensor<4>) -> Self {
        Self {
            dims: tensor.dims(),
            elements: to_vec(tensor.clone()).into_iter().map(f64::from).collect(),
        }
    }

    /// The element at an index, with batch dimensions of size 1 broadcast.
    fn get(&self, [outer, inner, row, column]: [usize; 4]) -> f64 {
        let [outers, inners, rows, columns] = self.dims;
        let batch = outer % outers * inners + inner % inners;
        self.elements[(batch * rows + row) * columns + column]
    }

    fn from_fn(dims: [usize; 4], element: impl Fn([usize; 4]) -> f64) -> Self {
        let count: usize = dims.iter().product();
        let index = |i: usize| {
            let [_, inners, rows, columns] = dims;
            let batch = i / columns / rows;
            [
                batch / inners,
                batch % inners,
                i / columns % rows,
                i % columns,
            ]
        };
        Self {
            dims,
            elements: (0..count).map(|i| element(index(i))).collect(),
        }
    }

    /// The largest magnitude.
    fn largest(&self) -> f64 {
        self.elements.iter().fold(0.0, |max, x| x.abs().max(max))
    }

    fn times(&self, other: &Self) -> Self {
        let [a, b] = [self.dims, other.dims];
        let dims = [a[0].max(b[0]), a[1].max(b[1]), a[2], b[3]];
        Self::from_fn(dims, |[outer, inner, row, column]| {
            let terms = (0..a[3])
                .map(|k| self.get([outer, inner, row, k]) * other.get([outer, inner, k, column]));
            terms.sum()
        })
    }

    fn transposed(&self) -> Self {
        let [outer, inner, rows, columns] = self.dims;
        Self::from_fn(
            [outer, inner, columns, rows],
            |[outer, inner, row, column]| self.get([outer, inner, column, row]),
        )
    }

    /// Sums over the batch dimensions that were broadcast.
    fn summed_to(&self, dims: [usize; 4]) -> Vec<f64> {
        let mut sums = Self::from_fn(dims, |_| 0.0);
        let [outers, inners, rows, columns] = dims;
        for (i, element) in self.elements.iter().enumerate() {
            let batch = i / columns / rows;
            let (outer, inner) = (batch / self.dims[1], batch % self.dims[1]);
            let batch = outer % outers * inners + inner % inners;
            sums.elements[batch * rows * columns + i % (rows * columns)] += element;
        }
        sums.elements
    }
}
