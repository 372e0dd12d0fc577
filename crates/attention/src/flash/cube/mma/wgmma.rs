//! Matmuls with `wgmma`: the rows of four planes by a tile in shared memory.
//!
//! An accumulator has the layout of those of `mma.sync`, for 16 rows of each plane. All instructions
//! of a product are issued at once and waited for; while a plane waits, others compute.

use cubecl::prelude::*;

use super::fragment::{Left, Pair, to_left_operand};
use super::layout::MmaLayout;
use super::shared::shared_index;

/// `left · tileᵀ` for a tile with a row of `size` for each column of the product.
///
/// The left operand is in shared memory: with CUDA 13.0, registers that are the left operand in each
/// iteration of a loop may be overwritten in the first.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    left: &Left<E, N>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> Array<Pair<f32>> {
    let len = comptime!(layout.columns / 2);
    let size!(L) = len;
    let vec = comptime!(layout.ty.vec());
    // The first row of the plane's warpgroup.
    let left_row = PLANE_POS as usize / 4 * 64;
    let left_rows = comptime!(layout.left_rows());
    let index = shared_index(left_row, 0usize, left_rows, size, layout);
    let left = left.rows[index..index + vec].as_ptr();
    let right_rows = comptime!(layout.shared_rows());
    let index = shared_index(first_row, 0usize, right_rows, size, layout);
    let right = tile[index..index + vec].as_ptr();
    let text = comptime!(Product { layout, size }.nt());
    let products: Vector<f32, L>;
    gpu_asm!(
        "/* {products} = {left} {right} */ {text}",
        products = out(_) products, left = mem_in(_) left, right = mem_in(_) right,
        options(explicit_mem),
    );
    let mut pairs = Array::<Pair<f32>>::new(comptime!(layout.columns / 4));
    #[unroll]
    for i in 0..comptime!(layout.columns / 4) {
        let mut pair = Pair::<f32>::new(0.0f32);
        pair.insert(0usize, products.extract(comptime!(2 * i)));
        pair.insert(1usize, products.extract(comptime!(2 * i + 1)));
        pairs[i] = pair;
    }
    pairs
}

/// `sums += weights · tile` for a tile with a row of `size` for each column of the weights.
#[cube]
pub(super) fn add_matmul<E: Float, N: Size>(
    weights: &Array<Pair<f32>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    sums: &mut Array<Pair<f32>>,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) {
    let len = comptime!(size / 2);
    let words = comptime!(layout.columns / 4);
    let size!(L) = len;
    let size!(W) = words;
    let mut left = Vector::<u32, W>::new(0u32);
    #[unroll]
    for step in 0..comptime!(layout.columns / 16) {
        let operand = to_left_operand::<E>(weights, 0usize, step, comptime!(layout.ty));
        #[unroll]
        for i in 0..4usize {
            left.insert(comptime!(step * 4 + i), operand[i]);
        }
    }
    let mut old = Vector::<f32, L>::new(0.0f32);
    #[unroll]
    for i in 0..len {
        old.insert(i, sums[comptime!(i / 2)].extract(comptime!(i % 2)));
    }
    let vec = comptime!(layout.ty.vec());
    let shared_rows = comptime!(layout.shared_rows());
    let index = shared_index(first_row, 0usize, shared_rows, size, layout);
    let rows = tile[index..index + vec].as_ptr();
    let left = as_value(left);
    // In other registers, since assembly takes values and `old` is a variable.
    let old = Vector::<u32, L>::reinterpret(old);
    let text = comptime!(Product { layout, size }.add());
    let new: Vector<f32, L>;
    gpu_asm!(
        "/* {new} = {old} {left} {rows} */ {text}",
        new = out(_) new, old = in(_) old, left = in(_) left, rows = mem_in(_) rows,
        options(explicit_mem),
    );
    #[unroll]
    for i in 0..comptime!(size / 4) {
        let mut pair = Pair::<f32>::new(0.0f32);
        pair.insert(0usize, new.extract(comptime!(2 * i)));
        pair.insert(1usize, new.extract(comptime!(2 * i + 1)));
        sums[i] = pair;
    }
}

/// The value of a variable: assembly would take its address.
#[cube]
fn as_value<W: Size>(variable: Vector<u32, W>) -> Vector<u32, W> {
    variable & Vector::<u32, W>::new(u32::MAX)
}

/// The PTX of a product with a tile whose rows have `size` elements.
struct Product {
    layout: MmaLayout,
    size: usize,
}

impl Product {
    /// Registers: products, addresses of the left and of the right rows.
    fn nt(&self) -> String {
        let columns = self.layout.columns;
        let len = columns / 2;
        let [left, right] =
            [self.layout.left_rows(), self.layout.shared_rows()].map(|rows| self.panel_bytes(rows));
        // An instruction takes 32 bytes of each row.
        let panel_steps = self.layout.panel_row_bytes() / 32;
        let offset =
            |step: usize, panel: usize| (step / panel_steps * panel + step % panel_steps * 32) / 16;
        let steps = (0..self.size / 16).map(|step| {
            format!(
                "add.s64 left, rows, {};\nadd.s64 right, tile, {};\n{}",
                offset(step, left),
                offset(step, right),
                self.instruction(columns, step > 0, "left", "1, 1, 0, 0")
            )
        });
        let descriptors = self.descriptor("rows", len, 1) + &self.descriptor("tile", len + 1, 1);
        self.block(descriptors, steps.collect())
    }

