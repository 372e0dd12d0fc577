//! Kernels that merge the rounds of each position by log-sum-exp.
//!
//! ```text
//! forward    w_r = exp(l_r) / Σ exp(l),  o = Σ w_r c_r       over the slots r of a position
//! backward   dc_r = w_r do,  dl_r = w_r (do · c_r - do · o)
//! ```

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{
    Autodiff, Backend, Cube, DType, Dispatch, Shape, TensorMetadata, backend_extension,
};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;
use zoo_kernels::autodiff::{Step, record};

use super::super::DeviceLayout;
use crate::cube::launch::{buffer, empty_like, unit_grid, unit_index};
use crate::cube::op::{self, OperationOutput};
use crate::flash::{FULLY_MASKED, FlashOutput};

/// The context of each position, `[rows, d_value]`, from that of each slot of the queries.
pub(in super::super) fn merge(part: FlashOutput, layout: &DeviceLayout) -> Tensor<2> {
    let [context, log_sum_exp] = [part.context, part.log_sum_exp].map(|tensor| {
        let [heads, chunks, size, width] = tensor.dims();
        tensor
            .reshape([heads * chunks * size, width])
            .into_dispatch()
    });
    let index = [&layout.query_slots, &layout.query_rows].map(|it| it.clone().into_dispatch());
    let [slots, rows] = index;
    let merged = <Dispatch as MergeRounds>::merge_rounds(
        context,
        log_sum_exp,
        slots,
        rows,
        layout.sizes.rows(),
    );
    Tensor::from_dispatch(merged)
}

#[backend_extension(
    Autodiff,
    Cube: cfg(feature = "cube"),
)]
trait MergeRounds: Backend {
    /// `[count, d_value]` from the context, `[slots, d_value]`, and the log-sum-exp, `[slots, 1]`.
    /// `slots`, `[rounds, count]`, has the slots of each row, and `rows` the row in each slot.
    fn merge_rounds(
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        slots: IntTensor<Self>,
        rows: IntTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self>;
}

/// The inputs and the result.
#[derive(Debug, Clone)]
struct Saved<B: Backend> {
    context: FloatTensor<B>,
    log_sum_exp: FloatTensor<B>,
    slots: IntTensor<B>,
    rows: IntTensor<B>,
    merged: FloatTensor<B>,
}

trait MergeRoundsBackward: MergeRounds {
    /// The gradients of context and log-sum-exp.
    fn merge_rounds_backward(
        saved: Saved<Self>,
        output_grad: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2];
}

impl MergeRounds for Cube {
    fn merge_rounds(
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        slots: IntTensor<Self>,
        _: IntTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self> {
        let [_, width] = context.shape().dims();
        let outputs = vec![([count, 1, 1, width], DType::F32)];
        let launch = move |mut inputs: op::OpInputs| {
            let [context, log_sum_exp, slots] = [(); 3].map(|()| inputs.next());
            vec![launch_forward(context, log_sum_exp, slots, count)]
        };
        let inputs = vec![context, log_sum_exp, slots];
        let [merged] = op::register("zoo::merge_rounds", None, inputs, outputs, launch).outputs();
        Self::float_reshape(merged, Shape::from([count, width]))
    }
}

impl MergeRoundsBackward for Cube {
    fn merge_rounds_backward(
        saved: Saved<Self>,
        output_grad: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2] {
        let [slots, width] = saved.context.shape().dims();
        let outputs = [width, 1].map(|width| ([slots, 1, 1, width], DType::F32));
        let launch = |mut inputs: op::OpInputs| {
            let tensors = [(); 6].map(|()| inputs.next());
            launch_backward(tensors).into()
        };
        let inputs = vec![
            saved.context,
            saved.log_sum_exp,
            saved.slots,
            saved.rows,
            saved.merged,
            output_grad,
        ];
        let grads = op::register(
            "zoo::merge_rounds_backward",
            None,
            inputs,
            outputs.into(),
            launch,
        );
        let [d_context, d_log_sum_exp] = grads.outputs();
        [
            Self::float_reshape(d_context, Shape::from([slots, width])),
            Self::float_reshape(d_log_sum_exp, Shape::from([slots, 1])),
        ]
    }
}

impl<B: MergeRoundsBackward, C: CheckpointStrategy> MergeRounds for Autodiff<B, C> {
    fn merge_rounds(
        context: FloatTensor<Self>,
        log_sum_exp: FloatTensor<Self>,
        slots: IntTensor<Self>,
        rows: IntTensor<Self>,
        count: usize,
    ) -> FloatTensor<Self> {
        let parents = [context.node(), log_sum_exp.node()];
        let [context, log_sum_exp] = [context, log_sum_exp].map(|it| it.into_primitive());
        let merged = B::merge_rounds(
            context.clone(),
            log_sum_exp.clone(),
            slots.clone(),
            rows.clone(),
            count,
        );
        let saved = Saved {
            context,
            log_sum_exp,
            slots,
            rows,
            merged: merged.clone(),
        };
        let step = Step(B::merge_rounds_backward);
        record::<B, C, _, 2>(step, parents, saved, merged)
    }
}

const UNITS: usize = 64;

/// The slots of the positions of all rounds.
#[derive(CubeType, CubeLaunch)]
struct Slots<I: Int> {
    /// `[rounds, count]`
    slots: &'static [I],
    log_sum_exp: &'static [f32],
    rounds: u32,
    count: u32,
}

#[cube]
impl<I: Int> Slots<I> {
    fn slot(&self, round: usize, row: usize) -> usize {
        u32::cast_from(self.slots[round * self.count as usize + row]) as usize
    }

