//! A gather plan on a device.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use burn::backend::libtorch::TchTensor;
use tch::{Device, Kind, Tensor};

use super::super::efficient::MASKED_BIAS;
use crate::AttentionShape;
use crate::flash::call::TiledSettings;
use crate::memo::Memo;
use crate::pattern::Examples;
use crate::pattern::gather::{GatherPlan, GatheredRows, MAX_QUERIES};
use crate::pattern::rule::Rule;

/// Elements of gathered keys and values, and of a bias, in one call: 256 MiB.
const MAX_ELEMENTS: usize = 1 << 26;

/// Keys in all rows of a plan, whose indices and masks are cached: 512 MiB.
const MAX_PLANNED_KEYS: f64 = 3.2e7;

/// Whether a call can be computed with gathered keys.
pub(in super::super) fn is_supported(settings: &TiledSettings) -> bool {
    let shape = &settings.shape;
    match &settings.gather {
        // The bias of a call has the slopes of all its heads.
        Some(plan) => settings.alibi.is_none() || plan.heads().len() <= shape.batch,
        None => {
            let plan = settings.plan([MAX_QUERIES, MAX_QUERIES], Examples::Each);
            let examples = settings.rule.num_distinct_examples(shape);
            let rows = (examples * plan.rows()) as f64;
            rows * shape.seq_k as f64 * plan.density() <= MAX_PLANNED_KEYS
        }
    }
}

/// How the heads of a call are arranged: `[instances · seq, heads, d]`, where an instance has rows of
/// its own, which all `heads` share. The query heads that share a key head follow each other in the
/// first dimension.
#[derive(Debug)]
pub(super) struct Layout {
    /// 1, or the number of examples, or of examples and heads.
    instances: i64,
    /// Query heads that share a key head and the rows of an instance.
    pub(super) group: i64,
    /// Key heads with the same rows.
    pub(super) heads: i64,
    seq: [i64; 2],
    /// Instances that share a key head.
    key_instances: i64,
}

impl Layout {
    fn new(instances: usize, shape: &AttentionShape) -> Self {
        let is_per_head = instances > shape.batch;
        let key_heads = shape.batch * shape.kv_heads;
        let [group, heads, key_instances] = match is_per_head {
            true => [1, 1, key_heads],
            false => [shape.group(), key_heads / instances, instances],
        };
        Self {
            instances: instances as i64,
            group: group as i64,
            heads: heads as i64,
            seq: [shape.seq_q, shape.seq_k].map(|seq| seq as i64),
            key_instances: key_instances as i64,
        }
    }

    pub(super) fn num_queries(&self) -> i64 {
        self.instances * self.group * self.seq[0]
    }

    /// Query, key and value of all instances.
    pub(super) fn split_all(&self, [query, key, value]: &[Tensor; 3]) -> [Tensor; 3] {
        let [key, value] = [key, value].map(|tensor| {
            let size = [self.key_instances, self.heads, self.seq[1]];
            split(tensor, size)
        });
        [self.split_queries(query), key, value]
    }

    /// `[batch, heads, seq_q, d]` as `[instances · group · seq_q, heads, d]`.
    pub(super) fn split_queries(&self, tensor: &Tensor) -> Tensor {
        split(
            tensor,
            [self.instances, self.heads, self.group * self.seq[0]],
        )
    }

    /// The inverse of [`split_queries`](Self::split_queries).
    pub(super) fn join_queries(&self, tensor: &Tensor, shape: &AttentionShape) -> Tensor {
        let size = [self.instances, self.group * self.seq[0]];
        join(tensor, size, [shape.batch, shape.heads, shape.seq_q])
    }

    pub(super) fn join_keys(&self, tensor: &Tensor, shape: &AttentionShape) -> Tensor {
        let size = [self.key_instances, self.seq[1]];
        join(tensor, size, [shape.batch, shape.kv_heads, shape.seq_k])
    }

    /// The index of a query of an instance, for a head of its group.
    fn query(&self, instance: usize, head: i64, query: usize) -> i64 {
        (instance as i64 * self.group + head) * self.seq[0] + query as i64
    }