    /// Registers: new sums, old sums, left operand, address of the tile.
    fn add(&self) -> String {
        let len = self.size / 2;
        let left = 2 * len;
        let steps = self.layout.columns / 16;
        let copies = (0..len).map(|i| format!("mov.b32 %{i}, %{};\n", len + i));
        let panels = self.panel_bytes(self.layout.shared_rows()) / 16;
        let descriptor = self.descriptor("tile", left + 4 * steps, panels);
        let steps = (0..steps).map(|step| {
            let left: Vec<_> = (0..4)
                .map(|i| format!("%{}", left + 4 * step + i))
                .collect();
            format!(
                "add.s64 right, tile, {};\n{}",
                step * 16 * self.layout.panel_row_bytes() / 16,
                self.instruction(
                    self.size,
                    true,
                    &format!("{{{}}}", left.join(", ")),
                    "1, 1, 1"
                )
            )
        });
        copies.collect::<String>() + &self.block(descriptor, steps.collect())
    }

    fn panel_bytes(&self, rows: usize) -> usize {
        rows * self.layout.panel_row_bytes()
    }

    /// The matrix descriptor of rows whose address is in a register. `panels` is the distance of
    /// panels, in units of 16 bytes.
    fn descriptor(&self, name: &str, register: usize, panels: usize) -> String {
        // Swizzled panels of 128 bytes per row, and the distance of eight rows.
        let rows_distance = self.layout.panel_row_bytes() * 8 / 16;
        let descriptor = 1 << 62 | (rows_distance as u64) << 32 | (panels as u64) << 16;
        format!(
            "cvta.to.shared.u64 {name}, %{register};\n\
             shr.u64 {name}, {name}, 4;\n\
             and.b64 {name}, {name}, 16383;\n\
             or.b64 {name}, {name}, {descriptor};\n"
        )
    }

    /// All instructions of a product.
    fn block(&self, descriptors: String, steps: String) -> String {
        format!(
            "{{\n.reg .b64 rows, tile, left, right;\n.reg .pred adds;\n{descriptors}\
             wgmma.fence.sync.aligned;\n{steps}\
             wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}}"
        )
    }

    /// An instruction that multiplies by the rows of the descriptor `right`.
    fn instruction(&self, columns: usize, adds: bool, left: &str, flags: &str) -> String {
        let name = self.layout.ty.name();
        let sums: Vec<_> = (0..columns / 2).map(|i| format!("%{i}")).collect();
        format!(
            "setp.ne.b32 adds, {}, 0;\n\
             wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} \
             {{{}}}, {left}, right, adds, {flags};\n",
            u32::from(adds),
            sums.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Instructions, MmaLayout, MmaType};
    use super::*;

    /// Products with heads of 64 and of 128, which have one and two panels.
    fn products() -> [Product; 2] {
        [64, 128].map(|size| Product {
            layout: MmaLayout::forward(Instructions::Wgmma, MmaType::Bf16, size, size),
            size,
        })
    }

    fn registers(text: &str) -> Vec<usize> {
        let numbers = text.split('%').skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            rest[..end.unwrap_or(rest.len())].parse()
        });
        let mut registers: Vec<usize> = numbers.map(|n| n.expect("a number")).collect();
        registers.sort_unstable();
        registers.dedup();
        registers
    }

    #[test]
    fn every_register_is_used() {
        for product in products() {
            let (columns, size) = (product.layout.columns, product.size);
            // The products and two addresses; or two sets of sums, the left operand and an address.
            for (text, count) in [
                (product.nt(), columns / 2 + 2),
                (product.add(), size + columns / 4 + 1),
            ] {
                assert_eq!(registers(&text), (0..count).collect::<Vec<_>>(), "{text}");
            }
        }
    }

    #[test]
    fn steps_cover_the_rows() {
        let offsets = |text: &str| -> Vec<usize> {
            let lines = text
                .lines()
                .filter_map(|line| line.strip_prefix("add.s64 right, tile, "));
            let offsets = lines.map(|offset| offset.trim_end_matches(';').parse());
            offsets.map(|offset| offset.expect("a number")).collect()
        };
        let [narrow, wide] = products();
        // In units of 16 bytes: 32 bytes of a row, and panels of 256 and 128 rows of 128 bytes.
        assert_eq!(offsets(&narrow.nt()), [0, 2, 4, 6]);
        assert_eq!(offsets(&wide.nt()), [0, 2, 4, 6, 1024, 1026, 1028, 1030]);
        // 16 rows of 128 bytes.
        assert_eq!(
            offsets(&narrow.add()),
            [0, 128, 256, 384, 512, 640, 768, 896]
        );
        assert_eq!(offsets(&wide.add()), [0, 128, 256, 384]);
    }
}
