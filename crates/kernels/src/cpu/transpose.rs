//! Transposition of matrices.

use super::Simd;

/// Transposes a matrix: `into` gets `columns` rows of `rows` elements.
///
/// # Safety
///
/// The instructions of `S` are enabled; `from` can be read and `into` written with these sizes and
/// strides, and they do not overlap.
#[inline(always)]
pub unsafe fn transpose<S: Simd>(
    [rows, columns]: [usize; 2],
    (from, from_stride): (*const f32, usize),
    (into, into_stride): (*mut f32, usize),
) {
    let whole_rows = rows / S::LANES * S::LANES;
    let whole_columns = columns / S::LANES * S::LANES;
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        for row in (0..whole_rows).step_by(S::LANES) {
            for column in (0..whole_columns).step_by(S::LANES) {
                S::transpose(
                    from.add(row * from_stride + column),
                    from_stride,
                    into.add(column * into_stride + row),
                    into_stride,
                );
            }
        }
        for row in 0..rows {
            let left = if row < whole_rows { whole_columns } else { 0 };
            for column in left..columns {
                *into.add(column * into_stride + row) = *from.add(row * from_stride + column);
            }
        }
    }
}