    /// The index of a key of an instance.
    fn key(&self, instance: usize, key: usize) -> i64 {
        let instance = instance as i64 * self.key_instances / self.instances;
        instance * self.seq[1] + key as i64
    }
}

/// A tensor viewed as `[instances, heads, rows, d]` as `[instances · rows, heads, d]`. Contiguous:
/// each row is read several times.
fn split(tensor: &Tensor, [instances, heads, rows]: [i64; 3]) -> Tensor {
    tensor
        .reshape([instances, heads, rows, -1])
        .transpose(1, 2)
        .reshape([instances * rows, heads, -1])
        .contiguous()
}

/// The inverse of [`split`], as `[batch, heads, seq, d]`.
fn join(tensor: &Tensor, [instances, rows]: [i64; 2], size: [usize; 3]) -> Tensor {
    let [batch, heads, seq] = size.map(|size| size as i64);
    let shape = tensor.size();
    tensor
        .reshape([instances, rows, shape[1], shape[2]])
        .transpose(1, 2)
        .reshape([batch, heads, seq, shape[2]])
}

/// The rows of all calls.
#[derive(Debug)]
pub(super) struct DevicePlan {
    pub(super) layout: Layout,
    pub(super) calls: Vec<RowCall>,
}

/// Rows that are one call of the kernel.
#[derive(Debug)]
pub(super) struct RowCall {
    pub(super) rows: i64,
    /// Consecutive rows that have the same queries, and different keys.
    splits: i64,
    /// Queries of a row, over all heads of a group.
    pub(super) num_queries: i64,
    /// Keys of a row.
    pub(super) num_keys: i64,
    /// Whether no earlier call has these queries.
    pub(super) is_first: bool,
    /// `[rows · queries]`: the index of each query. Padding repeats the first query of a row.
    queries: TchTensor,
    /// `[rows · keys]`: the index of each key. Padding repeats the keys of a row.
    keys: TchTensor,
    /// The slots of all rows in the order of their keys, without padding.
    order: TchTensor,
    /// Where the slots of each key start in `order`, and the end of the last.
    offsets: TchTensor,
    /// `[rows, keys]`: a bit for each query of a row; `None` if all pairs are visible.
    bits: Option<TchTensor>,
    /// The index of each query of the rows after merging them, without padding.
    targets: TchTensor,
    /// Which of the queries are not padding, if some are.
    slots: Option<TchTensor>,
    /// The bias of masked keys, if it is small.
    mask_bias: OnceLock<TchTensor>,
}

/// Elements of a bias that is cached: 16 MiB.
const MAX_CACHED_BIAS: i64 = 1 << 22;

impl RowCall {
    pub(super) fn queries(&self) -> &Tensor {
        &self.queries.tensor
    }

    pub(super) fn keys(&self) -> &Tensor {
        &self.keys.tensor
    }

    /// [`MASKED_BIAS`] for masked keys and zero for visible ones, `[rows, 1, group · queries, keys]`;
    /// `None` if all pairs are visible.
    pub(super) fn mask_bias(&self, group: i64) -> Option<Tensor> {
        let bits = &self.bits.as_ref()?.tensor;
        let per_head = self.num_queries / group;
        let compute = || {
            // The bit of each query.
            let shifts = Tensor::arange(per_head, (Kind::Int64, bits.device())).reshape([1, -1, 1]);
            let visible = bits
                .unsqueeze(1)
                .bitwise_right_shift(&shifts)
                .bitwise_and(1);
            let bias = (visible.to_kind(Kind::Float) - 1.0) * -MASKED_BIAS; // [rows, queries, keys]
            bias.unsqueeze(1)
                .expand([self.rows, group, per_head, self.num_keys], false)
                .reshape([self.rows, 1, self.num_queries, self.num_keys])
        };
        if self.rows * self.num_queries * self.num_keys > MAX_CACHED_BIAS {
            return Some(compute());
        }
        let bias = self.mask_bias.get_or_init(|| TchTensor::new(compute()));
        Some(bias.tensor.shallow_clone())
    }

