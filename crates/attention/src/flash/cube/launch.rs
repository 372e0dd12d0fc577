//! Kernel launches.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::{ElemType, UIntKind};
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::backward_keys::backward_keys;
use super::backward_queries::backward_queries;
use super::call::{
    BroadcastStridesLaunch, CallLaunch, KernelArgsLaunch, TensorStridesLaunch, table,
};
use super::device_plan::{DevicePlan, PlanKey, RowAxis};
use super::forward::forward;
use super::layout::{KernelLayout, Layout};
use super::mma::{self, MmaArgsLaunch, MmaLayout};
use crate::cube::delta::deltas;
use crate::cube::launch::{
    buffer, cube_count, empty_like, has_aligned_rows, into_contiguous_rows, word_buffer,
};
use crate::flash::call::TiledSettings;
use crate::memo::Memo;

#[derive(Clone)]
pub(super) struct KernelInputs {
    pub(super) query: CubeTensor,
    pub(super) key: CubeTensor,
    pub(super) value: CubeTensor,
    pub(super) mask: Option<CubeTensor>,
    pub(super) bias: Option<CubeTensor>,
}

/// Saved results of the forward pass and output gradients.
#[derive(Clone)]
pub(super) struct BackwardInputs {
    pub(super) context: CubeTensor,
    pub(super) stats: CubeTensor,
    pub(super) d_context: CubeTensor,
    pub(super) d_log_sum_exp: Option<CubeTensor>,
}

/// Launches a kernel over the tiles of a plan. `blocks` has the widths of the results that its
/// units accumulate in blocks of columns.
macro_rules! launch_over_tiles {
    (
        $kernel:ident($args:ident, $plan:ident, $settings:ident, $layout:ident),
        heads: $heads:expr,
        tensors: [$($tensor:expr),+],
        blocks: [$($width:expr),+],
    ) => {
        // SAFETY: the kernel accesses the tensors within the sizes passed in `call`.
        unsafe {
            $kernel::launch_unchecked(
                &$args.client,
                cube_count([$plan.plan.rows, $heads, $settings.shape.batch]),
                CubeDim::new_1d($layout.units() as u32),
                $args.vector_width,
                $args.kernel_args($settings, &$plan, $layout),
                $(buffer($tensor),)+
                $($layout.blocks($width),)+
                $args.elem(),
                $args.mask_elem(),
            );
        }
    };
}

/// Launches a kernel of [`mma`] over the tiles of a plan.
macro_rules! launch_mma {
    (
        mma::$kernel:ident($args:ident, $plan:ident, $settings:ident, $layout:ident),
        heads: $heads:expr,
        tensors: [$($tensor:expr),+],
    ) => {
        // SAFETY: the kernel accesses the tensors within the sizes passed in `call`.
        unsafe {
            mma::$kernel::$kernel::launch_unchecked(
                &$args.client,
                cube_count([$plan.plan.rows, $heads, $settings.shape.batch]),
                CubeDim::new_1d($layout.units() as u32),
                // Rows are copied in vectors, but `ldmatrix` takes elements.
                1,
                $args.mma_args($settings, &$plan, $layout),
                $(buffer($tensor),)+
                $args.elem(),
            );
        }
    };
}

/// The forward pass, or the backward pass if there are saved tensors.
///
/// Returns context, log-sum-exp and softmax statistics, or the gradients of query, key and value.
pub(super) fn launch(
    inputs: KernelInputs,
    saved: Option<BackwardInputs>,
    settings: &TiledSettings,
    layout: KernelLayout,
) -> [CubeTensor; 3] {
    match saved {
        None => launch_forward(inputs, settings, layout),
        Some(saved) => launch_backward(inputs, saved, settings, layout),
    }
}

