//! Kernel launches.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::additive::backward_queries_additive;
use super::backward_keys::backward_keys;
use super::backward_queries::backward_queries;
use super::bias_gradient::{self, backward_bias};
use super::cooperative;
use super::device_plan::RowAxis;
use super::forward::forward;
use super::hard::{VALUE_UNITS, backward_values_hard, forward_hard, keys_per_cube};
use super::head_parts::{num_parts, sum_parts};
use super::launch_args::LaunchArgs;
use super::layout::KernelLayout;
use super::mma;
use super::program::{HARD_STATS, KernelProgram};
use super::splits::merge_splits;
use crate::cube::delta::deltas;
use crate::cube::launch::{buffer, cube_count};
use crate::flash::call::TiledSettings;

#[derive(Clone)]
pub(super) struct KernelInputs {
    pub(super) query: CubeTensor,
    pub(super) key: CubeTensor,
    pub(super) value: CubeTensor,
    pub(super) mask: Option<CubeTensor>,
    pub(super) bias: Option<CubeTensor>,
    /// The parameter of the program.
    pub(super) parameter: Option<CubeTensor>,
}

/// Saved results of the forward pass and output gradients.
#[derive(Clone)]
pub(super) struct BackwardInputs {
    pub(super) context: CubeTensor,
    pub(super) stats: CubeTensor,
    pub(super) d_context: CubeTensor,
    pub(super) d_log_sum_exp: Option<CubeTensor>,
    pub(super) needs_bias_grad: bool,
}

/// Launches a kernel over the tiles of a plan. `blocks` has the widths of the results that its
/// units accumulate in blocks of columns.
macro_rules! launch_over_tiles {
    (
        $kernel:ident($args:ident, $plan:ident, $settings:ident, $layout:ident),
        heads: $heads:expr,
        tensors: [$($tensor:expr),+],
        blocks: [$($width:expr),*],
        $(context: $context:expr,)?
    ) => {
        launch_over_tiles!(
            $kernel($args, $plan, $settings, $layout),
            cubes: [$plan.plan.rows, $heads, $settings.shape.batch],
            tensors: [$($tensor),+],
            blocks: [$($width),*],
            $(context: $context,)?
        )
    };
    (
        $kernel:ident($args:ident, $plan:ident, $settings:ident, $layout:ident),
        cubes: $cubes:expr,
        tensors: [$($tensor:expr),+],
        $(grid: $grid:expr,)?
        blocks: [$($width:expr),*],
        $(context: $context:expr,)?
    ) => {
        // SAFETY: the kernel accesses the tensors within the sizes passed in `call`.
        unsafe {
            $kernel::launch_unchecked(
                &$args.client,
                cube_count($cubes),
                CubeDim::new_1d($layout.units() as u32),
                $args.vector_width,
                $args.kernel_args($settings, &$plan, $layout),
                $(buffer($tensor),)+
                $($grid,)?
                $($layout.blocks($width),)*
                $args.elem(),
                $args.mask_elem(),
                $(dtype_to_storage_type($context.dtype),)?
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
        $(context: $context:expr,)?
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
                $(dtype_to_storage_type($context.dtype),)?
            );
        }
    };
}

/// Launches a kernel of [`cooperative`] over the tiles of a plan.
macro_rules! launch_cooperative {
    (
        cooperative::$kernel:ident($args:ident, $plan:ident, $settings:ident, $layout:ident),
        heads: $heads:expr,
        tensors: [$($tensor:expr),+],
    ) => {
        // SAFETY: the kernel accesses the tensors within the sizes passed in `call`.
        unsafe {
            cooperative::$kernel::$kernel::launch_unchecked(
                &$args.client,
                cube_count([$plan.plan.rows, $heads, $settings.shape.batch]),
                CubeDim::new_1d($layout.units() as u32),
                $args.cooperative_args($settings, &$plan, $layout),
                $(buffer($tensor),)+
                $layout.operand_elem(),
            );
        }
    };
}

