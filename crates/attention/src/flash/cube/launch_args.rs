//! Tensors and arguments of kernel launches.

use std::sync::Arc;

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
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
use super::cooperative::{CooperativeArgsLaunch, CooperativeLayout};
use super::device_plan::{DevicePlan, PlanKey, RowAxis};
use super::launch::KernelInputs;
use super::layout::{KernelLayout, Layout};
use super::mma::{MmaArgsLaunch, MmaLayout};
use super::program::KernelProgram;
use super::splits::num_splits;
use crate::cube::launch::{
    buffer, empty_like, has_aligned_rows, into_contiguous_rows, word_buffer,
};
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
    /// Elements per load: 4 if all rows are aligned, else 1.
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
            KernelLayout::Mma(layout) if !has_aligned_rows(&tensor, layout.ty().vec()) => {
                into_contiguous(tensor)
            }
            KernelLayout::Cooperative(layout) if !has_aligned_rows(&tensor, layout.word()) => {
                into_contiguous(tensor)
            }
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
            vector_width: if is_aligned { 4 } else { 1 },
            client,
        }
    }

    pub(super) fn empty(&self, dims: [usize; 4], dtype: DType) -> CubeTensor {
        empty_like(&self.query, dims, dtype)
    }

    pub(super) fn zeros_like(&self, tensor: &CubeTensor) -> CubeTensor {
        let (shape, device) = (tensor.meta.shape().clone(), tensor.device.clone());
        zeros_client(self.client.clone(), device, shape, tensor.dtype)
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
            plan.splits as u32,
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
        let [mask, bias] =
            [&self.mask, &self.bias].map(|tensor| tensor.as_ref().map_or_else(plan_buffer, buffer));
        // Its elements are vectors, which a short plan would be smaller than.
        let parameter = buffer(self.parameter.as_ref().unwrap_or(&self.query));
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

    pub(super) fn cooperative_args(
        &self,
        settings: &TiledSettings,
        plan: &UploadedPlan,
        layout: CooperativeLayout,
    ) -> CooperativeArgsLaunch {
        CooperativeArgsLaunch::new(
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
        self.uploaded(settings, PlanKey::new(settings, tile, row_axis))
    }

    /// The plan of a forward pass with rows [split](super::splits) into several if there are few.
    pub(super) fn forward_plan(&self, settings: &TiledSettings, tile: [usize; 2]) -> UploadedPlan {
        let key = PlanKey::new(settings, tile, RowAxis::Queries);
        let splits = num_splits(&self.client, settings, self.program, &key);
        self.uploaded(settings, key.with_splits(splits))
    }

    fn uploaded(&self, settings: &TiledSettings, key: PlanKey) -> UploadedPlan {
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
