//! Tensors and arguments of kernel launches.

use std::sync::Arc;

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::zeros_client;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::{ElemType, UIntKind};
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::call::{
    BroadcastStridesLaunch, CallLaunch, KernelArgsLaunch, TensorStridesLaunch, table,
};
use super::device_plan::{DevicePlan, PlanKey, RowAxis};
use super::launch::KernelInputs;
use super::layout::{KernelLayout, Layout};
use super::mma::{MmaArgsLaunch, MmaLayout, VEC8};
use super::program::KernelProgram;
use crate::flash::call::TiledSettings;
use crate::memo::Memo;

/// The tensors of a call, with contiguous rows.
pub(super) struct LaunchArgs {
    pub(super) client: Client,
    pub(super) query: CubeTensor,
    pub(super) key: CubeTensor,
    pub(super) value: CubeTensor,
    /// The query in the forward pass, where it is not read.
    pub(super) d_context: CubeTensor,
    pub(super) mask: Option<CubeTensor>,
    pub(super) bias: Option<CubeTensor>,
    pub(super) parameter: Option<CubeTensor>,
    pub(super) table: Option<Handle>,
    pub(super) program: KernelProgram,
    /// Elements per load: 8 for [`mma`] kernels; else 4 if all rows are aligned, or 1.
    pub(super) vector_width: usize,
}

impl LaunchArgs {
    pub(super) fn new(
        inputs: KernelInputs,
        d_context: Option<CubeTensor>,
        settings: &TiledSettings,
        layout: KernelLayout,
    ) -> Self {
        let client = inputs.query.client.clone();
        let with_rows = |tensor: CubeTensor| match layout {
            KernelLayout::Mma(_) if !has_aligned_rows(&tensor, VEC8) => into_contiguous(tensor),
            _ => into_contiguous_rows(tensor),
        };
        let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(with_rows);
        let d_context = d_context.map_or_else(|| query.clone(), with_rows);
        let shape = &settings.shape;
        let parameter = inputs.parameter.map(into_contiguous);
        let tensors = [&query, &key, &value, &d_context];
        let is_aligned = shape.d_head.is_multiple_of(4)
            && shape.d_value.is_multiple_of(4)
            && tensors
                .into_iter()
                .chain(&parameter)
                .all(|tensor| has_aligned_rows(tensor, 4));
        let table = table(settings).map(|table| client.create_from_slice(u32::as_bytes(&table)));
        Self {
            query,
            key,
            value,
            d_context,
            mask: inputs.mask,
            bias: inputs.bias,
            parameter,
            table,
            program: KernelProgram::new(settings).expect("a program that the kernels support"),
            vector_width: match layout {
                KernelLayout::Mma(_) => VEC8,
                KernelLayout::Units(_) if is_aligned => 4,
                KernelLayout::Units(_) => 1,
            },
            client,
        }
    }

    pub(super) fn empty(&self, dims: [usize; 4], dtype: DType) -> CubeTensor {
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

    pub(super) fn zeros_like(&self, tensor: &CubeTensor) -> CubeTensor {
        let (shape, device) = (tensor.meta.shape().clone(), tensor.device.clone());
        zeros_client(self.client.clone(), device, shape, tensor.dtype)
    }

    /// Elements per load of [`compute_deltas`].
    pub(super) fn delta_width(&self) -> usize {
        self.vector_width.min(4)
    }

    pub(super) fn elem(&self) -> ElemType {
        dtype_to_storage_type(self.query.dtype)
    }

    pub(super) fn call(&self, settings: &TiledSettings, plan: &DevicePlan) -> CallLaunch {
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
            u32::from(self.bias.is_some()) + u32::from(settings.has_relative_bias),
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

    pub(super) fn kernel_args<E: Float, N: Size, M: Numeric>(
        &self,
        settings: &TiledSettings,
        plan: &UploadedPlan,
        layout: Layout,
    ) -> KernelArgsLaunch<E, N, M> {
        // Also passed for missing inputs, which are not read.
        let plan_buffer = || word_buffer(&plan.handle);
        let [mask, bias, parameter] = [&self.mask, &self.bias, &self.parameter]
            .map(|tensor| tensor.as_ref().map_or_else(plan_buffer, buffer));
        let is_plain = self.mask.is_none()
            && self.bias.is_none()
            && settings.alibi.is_none()
            && settings.dropout.is_none()
            && settings.softcap.is_none();
        KernelArgsLaunch::new(
            buffer(&self.query),
            buffer(&self.key),
            buffer(&self.value),
            plan_buffer(),
            self.table.as_ref().map_or_else(plan_buffer, word_buffer),
            mask,
            bias,
            parameter,
            self.call(settings, &plan.plan),
            is_plain,
            self.program,
            layout,
        )
    }

    pub(super) fn mma_args<E: Float, N: Size>(
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

    pub(super) fn mask_elem(&self) -> ElemType {
        let mask = self.mask.as_ref();
        mask.map_or(ElemType::UInt(UIntKind::U32), |mask| {
            dtype_to_storage_type(mask.dtype)
        })
    }

    pub(super) fn plan(
        &self,
        settings: &TiledSettings,
        tile: [usize; 2],
        row_axis: RowAxis,
    ) -> UploadedPlan {
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

pub(super) struct UploadedPlan {
    handle: Handle,
    pub(super) plan: Arc<DevicePlan>,
}

/// Plans in device memory. A model uses the same few in every layer and step.
static UPLOADED_PLANS: Memo<(PlanKey, String), Handle> = Memo::new();

fn word_buffer(handle: &Handle) -> BufferArg {
    let length = handle.size() as usize / size_of::<u32>();
    // SAFETY: the length is that of the handle.
    unsafe { BufferArg::from_raw_parts(handle.clone(), length) }
}

pub(super) fn buffer(tensor: &CubeTensor) -> BufferArg {
    let length = tensor.handle.size() as usize / tensor.dtype.size();
    // SAFETY: the length is that of the handle.
    unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), length) }
}

pub(super) fn cube_count([x, y, z]: [usize; 3]) -> CubeCount {
    CubeCount::Static(x as u32, y as u32, z as u32)
}

/// Copies a tensor unless its rows are contiguous.
fn into_contiguous_rows(tensor: CubeTensor) -> CubeTensor {
    if has_contiguous_rows(&tensor) {
        tensor
    } else {
        into_contiguous(tensor)
    }
}

fn has_contiguous_rows(tensor: &CubeTensor) -> bool {
    !tensor.meta.is_tiled() && (tensor.meta.strides()[3] == 1 || tensor.meta.shape()[3] == 1)
}

/// Whether every row is contiguous and aligned to `width` elements.
fn has_aligned_rows(tensor: &CubeTensor, width: usize) -> bool {
    let offset = tensor.handle.offset_start.unwrap_or(0);
    let strides = tensor.meta.strides();
    has_contiguous_rows(tensor)
        && offset.is_multiple_of((width * tensor.dtype.size()) as u64)
        && (0..3).all(|dim| strides[dim].is_multiple_of(width))
}