/// The forward pass, or the backward pass if there are saved tensors.
///
/// Returns context, log-sum-exp and softmax statistics, or the gradients of query, key and value, and
/// the [partial sums](bias_gradient) of the bias's gradient if it was requested. Last, the terms of
/// each query in the gradient of the parameter, if there is one.
pub(super) fn launch(
    inputs: KernelInputs,
    saved: Option<BackwardInputs>,
    settings: &TiledSettings,
    layout: KernelLayout,
) -> Vec<CubeTensor> {
    match saved {
        None => launch_forward(inputs, settings, layout).into(),
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
    let plan = match layout {
        KernelLayout::Units(_) | KernelLayout::Mma(_) => args.forward_plan(settings, layout.tile()),
        KernelLayout::Cooperative(_) => args.plan(settings, layout.tile(), RowAxis::Queries),
    };
    let splits = plan.plan.splits;
    let result = |width, dtype| {
        args.empty(
            [shape.batch, shape.heads * splits, shape.seq_q, width],
            dtype,
        )
    };
    // The parts of a row are not rounded before they are added.
    let context_dtype = if splits > 1 {
        DType::F32
    } else {
        args.query.dtype
    };
    let context = result(shape.d_value, context_dtype);
    let log_sum_exp = result(1, DType::F32);
    let stats = result(args.program.stats_width(settings), DType::F32);
    match layout {
        KernelLayout::Units(layout) if args.program.is_hard() => launch_over_tiles!(
            forward_hard(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&context, &log_sum_exp, &stats],
            // The soft context is part of the statistics, if it is saved.
            blocks: [shape.d_value, args.program.stats_width(settings) - HARD_STATS],
        ),
        KernelLayout::Units(layout) => launch_over_tiles!(
            forward(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&context, &log_sum_exp, &stats],
            blocks: [shape.d_value],
            context: context,
        ),
        KernelLayout::Mma(layout) => launch_mma!(
            mma::forward(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&context, &log_sum_exp, &stats],
            context: context,
        ),
        KernelLayout::Cooperative(layout) => launch_cooperative!(
            cooperative::forward(args, plan, settings, layout),
            heads: shape.heads,
            tensors: [&context, &log_sum_exp, &stats],
        ),
    }
    if splits > 1 {
        return merge_splits(&context, &stats, splits, args.query.dtype);
    }
    [context, log_sum_exp, stats]
}

fn launch_backward(
    inputs: KernelInputs,
    saved: BackwardInputs,
    settings: &TiledSettings,
    layout: KernelLayout,
) -> Vec<CubeTensor> {
    let shape = &settings.shape;
    let args = LaunchArgs::new(inputs, Some(saved.d_context), settings, layout);
    let context = into_contiguous(saved.context);
    let stats = into_contiguous(saved.stats);
    let d_log_sum_exp = saved.d_log_sum_exp.map(into_contiguous);

    let query_layout = match layout {
        KernelLayout::Units(_) => layout,
        KernelLayout::Mma(layout) => KernelLayout::Mma(layout.with_query_gradient()),
        KernelLayout::Cooperative(layout) => {
            KernelLayout::Cooperative(layout.with_query_gradient())
        }
    };
    let plan = args.plan(settings, query_layout.tile(), RowAxis::Queries);
    // The context of the soft weights, for sampled keys.
    let (context, first_column) = match args.program {
        KernelProgram::Sampled => (&stats, HARD_STATS),
        KernelProgram::Softmax
        | KernelProgram::Additive
        | KernelProgram::Sigmoid
        | KernelProgram::Best => (&context, 0),
    };
    let deltas = deltas(
        context,
        first_column,
        &args.d_context,
        d_log_sum_exp.as_ref(),
        args.vector_width,
    );

    let grad = |tensor: &CubeTensor| args.empty(tensor.meta.shape().dims(), tensor.dtype);
    let mut d_parameter = None;
    let d_query = match (args.program, query_layout) {
        // Only the values have a gradient.
        (KernelProgram::Best, _) => args.zeros_like(&args.query),
        (KernelProgram::Additive, KernelLayout::Units(layout)) => {
            let d_query = grad(&args.query);
            let d_vector = grad(&args.query);
            launch_over_tiles!(
                backward_queries_additive(args, plan, settings, layout),
                heads: shape.heads,
                tensors: [&args.d_context, &stats, &deltas, &d_query, &d_vector],
                blocks: [shape.d_head],
            );
            d_parameter = Some(d_vector);
            d_query
        }
        (_, KernelLayout::Units(layout)) => {
            let d_query = grad(&args.query);
            launch_over_tiles!(
                backward_queries(args, plan, settings, layout),
                heads: shape.heads,
                tensors: [&args.d_context, &stats, &deltas, &d_query],
                blocks: [shape.d_head],
            );
            d_query
        }
        (_, KernelLayout::Mma(layout)) => {
            let d_query = grad(&args.query);
            launch_mma!(
                mma::backward_queries(args, plan, settings, layout),
                heads: shape.heads,
                tensors: [&args.d_context, &stats, &deltas, &d_query],
            );
            d_query
        }
        (_, KernelLayout::Cooperative(layout)) => {
            let d_query = grad(&args.query);
            launch_cooperative!(
                cooperative::backward_queries(args, plan, settings, layout),
                heads: shape.heads,
                tensors: [&args.d_context, &stats, &deltas, &d_query],
            );
            d_query
        }
    };
    let d_bias = match (&args.bias, layout) {
        (Some(bias), KernelLayout::Units(layout)) if saved.needs_bias_grad => {
            let dims = bias.meta.shape().dims();
            let d_bias = args.empty(bias_gradient::partial_dims(dims, settings), DType::F32);
            let layout = bias_gradient::layout(layout, settings);
            let plan = args.plan(settings, layout.tile(), RowAxis::Queries);
            let (grid, cubes) = bias_gradient::grid(dims, settings, layout);
            launch_over_tiles!(
                backward_bias(args, plan, settings, layout),
                cubes: cubes,
                tensors: [&args.d_context, &stats, &deltas, &d_bias],
                grid: grid,
                blocks: [],
            );
            Some(d_bias)
        }
        _ => None,
    };

    let plan_of_keys = args.plan(settings, layout.tile(), RowAxis::Keys);
    let cubes = plan_of_keys.plan.rows * shape.kv_heads * shape.batch;
    // The values of hard attention have a kernel of their own.
    let parts = if args.program.is_hard() {
        1
    } else {
        num_parts(&args.client, cubes, shape.group())
    };
    let parts_of = |tensor: &CubeTensor| {
        let [batch, heads, seq_k, width] = tensor.meta.shape().dims();
        args.empty([batch, heads * parts, seq_k, width], tensor.dtype)
    };
    let d_value = parts_of(&args.value);
    if let (true, KernelLayout::Units(layout)) = (args.program.is_hard(), layout) {
        let keys = keys_per_cube(shape.d_value);
        // SAFETY: as in `launch_over_tiles`.
        unsafe {
            backward_values_hard::launch_unchecked(
                &args.client,
                cube_count([shape.seq_k.div_ceil(keys), shape.kv_heads, shape.batch]),
                CubeDim::new_1d(VALUE_UNITS as u32),
                args.vector_width,
                args.kernel_args(settings, &plan, layout),
                buffer(&args.d_context),
                buffer(&stats),
                buffer(&d_value),
                keys,
                shape.d_value.div_ceil(4),
                args.elem(),
                args.mask_elem(),
            );
        }
    }
    let plan = plan_of_keys;
    let d_key = match (args.program, layout) {
        (KernelProgram::Best, _) => args.zeros_like(&args.key),
        (_, KernelLayout::Units(layout)) => {
            let d_key = parts_of(&args.key);
            launch_over_tiles!(
                backward_keys(args, plan, settings, layout),
                heads: shape.kv_heads * parts,
                tensors: [&args.d_context, &stats, &deltas, &d_key, &d_value],
                blocks: [shape.d_head, shape.d_value],
            );
            d_key
        }
        (_, KernelLayout::Mma(layout)) => {
            let d_key = parts_of(&args.key);
            launch_mma!(
                mma::backward_keys(args, plan, settings, layout),
                heads: shape.kv_heads * parts,
                tensors: [&args.d_context, &stats, &deltas, &d_key, &d_value],
            );
            d_key
        }
        (_, KernelLayout::Cooperative(layout)) => {
            let d_key = parts_of(&args.key);
            launch_cooperative!(
                cooperative::backward_keys(args, plan, settings, layout),
                heads: shape.kv_heads * parts,
                tensors: [&args.d_context, &stats, &deltas, &d_key, &d_value],
            );
            d_key
        }
    };
    let [d_key, d_value] = [d_key, d_value].map(|gradients| sum_parts(gradients, parts));
    [d_query, d_key, d_value]
        .into_iter()
        .chain(d_bias)
        .chain(d_parameter)
        .collect()
}
