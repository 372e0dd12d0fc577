//! Launches the kernels on tensors of the device.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::{ElemType, UIntKind};
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::backward_keys::backward_keys;
use super::backward_queries::backward_queries;
use super::call::{CallLaunch, More, table};
use super::device_plan::{PlanWords, Rowwise, Wanted};
use super::forward::forward;
use super::layout::Layout;
use super::mean::means_of_rows;
use crate::flash::call::TiledSettings;
use crate::kept::Kept;

/// Query, key and value, and what else a call may have.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) query: CubeTensor,
    pub(super) key: CubeTensor,
    pub(super) value: CubeTensor,
    pub(super) mask: Option<CubeTensor>,
    pub(super) bias: Option<CubeTensor>,
}

/// What the backward pass has besides.
#[derive(Clone)]
pub(super) struct GivenBack {
    pub(super) context: CubeTensor,
    pub(super) stats: CubeTensor,
    pub(super) d_context: CubeTensor,
    pub(super) d_log_sum_exp: Option<CubeTensor>,
}

/// Units of a cube that computes means.
const MEANS: u32 = 64;

/// Launches a kernel over the tiles of a plan: the tensors that it reads and writes, and the widths
/// of the results that its units hold in blocks.
macro_rules! launch_over_tiles {
    (
        $kernel:ident($ready:ident, $plan:ident, $settings:ident, $layout:ident),
        heads: $heads:expr,
        reads: [$($input:expr),+],
        writes: [$($output:expr),+],
        blocks: [$($width:expr),+],
    ) => {{
        let (mask, mask_type) = $ready.mask(&$plan);
        // SAFETY: the kernel reads and writes within the tensors, whose sizes the call tells.
        unsafe {
            $kernel::launch_unchecked(
                &$ready.client,
                count([$plan.words.rows, $heads, $settings.shape.batch]),
                CubeDim::new_1d($layout.units() as u32),
                $ready.width,
                $(buffer($input),)+
                $plan.buffer(),
                $ready.table(&$plan),
                mask,
                $ready.bias(&$plan),
                $(buffer($output),)+
                $ready.call($settings, &$plan.words),
                $layout,
                $($layout.blocks($width),)+
                $ready.is_plain($settings),
                $ready.numbers(),
                mask_type,
            );
        }
    }};
}

/// Context, log-sum-exp and softmax statistics.
pub(super) fn launch_forward(
    given: Given,
    settings: &TiledSettings,
    layout: Layout,
) -> [CubeTensor; 3] {
    let shape = &settings.shape;
    let ready = Ready::new(given, None, settings);
    let plan = ready.plan(settings, layout, Rowwise::Queries);
    let context = ready.empty([shape.batch, shape.heads, shape.seq_q, shape.d_value]);
    let log_sum_exp = ready.empty_wide([shape.batch, shape.heads, shape.seq_q, 1]);
    let stats = ready.empty_wide([shape.batch, shape.heads, shape.seq_q, 2]);
    launch_over_tiles!(
        forward(ready, plan, settings, layout),
        heads: shape.heads,
        reads: [&ready.query, &ready.key, &ready.value],
        writes: [&context, &log_sum_exp, &stats],
        blocks: [shape.d_value],
    );
    [context, log_sum_exp, stats]
}

/// The gradients by query, key and value.
pub(super) fn launch_backward(
    given: Given,
    back: GivenBack,
    settings: &TiledSettings,
    layout: Layout,
) -> [CubeTensor; 3] {
    let shape = &settings.shape;
    let ready = Ready::new(given, Some(back.d_context), settings);
    let context = into_contiguous(back.context);
    let stats = into_contiguous(back.stats);
    let d_log_sum_exp = back.d_log_sum_exp.map(into_contiguous);

    let plan = ready.plan(settings, layout, Rowwise::Queries);
    let means = ready.empty_wide([shape.batch, shape.heads, shape.seq_q, 1]);
    // SAFETY: as in `launch_over_tiles`.
    unsafe {
        means_of_rows::launch_unchecked(
            &ready.client,
            count([
                shape.seq_q.div_ceil(MEANS as usize),
                shape.heads,
                shape.batch,
            ]),
            CubeDim::new_1d(MEANS),
            ready.width,
            buffer(&context),
            buffer(&ready.d_context),
            buffer(d_log_sum_exp.as_ref().unwrap_or(&stats)),
            buffer(&means),
            ready.call(settings, &plan.words),
            u32::from(d_log_sum_exp.is_some()),
            ready.numbers(),
        );
    }

    let d_query = ready.empty([shape.batch, shape.heads, shape.seq_q, shape.d_head]);
    launch_over_tiles!(
        backward_queries(ready, plan, settings, layout),
        heads: shape.heads,
        reads: [&ready.query, &ready.key, &ready.value, &ready.d_context, &stats, &means],
        writes: [&d_query],
        blocks: [shape.d_head],
    );

    let plan = ready.plan(settings, layout, Rowwise::Keys);
    let d_key = ready.empty([shape.batch, shape.kv_heads, shape.seq_k, shape.d_head]);
    let d_value = ready.empty([shape.batch, shape.kv_heads, shape.seq_k, shape.d_value]);
    launch_over_tiles!(
        backward_keys(ready, plan, settings, layout),
        heads: shape.kv_heads,
        reads: [&ready.query, &ready.key, &ready.value, &ready.d_context, &stats, &means],
        writes: [&d_key, &d_value],
        blocks: [shape.d_head, shape.d_value],
    );
    [d_query, d_key, d_value]
}

/// Which plan of a call a kernel goes by.
pub(super) fn wanted(settings: &TiledSettings, layout: Layout, rowwise: Rowwise) -> Wanted {
    Wanted::new(&settings.rule, &settings.shape, layout, rowwise)
}