    /// The queries without padding, each once.
    pub(super) fn targets(&self) -> &Tensor {
        &self.targets.tensor
    }

    /// The results of the [targets](Self::targets) from those of the rows, `[rows · queries, heads, _]`.
    pub(super) fn merge_rows(&self, [context, log_sum_exp]: [Tensor; 2]) -> [Tensor; 2] {
        let merged = match self.splits {
            1 => [context, log_sum_exp],
            splits => {
                let split = |tensor: Tensor| {
                    let size = tensor.size();
                    let slots = splits * self.num_queries;
                    tensor
                        .reshape([size[0] / slots, splits, self.num_queries, size[1], size[2]])
                        .unbind(1)
                };
                let log_sum_exps = split(log_sum_exp);
                let all = Tensor::stack(&log_sum_exps, 0).logsumexp(0, false);
                let parts = split(context).into_iter().zip(log_sum_exps);
                let weighted = parts.map(|(context, part)| context * (part - &all).exp());
                let sum = weighted.reduce(|sum, part| sum + part);
                [sum.expect("there are several rows"), all].map(|tensor| tensor.flatten(0, 1))
            }
        };
        match &self.slots {
            Some(slots) => merged.map(|tensor| tensor.index_select(0, &slots.tensor)),
            None => merged,
        }
    }

    /// The gradient of each [target](Self::targets), from those of the rows, `[rows, queries, heads, d]`.
    pub(super) fn sum_queries(&self, grads: &Tensor) -> Tensor {
        let size = grads.size();
        let sum = grads
            .reshape([-1, self.splits, self.num_queries, size[2], size[3]])
            .sum_dim_intlist(1, false, None::<Kind>)
            .flatten(0, 1);
        match &self.slots {
            Some(slots) => sum.index_select(0, &slots.tensor),
            None => sum,
        }
    }

    /// The gradient of each key, `[instances · seq_k, heads, d]`, from those of the rows,
    /// `[rows, keys, heads, d]`. Summed in the order of the rows.
    pub(super) fn sum_keys(&self, grads: &Tensor) -> Tensor {
        let size = grads.size();
        let sorted = grads
            .reshape([size[0] * size[1], size[2] * size[3]])
            .index_select(0, &self.order.tensor);
        let offsets = Some(&self.offsets.tensor);
        let sums = Tensor::segment_reduce(&sorted, "sum", None, None, offsets, 0, true, 0.0);
        sums.reshape([-1, size[2], size[3]])
    }

    /// The queries of a tensor, as the kernel's `[rows, queries, heads, d]`.
    pub(super) fn select_queries(&self, tensor: &Tensor) -> Tensor {
        select(tensor, self.queries(), [self.rows, self.num_queries])
    }

    /// The keys of a tensor, as the kernel's `[rows, keys, heads, d]`.
    pub(super) fn select_keys(&self, tensor: &Tensor) -> Tensor {
        select(tensor, self.keys(), [self.rows, self.num_keys])
    }
}

fn select(tensor: &Tensor, index: &Tensor, [rows, columns]: [i64; 2]) -> Tensor {
    let size = tensor.size();
    let selected = tensor.flatten(1, 2).index_select(0, index);
    selected.reshape([rows, columns, size[1], size[2]])
}

#[derive(PartialEq)]
struct PlanKey {
    rule: Arc<Rule>,
    gather: Option<Arc<GatherPlan>>,
    shape: AttentionShape,
    device: Device,
}

impl DevicePlan {
    /// The plan of a call, cached.
    pub(super) fn cached(settings: &TiledSettings, device: Device) -> Arc<Self> {
        static CACHE: Memo<PlanKey, DevicePlan> = Memo::new();
        let shape = &settings.shape;
        if let Some(plan) = &settings.gather
            && plan.heads().len() > shape.batch
        {
            return Self::while_used(plan, shape, device);
        }
        let key = PlanKey {
            rule: Arc::clone(&settings.rule),
            gather: settings.gather.clone(),
            shape: *shape,
            device,
        };
        CACHE.get(key, |key| match &key.gather {
            Some(plan) => Self::new(plan, shape, device),
            None => Self::new(&GatherPlan::from_rule(shape, &key.rule), shape, device),
        })
    }