    /// Finite for fully masked rows: infinity minus infinity would be NaN.
    fn score(&self, slot: usize) -> f32 {
        max(self.log_sum_exp[slot], FULLY_MASKED)
    }

    fn max_score(&self, row: usize) -> f32 {
        let mut maximum = f32::cast_from(FULLY_MASKED);
        for round in 0..self.rounds as usize {
            maximum = max(maximum, self.score(self.slot(round, row)));
        }
        maximum
    }

    /// The weight of a slot of a row.
    fn weight(&self, slot: usize, row: usize) -> f32 {
        let maximum = self.max_score(row);
        let mut sum = 0.0f32;
        for round in 0..self.rounds as usize {
            sum += (self.score(self.slot(round, row)) - maximum).exp();
        }
        (self.score(slot) - maximum).exp() / sum
    }
}

/// Each unit computes one element.
#[cube(launch_unchecked)]
fn forward<I: Int>(
    context: &[f32],
    slots: &Slots<I>,
    merged: &mut [f32],
    width: u32,
    #[define(I)] _int: ElemType,
) {
    let index = unit_index();
    let width = width as usize;
    if index < slots.count as usize * width {
        let (row, column) = (index / width, index % width);
        let maximum = slots.max_score(row);
        let mut element = 0.0f32;
        let mut sum = 0.0f32;
        for round in 0..slots.rounds as usize {
            let slot = slots.slot(round, row);
            let weight = (slots.score(slot) - maximum).exp();
            sum += weight;
            element += weight * context[slot * width + column];
        }
        merged[index] = element / sum;
    }
}

/// Each unit computes one element of the gradient of the context: zero in slots of padding.
#[cube(launch_unchecked)]
fn backward_context<I: Int>(
    rows: &[I],
    slots: &Slots<I>,
    output_grad: &[f32],
    d_context: &mut [f32],
    per_round: u32,
    width: u32,
    #[define(I)] _int: ElemType,
) {
    let index = unit_index();
    let (per_round, width) = (per_round as usize, width as usize);
    if index < slots.rounds as usize * per_round * width {
        let (slot, column) = (index / width, index % width);
        let row = u32::cast_from(rows[slot]) as usize;
        let mut gradient = 0.0f32;
        if slots.slot(slot / per_round, row) == slot {
            gradient = slots.weight(slot, row) * output_grad[row * width + column];
        }
        d_context[index] = gradient;
    }
}

/// Each unit computes the gradient of the log-sum-exp of one slot.
#[cube(launch_unchecked)]
fn backward_log_sum_exp<I: Int>(
    context: &[f32],
    rows: &[I],
    slots: &Slots<I>,
    merged: &[f32],
    output_grad: &[f32],
    d_log_sum_exp: &mut [f32],
    per_round: u32,
    width: u32,
    #[define(I)] _int: ElemType,
) {
    let slot = unit_index();
    let (per_round, width) = (per_round as usize, width as usize);
    if slot < slots.rounds as usize * per_round {
        let row = u32::cast_from(rows[slot]) as usize;
        let mut gradient = 0.0f32;
        if slots.slot(slot / per_round, row) == slot {
            // In the same order, so that the difference is zero if one round has all the weight.
            let mut own = 0.0f32;
            let mut all = 0.0f32;
            for column in 0..width {
                let output_grad = output_grad[row * width + column];
                own += output_grad * context[slot * width + column];
                all += output_grad * merged[row * width + column];
            }
            gradient = slots.weight(slot, row) * (own - all);
        }
        d_log_sum_exp[slot] = gradient;
    }
}

fn launch_forward(
    context: CubeTensor,
    log_sum_exp: CubeTensor,
    slots: CubeTensor,
    count: usize,
) -> CubeTensor {
    let [context, log_sum_exp, slots] = [context, log_sum_exp, slots].map(into_contiguous);
    let [_, width] = context.meta.shape().dims();
    let merged = empty_like(&context, [count, 1, 1, width], DType::F32);
    // SAFETY: the kernel accesses the tensors within the sizes passed to it.
    unsafe {
        forward::launch_unchecked(
            &context.client,
            unit_grid(count * width, UNITS),
            CubeDim::new_1d(UNITS as u32),
            buffer(&context),
            slots_args(&slots, &log_sum_exp, count),
            buffer(&merged),
            width as u32,
            dtype_to_storage_type(slots.dtype),
        );
    }
    merged
}

/// The gradients of context and log-sum-exp, from these, slots, rows, the merged context and its
/// gradient.
fn launch_backward(tensors: [CubeTensor; 6]) -> [CubeTensor; 2] {
    let [context, log_sum_exp, slots, rows, merged, output_grad] = tensors.map(into_contiguous);
    let [slot_count, width] = context.meta.shape().dims();
    let [count, _] = merged.meta.shape().dims();
    let [indices] = slots.meta.shape().dims();
    let per_round = slot_count / (indices / count);
    let d_context = empty_like(&context, [slot_count, 1, 1, width], DType::F32);
    let d_log_sum_exp = empty_like(&context, [slot_count, 1, 1, 1], DType::F32);
    let int = dtype_to_storage_type(slots.dtype);
    // SAFETY: the kernels access the tensors within the sizes passed to them.
    unsafe {
        backward_context::launch_unchecked(
            &context.client,
            unit_grid(slot_count * width, UNITS),
            CubeDim::new_1d(UNITS as u32),
            buffer(&rows),
            slots_args(&slots, &log_sum_exp, count),
            buffer(&output_grad),
            buffer(&d_context),
            per_round as u32,
            width as u32,
            int,
        );
        backward_log_sum_exp::launch_unchecked(
            &context.client,
            unit_grid(slot_count, UNITS),
            CubeDim::new_1d(UNITS as u32),
            buffer(&context),
            buffer(&rows),
            slots_args(&slots, &log_sum_exp, count),
            buffer(&merged),
            buffer(&output_grad),
            buffer(&d_log_sum_exp),
            per_round as u32,
            width as u32,
            int,
        );
    }
    [d_context, d_log_sum_exp]
}

fn slots_args<I: Int>(
    slots: &CubeTensor,
    log_sum_exp: &CubeTensor,
    count: usize,
) -> SlotsLaunch<I> {
    let [indices] = slots.meta.shape().dims();
    SlotsLaunch::new(
        buffer(slots),
        buffer(log_sum_exp),
        (indices / count) as u32,
        count as u32,
    )
}