fn launch_forward(
    inputs: KernelInputs,
    settings: &TiledSettings,
    layout: KernelLayout,
) -> [CubeTensor; 3] {
    let shape = &settings.shape;
    let args = LaunchArgs::new(inputs, None, settings, layout);
    let plan = args.plan(settings, layout.tile(), RowAxis::Queries);
    let result = |width, dtype| args.empty([shape.batch, shape.heads, shape.seq_q, width], dtype);
    let context = result(shape.d_value, args.query.dtype);
    let log_sum_exp = result(1, DType::F32);
    let stats = result(2, DType::F32);
    match layout {
        KernelLayout::Units(layout) => launch_over_tiles!(
            forward(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&context, &log_sum_exp, &stats],
            blocks: [shape.d_value],
        ),
        KernelLayout::Mma(layout) => launch_mma!(
            mma::forward(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&context, &log_sum_exp, &stats],
        ),
    }
    [context, log_sum_exp, stats]
}

fn launch_backward(
    inputs: KernelInputs,
    saved: BackwardInputs,
    settings: &TiledSettings,
    layout: KernelLayout,
) -> [CubeTensor; 3] {
    let shape = &settings.shape;
    let args = LaunchArgs::new(inputs, Some(saved.d_context), settings, layout);
    let context = into_contiguous(saved.context);
    let stats = into_contiguous(saved.stats);
    let d_log_sum_exp = saved.d_log_sum_exp.map(into_contiguous);

    let query_layout = match layout {
        KernelLayout::Units(_) => layout,
        KernelLayout::Mma(layout) => KernelLayout::Mma(layout.with_query_gradient()),
    };
    let plan = args.plan(settings, query_layout.tile(), RowAxis::Queries);
    let deltas = deltas(
        &context,
        &args.d_context,
        d_log_sum_exp.as_ref(),
        args.vector_width,
    );

    let grad = |tensor: &CubeTensor| args.empty(tensor.meta.shape().dims(), tensor.dtype);
    let d_query = grad(&args.query);
    match query_layout {
        KernelLayout::Units(layout) => launch_over_tiles!(
            backward_queries(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&args.d_context, &stats, &deltas, &d_query],
            blocks: [shape.d_head],
        ),
        KernelLayout::Mma(layout) => launch_mma!(
            mma::backward_queries(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&args.d_context, &stats, &deltas, &d_query],
        ),
    }

    let plan = args.plan(settings, layout.tile(), RowAxis::Keys);
    let [d_key, d_value] = [grad(&args.key), grad(&args.value)];
    match layout {
        KernelLayout::Units(layout) => launch_over_tiles!(
            backward_keys(args, plan, settings, layout),
            heads: shape.kv_heads,
            tensors: [&args.d_context, &stats, &deltas, &d_key, &d_value],
            blocks: [shape.d_head, shape.d_value],
        ),
        KernelLayout::Mma(layout) => launch_mma!(
            mma::backward_keys(args, plan, settings, layout),
            heads: shape.kv_heads,
            tensors: [&args.d_context, &stats, &deltas, &d_key, &d_value],
        ),
    }
    [d_query, d_key, d_value]
}

/// The tensors of a call, with contiguous rows.
struct LaunchArgs {
    client: Client,
    query: CubeTensor,
    key: CubeTensor,
    value: CubeTensor,
    /// The query in the forward pass, where it is not read.
    d_context: CubeTensor,
    mask: Option<CubeTensor>,
    bias: Option<CubeTensor>,
    table: Option<Handle>,
    /// Elements per load: 4 if all rows are aligned, else 1.
    vector_width: usize,
}

impl LaunchArgs {
    fn new(
        inputs: KernelInputs,
        d_context: Option<CubeTensor>,
        settings: &TiledSettings,
        layout: KernelLayout,
    ) -> Self {
        let client = inputs.query.client.clone();
        let with_rows = |tensor: CubeTensor| match layout {
            KernelLayout::Mma(layout) if !has_aligned_rows(&tensor, layout.ty().vec()) => {
                into_contiguous(tensor)
            }
            _ => into_contiguous_rows(tensor),
        };
        let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(with_rows);
        let d_context = d_context.map_or_else(|| query.clone(), with_rows);
        let shape = &settings.shape;
        let tensors = [&query, &key, &value, &d_context];
        let is_aligned = shape.d_head.is_multiple_of(4)
            && shape.d_value.is_multiple_of(4)
            && tensors
                .into_iter()
                .all(|tensor| has_aligned_rows(tensor, 4));
        let table = table(settings).map(|table| client.create_from_slice(u32::as_bytes(&table)));
        Self {
            query,
            key,
            value,
            d_context,
            mask: inputs.mask,
            bias: inputs.bias,
            table,
            vector_width: if is_aligned { 4 } else { 1 },
            client,
        }
    }

