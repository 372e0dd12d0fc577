//! Bias and activation of a product, in one pass over memory.

use super::super::parallel::{for_each, map, rows_per_task};
use super::super::{InstructionSet, Simd, add, dispatch, sigmoid, tanh};

/// Elementwise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x`
    Identity,
    /// `max(x, 0)`
    Relu,
    /// `tanh(x)`
    Tanh,
    /// GELU with the tanh approximation: `x/2 · (1 + tanh(sqrt(2/π) · (x + 0.044715 x³)))`
    GeluTanh,
}

/// `2 sqrt(2/π)`: `(1 + tanh y) / 2 = sigmoid(2y)`.
const SLOPE: f32 = 1.595_769;
const CUBIC: f32 = 0.044_715;

impl Activation {
    /// Whether the derivative is computed from the input; otherwise, from the output.
    pub(crate) fn needs_input(self) -> bool {
        match self {
            Self::Identity | Self::Relu | Self::Tanh => false,
            Self::GeluTanh => true,
        }
    }

    /// The function of a vector.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn apply<S: Simd>(self, x: S::Vector) -> S::Vector {
        // SAFETY: as promised by the caller.
        unsafe {
            match self {
                Self::Identity => x,
                // NaN is propagated: `max` returns its second argument.
                Self::Relu => S::max(S::splat(0.0), x),
                Self::Tanh => tanh::<S>(x),
                Self::GeluTanh => S::mul(x, sigmoid::<S>(gelu_argument::<S>(x))),
            }
        }
    }

    /// The derivative, from a vector of inputs or of outputs: see [`Self::needs_input`].
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn derivative<S: Simd>(self, x: S::Vector) -> S::Vector {
        // SAFETY: as promised by the caller.
        unsafe {
            let one = S::splat(1.0);
            match self {
                Self::Identity => one,
                Self::Relu => S::select(S::gt(x, S::splat(0.0)), one, S::splat(0.0)),
                Self::Tanh => S::sub(one, S::mul(x, x)),
                Self::GeluTanh => {
                    let u = gelu_argument::<S>(x);
                    // s + x · s · (1 - s) · u'(x); a difference to 1 would lose precision.
                    let s = sigmoid::<S>(u);
                    let rest = sigmoid::<S>(S::sub(S::splat(0.0), u));
                    let square = S::mul(x, x);
                    let slope = S::fma(square, S::splat(3.0 * CUBIC * SLOPE), S::splat(SLOPE));
                    S::fma(S::mul(x, S::mul(s, rest)), slope, s)
                }
            }
        }
    }
}

/// `2 sqrt(2/π) · (x + 0.044715 x³)`
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn gelu_argument<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe {
        let factor = S::fma(S::mul(x, x), S::splat(CUBIC * SLOPE), S::splat(SLOPE));
        S::mul(x, factor)
    }
}

/// What is done with the elements of a product `[rows, columns]`.
#[derive(Debug)]
pub struct Finish<'a> {
    /// Added to every row: `[columns]`.
    pub bias: Option<&'a [f32]>,
    /// Applied to the sum.
    pub activation: Activation,
    /// Gets the sums before the activation, `[rows, columns]`, which its derivative needs.
    pub sums: Option<&'a mut [f32]>,
}

impl Finish<'_> {
    /// Leaves the product as it is.
    pub const NOTHING: Self = Self {
        bias: None,
        activation: Activation::Identity,
        sums: None,
    };

    /// Whether the slices have the sizes of the product.
    pub(super) fn fits(&self, rows: usize, columns: usize) -> bool {
        let (bias, sums) = (self.bias, self.sums.as_ref());
        bias.is_none_or(|bias| bias.len() == columns)
            && sums.is_none_or(|sums| sums.len() == rows * columns)
    }

    /// Applies it to a product.
    pub(crate) fn apply(self, output: &mut [f32], columns: usize) {
        let Self {
            bias,
            activation,
            sums,
        } = self;
        if bias.is_none() && activation == Activation::Identity && sums.is_none() {
            return;
        }
        let set = InstructionSet::detect();
        let part = (columns * rows_per_task(output.len() / columns.max(1), columns)).max(1);
        let mut sums = sums.into_iter().flat_map(|sums| sums.chunks_mut(part));
        let output = output.chunks_mut(part);
        let tasks: Vec<_> = output.map(|output| (output, sums.next())).collect();
        for_each(tasks, |(output, sums)| {
            // SAFETY: the processor supports the set; a task has whole rows of both.
            unsafe { finish_rows(set, (bias, activation), columns, output, sums) };
        });
    }
}

