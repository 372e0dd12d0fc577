//! Elementwise feature maps and exponentials, and their derivatives, over [`Simd`].

use std::f32::consts::LOG2_E;

use zoo_kernels::cpu::{Simd, dispatch};

/// An elementwise feature map.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elementwise {
    /// `elu(x) + 1`
    Elu1,
    /// `max(x, 0) + 0.001`
    Relu,
    Identity,
}

/// The constant that [`Elementwise::Relu`] adds.
const RELU_FLOOR: f32 = crate::scan::features::RELU_FLOOR;

/// A feature map at compile time.
trait Activation {
    /// `φ(x)`. Safety: the instructions of `S` are enabled.
    unsafe fn forward<S: Simd>(x: S::Vector) -> S::Vector;
    /// `d · φ'(x)`. Safety: as above.
    unsafe fn backward<S: Simd>(x: S::Vector, feature: S::Vector, d: S::Vector) -> S::Vector;
}

struct Elu1;
struct Relu;
struct Identity;

impl Activation for Elu1 {
    #[inline(always)]
    unsafe fn forward<S: Simd>(x: S::Vector) -> S::Vector {
        // SAFETY: as promised by the caller.
        unsafe {
            let zero = S::splat(0.0);
            let below = S::exp2(S::mul(S::min(zero, x), S::splat(LOG2_E)));
            S::add(below, S::max(zero, x))
        }
    }

    #[inline(always)]
    unsafe fn backward<S: Simd>(_: S::Vector, feature: S::Vector, d: S::Vector) -> S::Vector {
        // Above zero, features are above 1 and the slope is 1; below, the slope is the feature.
        // SAFETY: as promised by the caller.
        unsafe { S::mul(d, S::min(S::splat(1.0), feature)) }
    }
}

impl Activation for Relu {
    #[inline(always)]
    unsafe fn forward<S: Simd>(x: S::Vector) -> S::Vector {
        // SAFETY: as promised by the caller.
        unsafe { S::add(S::max(S::splat(0.0), x), S::splat(RELU_FLOOR)) }
    }

    #[inline(always)]
    unsafe fn backward<S: Simd>(x: S::Vector, _: S::Vector, d: S::Vector) -> S::Vector {
        // SAFETY: as promised by the caller.
        unsafe {
            let zero = S::splat(0.0);
            S::select(S::gt(x, zero), d, zero)
        }
    }
}

impl Activation for Identity {
    #[inline(always)]
    unsafe fn forward<S: Simd>(x: S::Vector) -> S::Vector {
        x
    }

    #[inline(always)]
    unsafe fn backward<S: Simd>(_: S::Vector, _: S::Vector, d: S::Vector) -> S::Vector {
        d
    }
}

/// The size of rows: their number, their width, and the stride of padded rows.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) count: usize,
    pub(super) width: usize,
    pub(super) wide: usize,
}

dispatch! {
    /// `φ(scale · x)` of rows, padded with zeros.
    pub(super) unsafe fn map_rows(
        kind: Elementwise,
        size: Size,
        scale: f32,
        from: (*const f32, usize),
        into: *mut f32,
    ) by map_rows_by;
}

dispatch! {
    /// The gradient of `x` from that of the features `φ(scale · x)`.
    pub(super) unsafe fn map_rows_backward(
        kind: Elementwise,
        size: Size,
        scale: f32,
        from: (*const f32, usize),
        features: *const f32,
        d_features: *const f32,
        into: *mut f32,
    ) by map_rows_backward_by;
}

dispatch! {
    /// `2^(factor · x - max)` of rows, in place, with the maximum of each row; padding becomes zero.
    pub(super) unsafe fn row_exponentials(size: Size, factor: f32, rows: *mut f32)
        by row_exponentials_by;
}

dispatch! {
    /// `factor · x - half norm`, in place, for the half norm of each row; at least [`LOWEST`], which
    /// is also the padding.
    pub(super) unsafe fn exponents(
        size: Size,
        factor: f32,
        half_norms: *const f32,
        rows: *mut f32,
    ) by exponents_by;
}

dispatch! {
    /// `2^(x - shift)`, in place, of a number of elements that is a multiple of 16.
    pub(super) unsafe fn exponentials(count: usize, shift: f32, values: *mut f32)
        by exponentials_by;
}

/// Below every exponent, so that its exponential is zero; finite, so that differences are not NaN.
pub(super) const LOWEST: f32 = -1e30;

/// # Safety
///
/// The instructions of `S` are enabled; `from` has rows of the width and `into` padded rows.
#[inline(always)]
unsafe fn map_rows_by<S: Simd>(
    kind: Elementwise,
    size: Size,
    scale: f32,
    from: (*const f32, usize),
    into: *mut f32,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        match kind {
            Elementwise::Elu1 => map_by::<S, Elu1>(size, scale, from, into),
            Elementwise::Relu => map_by::<S, Relu>(size, scale, from, into),
            Elementwise::Identity => map_by::<S, Identity>(size, scale, from, into),
        }
    }
}