    fn empty(&self, dims: [usize; 4], dtype: DType) -> CubeTensor {
        empty_like(&self.query, dims, dtype)
    }

    fn elem(&self) -> ElemType {
        dtype_to_storage_type(self.query.dtype)
    }

    fn call(&self, settings: &TiledSettings, plan: &DevicePlan) -> CallLaunch {
        let shape = &settings.shape;
        let dropout = settings.dropout;
        CallLaunch::new(
            shape.heads as u32,
            shape.group() as u32,
            shape.seq_q as u32,
            shape.seq_k as u32,
            shape.d_head as u32,
            shape.d_value as u32,
            TensorStridesLaunch::from_tensor(&self.query),
            TensorStridesLaunch::from_tensor(&self.key),
            TensorStridesLaunch::from_tensor(&self.value),
            TensorStridesLaunch::from_tensor(&self.d_context),
            settings.scale as f32,
            settings.softcap.unwrap_or(0.0) as f32,
            u32::from(settings.alibi.is_some()),
            u32::from(self.bias.is_some()),
            BroadcastStridesLaunch::from_tensor(self.bias.as_ref()),
            u32::from(self.mask.is_some()),
            BroadcastStridesLaunch::from_tensor(self.mask.as_ref()),
            dropout.map_or(0, |dropout| dropout.threshold()),
            dropout.map_or(1.0, |dropout| dropout.factor()),
            plan.rows as u32,
            plan.example_stride,
            plan.runs_offset,
            plan.bitmaps_offset,
        )
    }

    fn kernel_args<E: Float, N: Size, M: Numeric>(
        &self,
        settings: &TiledSettings,
        plan: &UploadedPlan,
        layout: Layout,
    ) -> KernelArgsLaunch<E, N, M> {
        // Also passed for missing inputs, which are not read.
        let plan_buffer = || word_buffer(&plan.handle);
        let [mask, bias] =
            [&self.mask, &self.bias].map(|tensor| tensor.as_ref().map_or_else(plan_buffer, buffer));
        let is_plain = self.mask.is_none()
            && self.bias.is_none()
            && self.table.is_none()
            && settings.softcap.is_none();
        KernelArgsLaunch::new(
            buffer(&self.query),
            buffer(&self.key),
            buffer(&self.value),
            plan_buffer(),
            self.table.as_ref().map_or_else(plan_buffer, word_buffer),
            mask,
            bias,
            self.call(settings, &plan.plan),
            is_plain,
            layout,
        )
    }

    fn mma_args<E: Float, N: Size>(
        &self,
        settings: &TiledSettings,
        plan: &UploadedPlan,
        layout: MmaLayout,
    ) -> MmaArgsLaunch<E, N> {
        MmaArgsLaunch::new(
            buffer(&self.query),
            buffer(&self.key),
            buffer(&self.value),
            word_buffer(&plan.handle),
            self.call(settings, &plan.plan),
            layout,
        )
    }

    fn mask_elem(&self) -> ElemType {
        let mask = self.mask.as_ref();
        mask.map_or(ElemType::UInt(UIntKind::U32), |mask| {
            dtype_to_storage_type(mask.dtype)
        })
    }

    fn plan(&self, settings: &TiledSettings, tile: [usize; 2], row_axis: RowAxis) -> UploadedPlan {
        let key = PlanKey::new(settings, tile, row_axis);
        let plan = key.device_plan(&settings.shape);
        let device = format!("{:?}", self.query.device);
        let handle = UPLOADED_PLANS.get((key, device), |_| {
            self.client.create_from_slice(u32::as_bytes(&plan.words))
        });
        UploadedPlan {
            handle: Handle::clone(&handle),
            plan,
        }
    }
}

struct UploadedPlan {
    handle: Handle,
    plan: std::sync::Arc<DevicePlan>,
}

/// Plans in device memory. A model uses the same few in every layer and step.
static UPLOADED_PLANS: Memo<(PlanKey, String), Handle> = Memo::new();
