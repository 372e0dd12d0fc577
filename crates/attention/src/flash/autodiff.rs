//! The autodiff node of tiled attention. It saves the inputs, the context and two values per query
//! for backward.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};
use zoo_kernels::autodiff::SecondGradient;

use super::call::{DenseMask, Inputs, Optional, OutputGrads, Outputs, Saved, TiledSettings};
use super::ops::{TiledBackward, TiledForward};

/// The state saved for backward.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    /// The nodes of query, key and value.
    nodes: [NodeId; 3],
    mask: DenseMask<B>,
    /// Bias and parameter.
    extras: [Optional<B>; 2],
    context: FloatTensor<B>,
    stats: FloatTensor<B>,
    d_log_sum_exp: SecondGradient<B>,
    settings: TiledSettings,
}

/// The backward step from the context to query, key and value, and to bias and parameter as
/// optional further parents.
#[derive(Debug)]
struct ContextBackward;

impl<B: TiledBackward, const PARENTS: usize> Backward<B, PARENTS> for ContextBackward {
    type State = State<B>;

    fn backward(
        self,
        ops: Ops<State<B>, PARENTS>,
        gradients: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let d_context = gradients.consume::<B>(&ops.node);
        let state = ops.state;
        let qkv = state
            .nodes
            .map(|node| checkpointer.retrieve_node_output(node));
        let saved = Saved {
            inputs: Inputs::new(qkv, state.mask, state.extras),
            context: state.context,
            stats: state.stats,
        };
        let has_bias = saved.inputs.bias.as_ref().is_some();
        let output_grads = OutputGrads {
            d_context,
            d_log_sum_exp: state.d_log_sum_exp.take(),
            needs_bias_grad: has_bias && ops.parents[3].is_some(),
        };
        let grads = B::tiled_backward(saved, output_grads, &state.settings);
        let bias = has_bias.then_some(grads.bias);
        let extras = bias.into_iter().chain([grads.parameter]);
        let by_parent = grads.qkv.map(Some).into_iter().chain(extras);
        for (parent, gradient) in ops.parents.into_iter().zip(by_parent) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B: TiledForward + TiledBackward, C: CheckpointStrategy> TiledForward for Autodiff<B, C> {
    fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
        let mask: DenseMask<B> = match inputs.mask {
            DenseMask::None => DenseMask::None,
            DenseMask::Bool(mask) => DenseMask::Bool(mask),
        };
        let tensors = [inputs.query, inputs.key, inputs.value];
        let [query, key, value] = tensors.each_ref().map(|tensor| tensor.node());
        let extra_nodes = [&inputs.bias, &inputs.parameter]
            .map(|extra| extra.as_ref().map(|tensor| tensor.node()));
        let extras = [inputs.bias, inputs.parameter].map(|extra| match extra {
            Optional::None => Optional::None,
            Optional::Tensor(tensor) => Optional::Tensor(tensor.into_primitive()),
        });
        match extra_nodes {
            [None, None] => {
                let parents = [query, key, value];
                record::<B, C, 3>(tensors, parents, mask, extras, settings)
            }
            [Some(extra), None] | [None, Some(extra)] => {
                let parents = [query, key, value, extra];
                record::<B, C, 4>(tensors, parents, mask, extras, settings)
            }
            [Some(bias), Some(parameter)] => {
                let parents = [query, key, value, bias, parameter];
                record::<B, C, 5>(tensors, parents, mask, extras, settings)
            }
        }
    }
}

type AutodiffTensor<B, C> = FloatTensor<Autodiff<B, C>>;

/// Computes the forward pass and records the backward step if a gradient is required.
fn record<B: TiledForward + TiledBackward, C: CheckpointStrategy, const PARENTS: usize>(
    tensors: [AutodiffTensor<B, C>; 3],
    parents: [NodeGuard; PARENTS],
    mask: DenseMask<B>,
    extras: [Optional<B>; 2],
    settings: TiledSettings,
) -> Outputs<Autodiff<B, C>> {
    let into_primitives =
        |tensors: [AutodiffTensor<B, C>; 3]| tensors.map(|tensor| tensor.into_primitive());
    let untracked = <Autodiff<B, C> as AutodiffBackend>::from_inner;
    match Backward::<B, PARENTS>::prepare::<C>(ContextBackward, parents)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let settings = TiledSettings {
                is_tracked: true,
                ..settings
            };
            let nodes = tensors.each_ref().map(|tensor| prep.checkpoint(tensor));
            let inputs = Inputs::new(into_primitives(tensors), mask.clone(), extras.clone());
            let (context, log_sum_exp, stats) = B::tiled_forward(inputs, settings.clone());
            let d_log_sum_exp = SecondGradient::<B>::default();
            let state = State {
                nodes,
                mask,
                extras,
                context: context.clone(),
                stats: stats.clone(),
                d_log_sum_exp: d_log_sum_exp.clone(),
                settings,
            };
            let context = prep.finish(state, context);
            let log_sum_exp = d_log_sum_exp.record::<C>(&context, log_sum_exp);
            (context, log_sum_exp, untracked(stats))
        }
        OpsKind::UnTracked(prep) => {
            let inputs = Inputs::new(into_primitives(tensors), mask, extras);
            let (context, log_sum_exp, stats) = B::tiled_forward(inputs, settings);
            let (log_sum_exp, stats) = (untracked(log_sum_exp), untracked(stats));
            (prep.finish(context), log_sum_exp, stats)
        }
    }
}