dispatch! {
    unsafe fn finish_rows(
        function: (Option<&[f32]>, Activation),
        columns: usize,
        output: &mut [f32],
        sums: Option<&mut [f32]>,
    ) by finish_loop;
}

/// # Safety
///
/// The instructions of `S` are enabled, the bias has a row's elements, and `sums` is as long as
/// `output`.
#[inline(always)]
unsafe fn finish_loop<S: Simd>(
    (bias, activation): (Option<&[f32]>, Activation),
    columns: usize,
    output: &mut [f32],
    mut sums: Option<&mut [f32]>,
) {
    for row in 0..output.len() / columns {
        for first in (0..columns).step_by(S::LANES) {
            let count = S::LANES.min(columns - first);
            // SAFETY: as promised by the caller.
            unsafe {
                let at = row * columns + first;
                let to = output.as_mut_ptr().add(at);
                let mut x = S::load_partial(to, count);
                if let Some(bias) = bias {
                    x = S::add(x, S::load_partial(bias.as_ptr().add(first), count));
                }
                if let Some(sums) = &mut sums {
                    S::store_partial(sums.as_mut_ptr().add(at), x, count);
                }
                S::store_partial(to, activation.apply::<S>(x), count);
            }
        }
    }
}

/// Multiplies the gradient of the output, `[rows, columns]`, by the derivative of the activation,
/// and returns the gradient of the bias. `saved` is the input or the output of the activation: see
/// [`Activation::needs_input`].
pub(crate) fn finish_backward(
    activation: Activation,
    saved: &[f32],
    gradient: &mut [f32],
    columns: usize,
) -> Vec<f32> {
    let set = InstructionSet::detect();
    let part = columns * rows_per_task(gradient.len() / columns.max(1), columns);
    let tasks = gradient
        .chunks_mut(part.max(1))
        .zip(saved.chunks(part.max(1)));
    sum_parts(tasks.collect(), columns, |(gradient, saved), bias| {
        // SAFETY: the processor supports the set; a task has whole rows of both.
        unsafe { backward_rows(set, (activation, saved), gradient, bias) };
    })
}

/// The sum of the rows of `[rows, columns]`: the gradient of a bias without activation.
pub(crate) fn column_sums(gradient: &[f32], columns: usize) -> Vec<f32> {
    let part = columns * rows_per_task(gradient.len() / columns.max(1), columns);
    let tasks = gradient.chunks(part.max(1)).collect();
    sum_parts(tasks, columns, |gradient: &[f32], sums| {
        add_rows(gradient, sums)
    })
}

/// The sum of what the tasks add to a row of zeros, in their order: it does not depend on scheduling.
fn sum_parts<Task: Send>(
    tasks: Vec<Task>,
    columns: usize,
    run: impl Fn(Task, &mut [f32]) + Sync + Send,
) -> Vec<f32> {
    let mut total = vec![0.0; columns];
    let parts = map(tasks, |task| {
        let mut sums = vec![0.0; columns];
        run(task, &mut sums);
        sums
    });
    for part in parts {
        add(&mut total, &part);
    }
    total
}

dispatch! {
    fn add_rows(rows: &[f32], sums: &mut [f32]) by add_rows_loop;
}

#[inline(always)]
fn add_rows_loop(rows: &[f32], sums: &mut [f32]) {
    for row in rows.chunks_exact(sums.len()) {
        add(sums, row);
    }
}

dispatch! {
    unsafe fn backward_rows(
        function: (Activation, &[f32]),
        gradient: &mut [f32],
        bias: &mut [f32],
    ) by backward_loop;
}

/// # Safety
///
/// The instructions of `S` are enabled, and `saved` is as long as `gradient`, which has whole rows.
#[inline(always)]
unsafe fn backward_loop<S: Simd>(
    (activation, saved): (Activation, &[f32]),
    gradient: &mut [f32],
    bias: &mut [f32],
) {
    let columns = bias.len();
    for row in 0..gradient.len() / columns {
        for first in (0..columns).step_by(S::LANES) {
            let count = S::LANES.min(columns - first);
            // SAFETY: as promised by the caller.
            unsafe {
                let at = row * columns + first;
                let (to, bias) = (gradient.as_mut_ptr().add(at), bias.as_mut_ptr().add(first));
                let x = S::load_partial(saved.as_ptr().add(at), count);
                let d = S::mul(S::load_partial(to, count), activation.derivative::<S>(x));
                S::store_partial(to, d, count);
                S::store_partial(bias, S::add(S::load_partial(bias, count), d), count);
            }
        }
    }
}
