//! The numbers a kernel is told besides its buffers.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::device_plan::PlanWords;
use super::memory::Rows;
use crate::flash::call::TiledSettings;

/// The numbers of a call. Of a tensor it has how far apart neighbours lie; zero where one
/// stands for all.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Call {
    pub(super) heads: u32,
    /// Query heads that share a key and value head.
    pub(super) group: u32,
    pub(super) seq_q: u32,
    pub(super) seq_k: u32,
    pub(super) d_head: u32,
    pub(super) d_value: u32,
    pub(super) query: Places,
    pub(super) key: Places,
    pub(super) value: Places,
    pub(super) d_context: Places,
    pub(super) scale: f32,
    /// Zero for none.
    pub(super) softcap: f32,
    pub(super) has_alibi: u32,
    pub(super) has_bias: u32,
    pub(super) bias_example: u32,
    pub(super) bias_head: u32,
    pub(super) bias_query: u32,
    pub(super) bias_key: u32,
    pub(super) has_mask: u32,
    pub(super) mask_example: u32,
    pub(super) mask_head: u32,
    pub(super) mask_query: u32,
    pub(super) mask_key: u32,
    /// What dropout compares with; zero for none.
    pub(super) threshold: u32,
    /// What dropout multiplies those by that stay.
    pub(super) factor: f32,
    pub(super) plan_rows: u32,
    /// How far the rows of an example lie from those of the next in the plan; zero if
    /// examples are alike.
    pub(super) plan_example: u32,
    pub(super) runs_at: u32,
    pub(super) bitmaps_at: u32,
}

/// How far apart examples, heads and rows lie.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Places {
    pub(super) example: u32,
    pub(super) head: u32,
    pub(super) row: u32,
}

#[cube]
impl Places {
    pub(super) fn rows(&self, example: usize, head: usize, count: u32, width: u32) -> Rows {
        Rows {
            start: example * self.example as usize + head * self.head as usize,
            stride: self.row as usize,
            count: count as usize,
            width: width as usize,
        }
    }
}

impl PlacesLaunch {
    fn of(tensor: &CubeTensor) -> Self {
        let strides = tensor.meta.strides();
        Self::new(strides[0] as u32, strides[1] as u32, strides[2] as u32)
    }
}

/// What a call has besides query, key and value.
#[derive(Clone, Copy)]
pub(super) struct More<'a> {
    pub(super) mask: Option<&'a CubeTensor>,
    pub(super) bias: Option<&'a CubeTensor>,
}

impl CallLaunch {
    /// The numbers of a call whose kernel goes by `plan`.
    pub(super) fn of(
        settings: &TiledSettings,
        [query, key, value, d_context]: [&CubeTensor; 4],
        more: More<'_>,
        plan: &PlanWords,
    ) -> Self {
        let shape = &settings.shape;
        let dropout = settings.dropout;
        let [bias_example, bias_head, bias_query, bias_key] = spread(more.bias);
        let [mask_example, mask_head, mask_query, mask_key] = spread(more.mask);
        Self::new(
            shape.heads as u32,
            shape.group() as u32,
            shape.seq_q as u32,
            shape.seq_k as u32,
            shape.d_head as u32,
            shape.d_value as u32,
            PlacesLaunch::of(query),
            PlacesLaunch::of(key),
            PlacesLaunch::of(value),
            PlacesLaunch::of(d_context),
            settings.scale as f32,
            settings.softcap.unwrap_or(0.0) as f32,
            u32::from(settings.alibi.is_some()),
            u32::from(more.bias.is_some()),
            bias_example,
            bias_head,
            bias_query,
            bias_key,
            u32::from(more.mask.is_some()),
            mask_example,
            mask_head,
            mask_query,
            mask_key,
            dropout.map_or(0, |dropout| dropout.threshold()),
            dropout.map_or(1.0, |dropout| dropout.factor()),
            plan.rows as u32,
            plan.per_example,
            plan.runs_at,
            plan.bitmaps_at,
        )
    }
}

/// How far apart neighbours lie in a tensor where a size of 1 stands for all.
fn spread(tensor: Option<&CubeTensor>) -> [u32; 4] {
    let Some(tensor) = tensor else {
        return [0; 4];
    };
    let (dims, strides) = (tensor.meta.shape(), tensor.meta.strides());
    [0, 1, 2, 3].map(|dim| match dims[dim] {
        1 => 0,
        _ => strides[dim] as u32,
    })
}

/// What the kernels look up by head: the slope of each, and for each head of each example
/// what its dropout is drawn by.
pub(super) fn table(settings: &TiledSettings) -> Option<Vec<u32>> {
    let shape = &settings.shape;
    if settings.alibi.is_none() && settings.dropout.is_none() {
        return None;
    }
    let mut table: Vec<u32> = match &settings.alibi {
        Some(slopes) => slopes.iter().map(|slope| slope.to_bits()).collect(),
        None => vec![0; shape.heads],
    };
    if let Some(dropout) = settings.dropout {
        for example in 0..shape.batch {
            for head in 0..shape.heads {
                let seed = dropout.of_head([example, head]);
                table.extend([seed as u32, (seed >> 32) as u32]);
            }
        }
    }
    Some(table)
}
