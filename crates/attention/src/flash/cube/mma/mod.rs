//! Kernels for NVIDIA GPUs with the matrix instructions `mma` and `ldmatrix`, or [`wgmma`].
//!
//! Scores, weights and accumulators stay in registers: the layout of an accumulator of one matmul
//! is that of the left operand of the next. Only the rows of keys, values, queries and output
//! gradients go through shared memory, to which they are copied asynchronously, a tile ahead of
//! the computation.
//!
//! A plane computes 16 rows of a tile, or a multiple. Lane `l` has the elements of rows `l / 4` and
//! `l / 4 + 8` and of columns `2 (l % 4)` and `2 (l % 4) + 1` of each fragment of 16 x 8.

pub(super) mod backward_keys;
pub(super) mod backward_queries;
pub(super) mod forward;
mod fragment;
mod layout;
mod shared;
mod tile;
mod wgmma;

pub(super) use self::layout::{Instructions, MmaLayout, MmaType};
pub(super) use self::tile::MmaArgsLaunch;
