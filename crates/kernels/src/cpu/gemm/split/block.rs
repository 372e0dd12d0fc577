//! A block of 32 x 32 elements of the output.

use std::arch::asm;

use burn::tensor::bf16;

use crate::cpu::bf16::{Amx, Bf16Product};

/// Products of operands in [three parts](super).
///
/// # Safety
///
/// The methods must be called on a CPU with the instruction set.
pub(in crate::cpu::gemm) trait PartsProduct: Bf16Product {
    /// `c = a · b`, or `c += a · b` if `adds`, for two panels of each operand with `steps` tiles of each
    /// part, and rows of `c_stride` elements.
    ///
    /// # Safety
    ///
    /// The panels can be read and the block can be written, there is a step, and this thread has a
    /// [`TileState`](crate::cpu::bf16::TileState).
    unsafe fn block(
        steps: usize,
        a: [*const bf16; 2],
        b: [*const bf16; 2],
        c: *mut f32,
        c_stride: usize,
        adds: bool,
    );
}

/// Six products for four tiles of the output, the largest last. Each tile of an operand is loaded once,
/// except the first part of the right one.
macro_rules! block {
    ($steps:expr, $a:expr, $b:expr, $c:expr, $row_bytes:expr, $($start:literal),*) => {
        asm!(
            $($start,)*
            "2:",
            // Third and first part.
            "tileloadd tmm4, [{a0} + {line} + 2048]",
            "tileloadd tmm6, [{b0} + {line}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {line}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {line} + 2048]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // Second and first.
            "tileloadd tmm4, [{a0} + {line} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {line} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // Second and second.
            "tileloadd tmm6, [{b0} + {line} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {line} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // First and second.
            "tileloadd tmm4, [{a0} + {line}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {line}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // First and third.
            "tileloadd tmm6, [{b0} + {line} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {line} + 2048]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // First and first.
            "tileloadd tmm6, [{b0} + {line}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {line}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a0}, 3072",
            "add {a1}, 3072",
            "add {b0}, 3072",
            "add {b1}, 3072",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{c0} + {row}], tmm0",
            "tilestored [{c0} + {row} + 64], tmm1",
            "tilestored [{c1} + {row}], tmm2",
            "tilestored [{c1} + {row} + 64], tmm3",
            steps = inout(reg) $steps => _,
            a0 = inout(reg) $a[0] => _,
            a1 = inout(reg) $a[1] => _,
            b0 = inout(reg) $b[0] => _,
            b1 = inout(reg) $b[1] => _,
            c0 = in(reg) $c[0],
            c1 = in(reg) $c[1],
            row = in(reg) $row_bytes,
            line = in(reg) 64_usize,
            out("tmm0") _,
            out("tmm1") _,
            out("tmm2") _,
            out("tmm3") _,
            out("tmm4") _,
            out("tmm5") _,
            out("tmm6") _,
            out("tmm7") _,
            options(nostack),
        )
    };
}

impl PartsProduct for Amx {
    #[inline(always)]
    unsafe fn block(
        steps: usize,
        a: [*const bf16; 2],
        b: [*const bf16; 2],
        c: *mut f32,
        c_stride: usize,
        adds: bool,
    ) {
        let row_bytes = size_of::<f32>() * c_stride;
        // SAFETY: all tiles are within the sizes promised by the caller.
        unsafe {
            let c = [c, c.add(16 * c_stride)];
            if adds {
                block!(
                    steps,
                    a,
                    b,
                    c,
                    row_bytes,
                    "tileloadd tmm0, [{c0} + {row}]",
                    "tileloadd tmm1, [{c0} + {row} + 64]",
                    "tileloadd tmm2, [{c1} + {row}]",
                    "tileloadd tmm3, [{c1} + {row} + 64]"
                );
            } else {
                block!(
                    steps,
                    a,
                    b,
                    c,
                    row_bytes,
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3"
                );
            }
        }
    }
}
