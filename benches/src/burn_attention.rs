//! Benchmarks of Burn's own attention, on the same inputs as our mechanisms.

use anyhow::Result;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, DType, Device, Gradients, Tensor};
use zoo_bench_core::case::{Fault, Pass};
use zoo_bench_core::record::Report;
use zoo_conformance::{Errors, Tensors, compare_library, tensor_of};
use zoo_oracle::{Inputs, Mask, Mismatch, Problem};

use crate::Setting;
use crate::attention::{Workload, checked_inputs, measure, outcome, warm_up_problem};

/// Measures Burn's attention, then checks its results.
pub(crate) fn measure_burn_attention(problem: &Problem, setting: Setting<'_>) -> Result<Report> {
    let (pass, device) = (setting.pass, setting.device());
    let work = |problem: &Problem| work(problem, pass, &device);
    let (seconds, peak) = measure(work(&warm_up_problem(pass)), || work(problem), setting)?;
    Ok(outcome(seconds, peak, check(problem, setting)).into())
}

fn work(problem: &Problem, pass: Pass, device: &Device) -> Workload {
    let call = Call::new(problem, &problem.inputs(), device);
    match pass {
        // A decoding step is one query with all keys.
        Pass::Forward | Pass::Decode | Pass::Generate => Box::new(move || Box::new(call.attend())),
        Pass::Train => {
            let call = call.require_grad();
            Box::new(move || Box::new(call.forward_backward()))
        }
    }
}

fn check(problem: &Problem, setting: Setting<'_>) -> Result<Errors, Mismatch> {
    let (queries, inputs) = checked_inputs(problem);
    let mut call = Call::new(problem, &inputs, &setting.device());
    if setting.fault == Some(Fault::Wrong) {
        call.options.scale = Some(2.0 * problem.scale());
    }
    let (call, context, gradients) = match setting.pass {
        Pass::Forward | Pass::Decode | Pass::Generate => {
            let context = call.attend();
            (call, context, None)
        }
        Pass::Train => {
            let call = call.require_grad();
            let (context, gradients) = call.forward_backward();
            (call, context, Some(gradients))
        }
    };
    let limit = error_limit(context.dtype());
    let gradients = gradients.as_ref();
    compare_library(problem, &call.tensors, &queries, limit, context, gradients)
}

/// Largest error of a result that is not wrong, the same as for PyTorch.
fn error_limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 5e-2,
        DType::BF16 => 2e-1,
        _ => 1e-3,
    }
}

/// The arguments of Burn's attention.
struct Call {
    /// Query, key, value and bias.
    tensors: Tensors,
    mask: Option<Tensor<4, Bool>>,
    options: AttentionModuleOptions,
}

impl Call {
    fn new(problem: &Problem, inputs: &Inputs, device: &Device) -> Self {
        let is_plain = [Mask::Full, Mask::Causal].contains(&problem.mask);
        let mask = || tensor_of(problem.dense_mask(), problem.scores_shape(), device);
        let unmasked = problem.clone().with_mask(Mask::Full);
        Self {
            tensors: Tensors::new(&unmasked, inputs, device),
            mask: (!is_plain).then(mask),
            options: AttentionModuleOptions {
                scale: problem.scale,
                softcap: problem.softcap,
                // A single query attends to all keys.
                is_causal: problem.mask == Mask::Causal && problem.seq_q > 1,
            },
        }
    }

    fn require_grad(self) -> Self {
        Self {
            tensors: self.tensors.require_grad(),
            ..self
        }
    }

    fn attend(&self) -> Tensor<4> {
        let mask = self.mask.clone();
        self.tensors.apply(|query, key, value, options| {
            attention(query, key, value, mask, options.bias.clone(), self.options)
        })
    }

    fn forward_backward(&self) -> (Tensor<4>, Gradients) {
        let context = self.attend();
        let gradients = self.tensors.backward(context.clone());
        (context, gradients)
    }
}
