//! The tiles of a row of the plan, one after the other.

use cubecl::prelude::*;

use super::call::Call;
use super::score::load_run;

/// A tile of a row of the plan. The tiles are those of one head, or of several heads in turn.
#[derive(CubeType, Clone, Copy)]
pub(super) struct TileCursor {
    pub(super) head: usize,
    pub(super) tile: u32,
    /// The number of the tile's bitmap from 1 on, or 0 if it is unmasked.
    bitmap: usize,
    run: u32,
    /// The end of the run.
    end_tile: u32,
    first_run: u32,
    end_run: u32,
    end_head: usize,
}

/// The first tile of a row of the plan, for `heads` heads.
#[cube]
pub(super) fn first_tile(
    example: usize,
    plan_row: usize,
    first_head: usize,
    heads: usize,
    plan: &[u32],
    call: &Call,
) -> TileCursor {
    let index = example * call.plan_example as usize + plan_row;
    let first_run = plan[index];
    let end_run = plan[index + 1];
    let mut cursor = TileCursor {
        head: first_head,
        tile: 0u32,
        bitmap: 0usize,
        run: first_run,
        end_tile: 0u32,
        first_run,
        end_run,
        end_head: first_head,
    };
    if first_run < end_run {
        cursor.end_head = first_head + heads;
        enter_run(&mut cursor, plan, call);
    }
    cursor
}

#[cube]
impl TileCursor {
    /// Whether there is a tile: the cursor is not past the last one.
    pub(super) fn has_tile(&self) -> bool {
        self.head < self.end_head
    }
}

/// Moves to the next tile, and returns the bitmap of the one before.
#[cube]
pub(super) fn advance(cursor: &mut TileCursor, plan: &[u32], call: &Call) -> usize {
    // Without an expression this would be a reference to the field, which changes below.
    let bitmap = select(cursor.has_tile(), cursor.bitmap, 0usize);
    cursor.tile += 1u32;
    if cursor.tile == cursor.end_tile {
        cursor.run += 1u32;
        if cursor.run == cursor.end_run {
            cursor.run = cursor.first_run;
            cursor.head += 1usize;
        }
        enter_run(cursor, plan, call);
    }
    bitmap
}

#[cube]
fn enter_run(cursor: &mut TileCursor, plan: &[u32], call: &Call) {
    let run = load_run(cursor.run, plan, call);
    cursor.tile = run.first;
    cursor.end_tile = run.end;
    cursor.bitmap = run.bitmap;
}