/// The tensors of a call as the kernels can read them.
struct Ready {
    client: Client,
    query: CubeTensor,
    key: CubeTensor,
    value: CubeTensor,
    /// The query again, in the forward pass.
    d_context: CubeTensor,
    mask: Option<CubeTensor>,
    bias: Option<CubeTensor>,
    table: Option<Handle>,
    /// Numbers read at a time.
    width: usize,
}

impl Ready {
    fn new(given: Given, d_context: Option<CubeTensor>, settings: &TiledSettings) -> Self {
        let client = given.query.client.clone();
        let [query, key, value] = [given.query, given.key, given.value].map(in_rows);
        let d_context = d_context.map_or_else(|| query.clone(), in_rows);
        let shape = &settings.shape;
        let tensors = [&query, &key, &value, &d_context];
        let in_fours = shape.d_head.is_multiple_of(4)
            && shape.d_value.is_multiple_of(4)
            && tensors.into_iter().all(is_in_fours);
        let table = table(settings).map(|table| client.create_from_slice(u32::as_bytes(&table)));
        Self {
            query,
            key,
            value,
            d_context,
            mask: given.mask,
            bias: given.bias,
            table,
            width: if in_fours { 4 } else { 1 },
            client,
        }
    }

    /// A tensor to be written, of such numbers as the call has.
    fn empty(&self, dims: [usize; 4]) -> CubeTensor {
        self.empty_of(dims, self.query.dtype)
    }

    /// A tensor to be written, in `f32`.
    fn empty_wide(&self, dims: [usize; 4]) -> CubeTensor {
        self.empty_of(dims, DType::F32)
    }

    fn empty_of(&self, dims: [usize; 4], dtype: DType) -> CubeTensor {
        let shape = Shape::from(dims);
        let bytes = shape.num_elements() * dtype.size();
        CubeTensor::new_contiguous(
            self.client.clone(),
            self.query.device.clone(),
            shape,
            self.client.empty(bytes),
            dtype,
        )
    }

    fn numbers(&self) -> ElemType {
        dtype_to_storage_type(self.query.dtype)
    }

    fn more(&self) -> More<'_> {
        More {
            mask: self.mask.as_ref(),
            bias: self.bias.as_ref(),
        }
    }

    fn call(&self, settings: &TiledSettings, plan: &PlanWords) -> CallLaunch {
        let tensors = [&self.query, &self.key, &self.value, &self.d_context];
        CallLaunch::of(settings, tensors, self.more(), plan)
    }

    /// Whether a score is the product alone, for those who see each other.
    fn is_plain(&self, settings: &TiledSettings) -> bool {
        let has_more = self.mask.is_some() || self.bias.is_some() || self.table.is_some();
        !has_more && settings.softcap.is_none()
    }

    fn plan(&self, settings: &TiledSettings, layout: Layout, rowwise: Rowwise) -> Plan {
        let wanted = wanted(settings, layout, rowwise);
        let words = wanted.words(&settings.shape);
        let device = format!("{:?}", self.query.device);
        let handle = KEPT.get((wanted, device), |_| {
            self.client.create_from_slice(u32::as_bytes(&words.words))
        });
        Plan {
            handle: Handle::clone(&handle),
            words,
        }
    }

    // What there is not has no buffer; the plan stands in, and is not read.

    fn mask(&self, plan: &Plan) -> (BufferArg, ElemType) {
        match &self.mask {
            Some(mask) => (buffer(mask), dtype_to_storage_type(mask.dtype)),
            None => (plan.buffer(), ElemType::UInt(UIntKind::U32)),
        }
    }

    fn bias(&self, plan: &Plan) -> BufferArg {
        self.bias.as_ref().map_or_else(|| plan.buffer(), buffer)
    }

    fn table(&self, plan: &Plan) -> BufferArg {
        match &self.table {
            Some(table) => words(table),
            None => plan.buffer(),
        }
    }
}

struct Plan {
    handle: Handle,
    words: std::sync::Arc<PlanWords>,
}

/// Plans on devices, made before: a model asks for the same few in every layer and step.
static KEPT: Kept<(Wanted, String), Handle> = Kept::new();

impl Plan {
    fn buffer(&self) -> BufferArg {
        words(&self.handle)
    }
}

fn words(handle: &Handle) -> BufferArg {
    let length = handle.size() as usize / size_of::<u32>();
    // SAFETY: it is as long as it says.
    unsafe { BufferArg::from_raw_parts(handle.clone(), length) }
}

fn buffer(tensor: &CubeTensor) -> BufferArg {
    let length = tensor.handle.size() as usize / tensor.dtype.size();
    // SAFETY: it is as long as it says.
    unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), length) }
}

fn count([x, y, z]: [usize; 3]) -> CubeCount {
    CubeCount::Static(x as u32, y as u32, z as u32)
}

/// A tensor whose rows are rows: neighbours in one are neighbours in memory.
fn in_rows(tensor: CubeTensor) -> CubeTensor {
    let is_in_rows =
        !tensor.meta.is_tiled() && (tensor.meta.strides()[3] == 1 || tensor.meta.shape()[3] == 1);
    if is_in_rows {
        tensor
    } else {
        into_contiguous(tensor)
    }
}

/// Whether every row begins at a multiple of four numbers.
fn is_in_fours(tensor: &CubeTensor) -> bool {
    let at = tensor.handle.offset_start.unwrap_or(0);
    let strides = tensor.meta.strides();
    at.is_multiple_of(4 * tensor.dtype.size() as u64)
        && (0..3).all(|dim| strides[dim].is_multiple_of(4))
}