/// # Safety
///
/// As for [`map_rows_by`].
#[inline(always)]
unsafe fn map_by<S: Simd, A: Activation>(
    Size { count, width, wide }: Size,
    scale: f32,
    (from, stride): (*const f32, usize),
    into: *mut f32,
) {
    // SAFETY: all accesses are within the rows.
    unsafe {
        let scale = S::splat(scale);
        let whole = width / S::LANES * S::LANES;
        for row in 0..count {
            let (from, into) = (from.add(row * stride), into.add(row * wide));
            for x in (0..whole).step_by(S::LANES) {
                let feature = A::forward::<S>(S::mul(scale, S::load(from.add(x))));
                S::store(into.add(x), feature);
            }
            if whole < wide {
                for x in (whole..wide).step_by(S::LANES) {
                    S::store(into.add(x), S::splat(0.0));
                }
            }
            if whole < width {
                let x = S::load_partial(from.add(whole), width - whole);
                let feature = A::forward::<S>(S::mul(scale, x));
                S::store_partial(into.add(whole), feature, width - whole);
            }
        }
    }
}

/// # Safety
///
/// The instructions of `S` are enabled; `from` and `into` have rows of the width, `into` without
/// gaps; the features and their gradients have padded rows.
#[inline(always)]
unsafe fn map_rows_backward_by<S: Simd>(
    kind: Elementwise,
    size: Size,
    scale: f32,
    from: (*const f32, usize),
    features: *const f32,
    d_features: *const f32,
    into: *mut f32,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        match kind {
            Elementwise::Elu1 => {
                map_backward_by::<S, Elu1>(size, scale, from, [features, d_features], into);
            }
            Elementwise::Relu => {
                map_backward_by::<S, Relu>(size, scale, from, [features, d_features], into);
            }
            Elementwise::Identity => {
                map_backward_by::<S, Identity>(size, scale, from, [features, d_features], into);
            }
        }
    }
}

/// # Safety
///
/// As for [`map_rows_backward_by`].
#[inline(always)]
unsafe fn map_backward_by<S: Simd, A: Activation>(
    Size { count, width, wide }: Size,
    scale: f32,
    (from, stride): (*const f32, usize),
    [features, d_features]: [*const f32; 2],
    into: *mut f32,
) {
    // SAFETY: all accesses are within the rows.
    unsafe {
        let scale = S::splat(scale);
        let whole = width / S::LANES * S::LANES;
        for row in 0..count {
            let (from, into) = (from.add(row * stride), into.add(row * width));
            let (feature, d) = (features.add(row * wide), d_features.add(row * wide));
            for x in (0..whole).step_by(S::LANES) {
                let input = S::mul(scale, S::load(from.add(x)));
                let d = A::backward::<S>(input, S::load(feature.add(x)), S::load(d.add(x)));
                S::store(into.add(x), S::mul(scale, d));
            }
            if whole < width {
                let rest = width - whole;
                let input = S::mul(scale, S::load_partial(from.add(whole), rest));
                // Padded rows are readable up to whole registers.
                let (feature, d) = (S::load(feature.add(whole)), S::load(d.add(whole)));
                let d = A::backward::<S>(input, feature, d);
                S::store_partial(into.add(whole), S::mul(scale, d), rest);
            }
        }
    }
}

/// # Safety
///
/// The instructions of `S` are enabled; `rows` has padded rows.
#[inline(always)]
unsafe fn row_exponentials_by<S: Simd>(
    Size { count, width, wide }: Size,
    factor: f32,
    rows: *mut f32,
) {
    // SAFETY: all accesses are within the rows.
    unsafe {
        let factor = S::splat(factor);
        for row in 0..count {
            let row = rows.add(row * wide);
            for x in (0..wide).step_by(S::LANES) {
                S::store(row.add(x), S::mul(factor, S::load(row.add(x))));
            }
            for x in width..wide {
                *row.add(x) = LOWEST;
            }
            let mut max = S::load(row);
            for x in (S::LANES..wide).step_by(S::LANES) {
                max = S::max(max, S::load(row.add(x)));
            }
            let mut lanes = [LOWEST; 16];
            S::store(lanes.as_mut_ptr(), max);
            let mut largest = LOWEST;
            for lane in lanes {
                largest = if lane > largest { lane } else { largest };
            }
            let largest = S::splat(largest);
            for x in (0..wide).step_by(S::LANES) {
                let element = row.add(x);
                S::store(element, S::exp2(S::sub(S::load(element), largest)));
            }
        }
    }
}

/// # Safety
///
/// The instructions of `S` are enabled; `rows` has padded rows, and there is a half norm for each.
#[inline(always)]
unsafe fn exponents_by<S: Simd>(
    Size { count, width, wide }: Size,
    factor: f32,
    half_norms: *const f32,
    rows: *mut f32,
) {
    // SAFETY: all accesses are within the rows.
    unsafe {
        let (factor, lowest) = (S::splat(factor), S::splat(LOWEST));
        for row in 0..count {
            let half_norm = S::splat(*half_norms.add(row));
            let row = rows.add(row * wide);
            for x in (0..wide).step_by(S::LANES) {
                let exponent = S::sub(S::mul(factor, S::load(row.add(x))), half_norm);
                // NaN stays NaN.
                S::store(row.add(x), S::max(lowest, exponent));
            }
            for x in width..wide {
                *row.add(x) = LOWEST;
            }
        }
    }
}

/// # Safety
///
/// The instructions of `S` are enabled, and there are `count` values.
#[inline(always)]
unsafe fn exponentials_by<S: Simd>(count: usize, shift: f32, values: *mut f32) {
    // SAFETY: all accesses are within the values.
    unsafe {
        let shift = S::splat(shift);
        for i in (0..count).step_by(S::LANES) {
            let value = values.add(i);
            S::store(value, S::exp2(S::sub(S::load(value), shift)));
        }
    }
}
