//! AMX. Stable Rust has no intrinsics for it, so a block of the output is one `asm!` block.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
use std::sync::OnceLock;

use super::{BLOCK, Bf16Product, TILE, Tiles};

/// Products of AMX tiles.
#[derive(Debug, Clone, Copy)]
pub struct Amx;

/// The operand of `ldtilecfg`: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes_per_row: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Whether the CPU has AMX tiles and products of bf16, and the operating system permits their use.
pub(super) fn is_available() -> bool {
    static IS_AVAILABLE: OnceLock<bool> = OnceLock::new();
    *IS_AVAILABLE.get_or_init(|| is_supported() && request_permission())
}

/// CPUID leaf 7: AMX-BF16 is bit 22 and AMX-TILE bit 24 of EDX.
fn is_supported() -> bool {
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    __get_cpuid_max(0).0 >= 7 && __cpuid_count(7, 0).edx & BF16_AND_TILE == BF16_AND_TILE
}

/// Linux saves the 8 KB of tiles only for processes that ask for it. Fails on kernels before 5.16.
#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const SYS_ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let result: i64;
    // SAFETY: the system call accesses no memory of this process. It overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") SYS_ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Not tested on other operating systems.
#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}

/// Computes 32 x 32 elements of the output, after loading or clearing the tiles of the sums.
macro_rules! block {
    ($steps:expr, $a:expr, $b:expr, $strides:expr, $c:expr, $row_bytes:expr, $($start:literal),*) => {
        asm!(
            $($start,)*
            "2:",
            "tileloadd tmm4, [{a0} + {line}]",
            "tileloadd tmm6, [{b0} + {line}]",
            "tileloadd tmm7, [{b1} + {line}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {line}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a0}, {a_step}",
            "add {a1}, {a_step}",
            "add {b0}, {b_step}",
            "add {b1}, {b_step}",
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
            a_step = in(reg) $strides[0],
            b_step = in(reg) $strides[1],
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

/// Computes 32 columns of the output, 16 rows at a time, for an inner dimension of two tiles: the tiles of
/// the right operand stay in registers. Loading tiles limits the speed, and these are half of them.
macro_rules! columns {
    ($rows:expr, $a:expr, $b:expr, $distances:expr, $c:expr, $row_bytes:expr, $($start:literal),*) => {
        asm!(
            "tileloadd tmm4, [{b00} + {line}]",
            "tileloadd tmm5, [{b01} + {line}]",
            "tileloadd tmm6, [{b10} + {line}]",
            "tileloadd tmm7, [{b11} + {line}]",
            "2:",
            "tileloadd tmm2, [{a0} + {line}]",
            $($start,)*
            "tdpbf16ps tmm0, tmm2, tmm4",
            "tileloadd tmm3, [{a1} + {line}]",
            "tdpbf16ps tmm1, tmm2, tmm6",
            "tdpbf16ps tmm0, tmm3, tmm5",
            "tdpbf16ps tmm1, tmm3, tmm7",
            "tilestored [{c} + {row}], tmm0",
            "tilestored [{c} + {row} + 64], tmm1",
            "add {a0}, {a_block}",
            "add {a1}, {a_block}",
            "add {c}, {c_block}",
            "dec {rows}",
            "jnz 2b",
            rows = inout(reg) $rows => _,
            a0 = inout(reg) $a[0] => _,
            a1 = inout(reg) $a[1] => _,
            b00 = in(reg) $b[0][0],
            b01 = in(reg) $b[0][1],
            b10 = in(reg) $b[1][0],
            b11 = in(reg) $b[1][1],
            a_block = in(reg) $distances[0],
            c_block = in(reg) $distances[1],
            c = inout(reg) $c => _,
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

/// [`Bf16Product::product`] for an inner dimension of two tiles.
///
/// # Safety
///
/// As for that function; there is a row.
#[inline(always)]
unsafe fn product_of_two_steps<const ADD: bool>(
    [rows, columns]: [usize; 2],
    a: Tiles,
    b: Tiles,
    c: *mut f32,
    c_stride: usize,
) {
    let row_bytes = size_of::<f32>() * c_stride;
    let distances = [2 * a.layout.block, 16 * row_bytes];
    let row_tiles = rows / 16;
    for column in (0..columns).step_by(BLOCK) {
        // SAFETY: all tiles are within the sizes promised by the caller.
        unsafe {
            let a_tiles = [a.start, a.start.add(a.layout.step)];
            let b_first = b.start.add(column / 16 * b.layout.block);
            let b_second = b_first.add(b.layout.block);
            let b_tiles = [
                [b_first, b_first.add(b.layout.step)],
                [b_second, b_second.add(b.layout.step)],
            ];
            let c_tile = c.add(column);
            if ADD {
                columns!(
                    row_tiles,
                    a_tiles,
                    b_tiles,
                    distances,
                    c_tile,
                    row_bytes,
                    "tileloadd tmm0, [{c} + {row}]",
                    "tileloadd tmm1, [{c} + {row} + 64]"
                );
            } else {
                columns!(
                    row_tiles,
                    a_tiles,
                    b_tiles,
                    distances,
                    c_tile,
                    row_bytes,
                    "tilezero tmm0",
                    "tilezero tmm1"
                );
            }
        }
    }
}

impl Bf16Product for Amx {
    #[inline(always)]
    unsafe fn configure() {
        // SAFETY: the CPU has AMX, and the operand is a valid configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
    }

    #[inline(always)]
    unsafe fn release() {
        // SAFETY: the CPU has AMX.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }

    #[inline(always)]
    unsafe fn product<const ADD: bool>(
        [rows, inner, columns]: [usize; 3],
        a: Tiles,
        b: Tiles,
        c: *mut f32,
        c_stride: usize,
    ) {
        debug_assert!(
            [rows, inner, columns]
                .iter()
                .all(|x| x.is_multiple_of(BLOCK))
        );
        if rows == 0 || inner == 0 {
            return;
        }
        if inner == 2 * BLOCK {
            // SAFETY: as promised by the caller.
            unsafe { product_of_two_steps::<ADD>([rows, columns], a, b, c, c_stride) };
            return;
        }
        let steps = inner / BLOCK;
        let strides = [2 * a.layout.step, 2 * b.layout.step];
        let row_bytes = size_of::<f32>() * c_stride;
        for row in 0..rows / BLOCK {
            for column in 0..columns / BLOCK {
                // SAFETY: all tiles are within the sizes promised by the caller.
                unsafe {
                    let a_tile = a.start.add(2 * row * a.layout.block);
                    let b_tile = b.start.add(2 * column * b.layout.block);
                    let a_tiles = [a_tile, a_tile.add(a.layout.block)];
                    let b_tiles = [b_tile, b_tile.add(b.layout.block)];
                    let c_tile = c.add(row * BLOCK * c_stride + column * BLOCK);
                    let c_tiles = [c_tile, c_tile.add(BLOCK / 2 * c_stride)];
                    if ADD {
                        block!(
                            steps,
                            a_tiles,
                            b_tiles,
                            strides,
                            c_tiles,
                            row_bytes,
                            "tileloadd tmm0, [{c0} + {row}]",
                            "tileloadd tmm1, [{c0} + {row} + 64]",
                            "tileloadd tmm2, [{c1} + {row}]",
                            "tileloadd tmm3, [{c1} + {row} + 64]"
                        );
                    } else {
                        block!(
                            steps,
                            a_tiles,
                            b_tiles,
                            strides,
                            c_tiles,
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
    }
}

const _: () = assert!(TILE * 2 == 16 * 64);