    /// The plan of rows that depend on data, cached until the backward pass has used it.
    fn while_used(plan: &Arc<GatherPlan>, shape: &AttentionShape, device: Device) -> Arc<Self> {
        static LIVE: Mutex<Vec<(Weak<GatherPlan>, Arc<DevicePlan>)>> = Mutex::new(Vec::new());
        let lock = || LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |other: &Weak<GatherPlan>| other.as_ptr() == Arc::as_ptr(plan);
        if let Some((_, cached)) = lock().iter().find(|(other, _)| is_same(other)) {
            return Arc::clone(cached);
        }
        let new = Arc::new(Self::new(plan, shape, device));
        let mut live = lock();
        live.retain(|(plan, _)| plan.strong_count() > 0);
        live.push((Arc::downgrade(plan), Arc::clone(&new)));
        new
    }

    fn new(plan: &GatherPlan, shape: &AttentionShape, device: Device) -> Self {
        let layout = Layout::new(plan.heads().len(), shape);
        let passes = plan.heads().iter().map(|rows| rows.passes().count());
        let mut calls = Vec::new();
        for pass in 0..passes.max().unwrap_or(0) {
            for rows in buckets(rows_of_pass(plan.heads(), pass)) {
                let [first, ..] = rows.as_slice() else {
                    continue;
                };
                let splits = num_splits(rows.len() * layout.heads as usize, first.num_keys);
                let keys = first.num_keys.next_multiple_of(splits * KEY_STEP);
                let widths = shape.d_head + shape.d_value + layout.group as usize * MAX_QUERIES;
                let elements = keys * layout.heads as usize * widths;
                let count = (MAX_ELEMENTS / elements).clamp(1, u16::MAX as usize);
                for rows in rows.chunks(count) {
                    calls.push(layout.call(rows, keys, splits, pass == 0, device));
                }
            }
        }
        Self { layout, calls }
    }
}

/// The number of rows into which each row is split, so that few rows with many keys occupy a device:
/// those of global tokens.
fn num_splits(rows: usize, keys: usize) -> usize {
    BUSY.div_ceil(rows).min(keys / MIN_SPLIT_KEYS).max(1)
}

/// Rows that occupy a device.
const BUSY: usize = 256;

/// Keys of a row that is not split further.
const MIN_SPLIT_KEYS: usize = 256;

/// Keys of a row are padded to a multiple of this: rows of the bias are aligned.
const KEY_STEP: usize = 8;

/// A row of an instance.
#[derive(Clone, Copy)]
struct Row<'a> {
    rows: &'a GatheredRows,
    instance: usize,
    row: usize,
    num_keys: usize,
}

/// The rows of a pass that have keys.
fn rows_of_pass(heads: &[GatheredRows], pass: usize) -> Vec<Row<'_>> {
    let mut all = Vec::new();
    for (instance, rows) in heads.iter().enumerate() {
        for row in rows.passes().nth(pass).into_iter().flatten() {
            let num_keys = rows.tiles(row).map(|(keys, _)| keys.len()).sum();
            if num_keys > 0 {
                all.push(Row {
                    rows,
                    instance,
                    row,
                    num_keys,
                });
            }
        }
    }
    all
}

