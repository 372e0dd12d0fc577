//! The gradient of tiled attention, written by hand: what is kept from the forward
//! pass is its inputs, the context and two numbers a query.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};
use zoo_kernels::autodiff::SecondGradient;

use super::call::{Arrived, Bias, Inputs, MoreHidden, Outputs, Saved, TiledSettings};
use super::ops::{TiledBackward, TiledForward};

/// What the backward pass of the context starts from.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    /// Of query, key and value.
    nodes: [NodeId; 3],
    hidden: MoreHidden<B>,
    bias: Bias<B>,
    context: FloatTensor<B>,
    stats: FloatTensor<B>,
    d_log_sum_exp: SecondGradient<B>,
    settings: TiledSettings,
}

/// The step from the context back to query, key and value, and to a bias as a fourth
/// parent where there is one.
#[derive(Debug)]
struct FromContext;

impl<B: TiledBackward, const PARENTS: usize> Backward<B, PARENTS> for FromContext {
    type State = State<B>;

    fn backward(
        self,
        ops: Ops<State<B>, PARENTS>,
        gradients: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let d_context = gradients.consume::<B>(&ops.node);
        let state = ops.state;
        let [query, key, value] = state
            .nodes
            .map(|node| checkpointer.retrieve_node_output(node));
        let saved = Saved {
            inputs: Inputs {
                query,
                key,
                value,
                hidden: state.hidden,
                bias: state.bias,
            },
            context: state.context,
            stats: state.stats,
        };
        let arrived = Arrived {
            d_context,
            d_log_sum_exp: state.d_log_sum_exp.take(),
            wants_bias: ops.parents.get(3).is_some_and(Option::is_some),
        };
        let got = B::tiled_backward(saved, arrived, &state.settings);
        let by_parent = [Some(got.query), Some(got.key), Some(got.value), got.bias];
        for (parent, gradient) in ops.parents.into_iter().zip(by_parent) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B: TiledForward + TiledBackward, C: CheckpointStrategy> TiledForward for Autodiff<B, C> {
    fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
        let hidden: MoreHidden<B> = match inputs.hidden {
            MoreHidden::Nothing => MoreHidden::Nothing,
            MoreHidden::Where(hidden) => MoreHidden::Where(hidden),
        };
        let tensors = [inputs.query, inputs.key, inputs.value];
        let parents = tensors.each_ref().map(|tensor| tensor.node());
        match inputs.bias {
            Bias::Nothing => record::<B, C, 3>(tensors, parents, hidden, Bias::Nothing, settings),
            Bias::Added(bias) => {
                let [query, key, value] = parents;
                let parents = [query, key, value, bias.node()];
                let bias = Bias::Added(bias.into_primitive());
                record::<B, C, 4>(tensors, parents, hidden, bias, settings)
            }
        }
    }
}

/// A tensor that knows where it came from.
type Recorded<B, C> = FloatTensor<Autodiff<B, C>>;

/// Computes forward, and records the way back if anybody wants a gradient.
fn record<B: TiledForward + TiledBackward, C: CheckpointStrategy, const PARENTS: usize>(
    tensors: [Recorded<B, C>; 3],
    parents: [NodeGuard; PARENTS],
    hidden: MoreHidden<B>,
    bias: Bias<B>,
    settings: TiledSettings,
) -> Outputs<Autodiff<B, C>> {
    let inputs = |tensors: [Recorded<B, C>; 3], hidden, bias| {
        let [query, key, value] = tensors.map(|tensor| tensor.into_primitive());
        Inputs {
            query,
            key,
            value,
            hidden,
            bias,
        }
    };
    let untracked = <Autodiff<B, C> as AutodiffBackend>::from_inner;
    match Backward::<B, PARENTS>::prepare::<C>(FromContext, parents)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let nodes = tensors.each_ref().map(|tensor| prep.checkpoint(tensor));
            let inputs = inputs(tensors, hidden.clone(), bias.clone());
            let (context, log_sum_exp, stats) = B::tiled_forward(inputs, settings.clone());
            let d_log_sum_exp = SecondGradient::<B>::default();
            let state = State {
                nodes,
                hidden,
                bias,
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
            let inputs = inputs(tensors, hidden, bias);
            let (context, log_sum_exp, stats) = B::tiled_forward(inputs, settings);
            let (log_sum_exp, stats) = (untracked(log_sum_exp), untracked(stats));
            (prep.finish(context), log_sum_exp, stats)
        }
    }
}
