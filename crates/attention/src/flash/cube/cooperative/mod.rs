//! Kernels for Vulkan with cooperative matrices whose elements can be computed with.
//!
//! `VK_NV_cooperative_matrix2` has functions of each element, and conversions of an accumulator to a
//! left operand. So weights are computed where the scores are: in fragments, without knowing which
//! lane has which element. What a lane has to know its elements for is rare, and goes through shared
//! memory, of which each plane has a part for one fragment: masks, and a new maximum of a row.
//!
//! There is no maximum of a row. Weights are relative to a reference: the maximum of the row when it
//! was last computed. The sums of the weights of a tile, which a matmul with ones computes, tell
//! when a weight is much larger than that.
//!
//! In `f32`, elements are split into [parts](parts). Scores and weights go through shared memory, where lanes
//! split them, and each tile has its maximum.

// Expansions use type parameters that the functions they expand do not, and a condition that is
// known at compile time makes a branch without a check.
#![allow(clippy::extra_unused_type_parameters, clippy::if_same_then_else)]
// Kernels have no closures that could capture what they pass.
#![allow(clippy::too_many_arguments)]

pub(super) mod backward_keys;
pub(super) mod backward_queries;
pub(super) mod forward;
mod fragment;
mod layout;
mod parts;
mod products;
mod rows;
mod stage;
mod weights;

pub(super) use self::layout::{CooperativeLayout, CooperativeType};
pub(super) use self::rows::CooperativeArgsLaunch;
