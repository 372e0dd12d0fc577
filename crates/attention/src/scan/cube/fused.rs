//! The kernels as operations in Burn's fusion queue.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DType, TensorMetadata};

use super::launch::{BackwardInputs, KernelInputs, launch_backward, launch_forward};
use crate::cube::op::{self, OpInputs, OperationOutput};
use crate::flash::DenseMask;
use crate::scan::call::{ScanInputs, ScanSettings};
use crate::scan::ops::{LinearScan, Saved, ScanPasses};

impl LinearScan for Cube {
    fn linear_scan(inputs: ScanInputs<Self>, settings: ScanSettings) -> FloatTensor<Self> {
        Self::scan_forward(&inputs, &settings).0
    }
}

impl ScanPasses for Cube {
    /// Sums of weights.
    type Stats = FloatTensor<Self>;

    fn scan_forward(
        inputs: &ScanInputs<Self>,
        settings: &ScanSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let shape = settings.shape;
        let dims = |width| [shape.batch, shape.heads, shape.seq_q, width];
        let outputs = [
            (dims(shape.d_value), inputs.query.dtype()),
            (dims(1), DType::F32),
        ];
        let (masked, floats) = operands(inputs.clone());
        let settings = settings.clone();
        let [context, denominators] = op::register(
            "zoo::scan_forward",
            masked,
            floats,
            outputs.into(),
            move |mut inputs| launch_forward(kernel_inputs(&mut inputs), &settings).into(),
        )
        .outputs();
        (context, denominators)
    }

    fn scan_backward(saved: Saved<Self>, d_context: FloatTensor<Self>) -> [FloatTensor<Self>; 3] {
        let Saved {
            inputs,
            context,
            stats,
            settings,
        } = saved;
        let outputs = [&inputs.query, &inputs.key, &inputs.value]
            .map(|tensor| (tensor.shape(), tensor.dtype()));
        let (masked, mut floats) = operands(inputs);
        // Retention needs no context.
        let context = context.unwrap_or_else(|| d_context.clone());
        floats.extend([context, stats, d_context]);
        op::register(
            "zoo::scan_backward",
            masked,
            floats,
            outputs.into(),
            move |mut inputs| {
                let kernel_inputs = kernel_inputs(&mut inputs);
                let saved = BackwardInputs {
                    context: inputs.next(),
                    denominators: inputs.next(),
                    d_context: inputs.next(),
                };
                launch_backward(kernel_inputs, saved, &settings).into()
            },
        )
        .outputs()
    }
}

type Operands = (
    Option<burn::backend::tensor::BoolTensor<Cube>>,
    Vec<FloatTensor<Cube>>,
);

fn operands(inputs: ScanInputs<Cube>) -> Operands {
    let masked = match inputs.masked {
        DenseMask::None => None,
        DenseMask::Bool(masked) => Some(masked),
    };
    (masked, vec![inputs.query, inputs.key, inputs.value])
}

fn kernel_inputs(inputs: &mut OpInputs) -> KernelInputs {
    KernelInputs {
        masked: inputs.mask.take(),
        query: inputs.next(),
        key: inputs.next(),
        value: inputs.next(),
    }
}