/// The rows in buckets, each with its longest row first and none below two thirds of its keys. The last
/// also has all shorter rows if they are few: their padding is cheaper than further calls.
fn buckets(mut rows: Vec<Row<'_>>) -> Vec<Vec<Row<'_>>> {
    // Stable: neighbouring rows stay next to each other.
    rows.sort_by_key(|row| std::cmp::Reverse(row.num_keys));
    let count_keys = |rows: &[Row<'_>]| rows.iter().map(|row| row.num_keys).sum::<usize>();
    let max_padding = count_keys(&rows) / 4;
    let mut buckets = Vec::new();
    let mut rest = rows.as_slice();
    while let [longest, ..] = rest {
        let padding = rest.len() * longest.num_keys - count_keys(rest);
        let is_similar = |row: &Row<'_>| row.num_keys.max(MIN_KEYS) * 3 >= longest.num_keys * 2;
        let count = if padding <= max_padding {
            rest.len()
        } else {
            rest.partition_point(is_similar)
        };
        let (bucket, shorter) = rest.split_at(count);
        buckets.push(bucket.to_vec());
        rest = shorter;
    }
    buckets
}

/// Padding up to this number of keys is cheaper than another call.
const MIN_KEYS: usize = 64;

impl Layout {
    /// The call of some rows, whose keys are padded to `num_keys`.
    fn call(
        &self,
        rows: &[Row<'_>],
        num_keys: usize,
        splits: usize,
        is_first: bool,
        device: Device,
    ) -> RowCall {
        let of_row = |row: &Row<'_>| row.rows.queries(row.row).len();
        let per_head = rows.iter().map(of_row).max().unwrap_or(0);
        let (mut queries, mut keys, mut bits) = (Vec::new(), Vec::new(), Vec::new());
        let (mut slots, mut targets) = (Vec::new(), Vec::new());
        let mut real_slots = Vec::new();
        let num_queries = self.group as usize * per_head;
        for row in rows {
            let indices = row.rows.queries(row.row);
            let of_row = (0..self.group).flat_map(|head| (0..per_head).map(move |i| (head, i)));
            let of_row = of_row.map(|(head, i)| {
                let i = Some(i).filter(|i| *i < indices.len());
                let query = self.query(row.instance, head, indices.get(i.unwrap_or(0)));
                (query, i.is_some())
            });
            let first = queries.len() / splits;
            for (slot, (query, is_distinct)) in of_row.clone().enumerate() {
                if is_distinct {
                    slots.push((first + slot) as i64);
                    targets.push(query);
                }
            }
            for _ in 0..splits {
                queries.extend(of_row.clone().map(|(query, _)| query));
            }
            let all = u64::MAX >> (MAX_QUERIES - indices.len());
            let first = keys.len();
            real_slots.extend(first..first + row.num_keys);
            for (tile, visible) in row.rows.tiles(row.row) {
                keys.extend(tile.iter().map(|key| self.key(row.instance, key)));
                let visible = (0..tile.len()).map(|i| visible.get(i).copied().unwrap_or(all));
                bits.extend(visible.map(|visible| (visible & all) as i64));
            }
            for _ in row.num_keys..num_keys {
                keys.push(keys[keys.len() - row.num_keys]);
            }
            bits.resize(first + num_keys, 0);
        }
        let all = (u64::MAX >> (MAX_QUERIES - per_head)) as i64;
        let upload = |values: &[i64]| TchTensor::new(Tensor::from_slice(values).to_device(device));
        let size = [rows.len() * splits, num_keys / splits].map(|size| size as i64);
        let bits = bits.iter().any(|bits| *bits != all).then(|| {
            let bits = Tensor::from_slice(&bits).reshape(size);
            TchTensor::new(bits.to_device(device))
        });
        // Stable: the slots of a key are in the order of the rows.
        real_slots.sort_by_key(|slot| keys[*slot]);
        let order: Vec<i64> = real_slots.iter().map(|slot| *slot as i64).collect();
        let mut offsets = vec![0; (self.key_instances * self.seq[1]) as usize + 1];
        for slot in &real_slots {
            offsets[keys[*slot] as usize + 1] += 1;
        }
        for key in 1..offsets.len() {
            offsets[key] += offsets[key - 1];
        }
        let has_padding = slots.len() < rows.len() * num_queries;
        let [rows, num_keys] = size;
        RowCall {
            rows,
            splits: splits as i64,
            num_queries: num_queries as i64,
            num_keys,
            is_first,
            queries: upload(&queries),
            keys: upload(&keys),
            order: upload(&order),
            offsets: upload(&offsets),
            bits,
            targets: upload(&targets),
            slots: has_padding.then(|| upload(&slots)),
            mask_bias: OnceLock::new(),
        }
    }
}
