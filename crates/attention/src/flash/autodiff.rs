//! The gradient of tiled attention, written by hand: what is kept from the forward
//! pass is its inputs, the context and two numbers a query.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};
use zoo_kernels::autodiff::SecondGradient;

use super::call::{Arrived, Bias, MoreHidden, Saved, TiledSettings};
use super::ops::{TiledBackward, TiledForward};

/// What the backward pass of the context starts from.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    query: NodeId,
    key: NodeId,
    value: NodeId,
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

impl<B: TiledBackward> Backward<B, 3> for FromContext {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 3>, to: &mut Gradients, kept: &mut Checkpointer) {
        step_back(ops, to, kept);
    }
}

impl<B: TiledBackward> Backward<B, 4> for FromContext {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 4>, to: &mut Gradients, kept: &mut Checkpointer) {
        step_back(ops, to, kept);
    }
}

fn step_back<B: TiledBackward, const PARENTS: usize>(
    ops: Ops<State<B>, PARENTS>,
    gradients: &mut Gradients,
    checkpointer: &mut Checkpointer,
) {
    let d_context = gradients.consume::<B>(&ops.node);
    let state = ops.state;
    let saved = Saved {
        query: checkpointer.retrieve_node_output(state.query),
        key: checkpointer.retrieve_node_output(state.key),
        value: checkpointer.retrieve_node_output(state.value),
        hidden: state.hidden,
        bias: state.bias,
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

impl<B: TiledForward + TiledBackward, C: CheckpointStrategy> TiledForward for Autodiff<B, C> {
    fn tiled_forward(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        hidden: MoreHidden<Self>,
        bias: Bias<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let hidden: MoreHidden<B> = match hidden {
            MoreHidden::Nothing => MoreHidden::Nothing,
            MoreHidden::Where(hidden) => MoreHidden::Where(hidden),
        };
        let tensors = [query, key, value];
        let [query, key, value] = [0, 1, 2].map(|at: usize| tensors[at].node());
        match bias {
            Bias::Nothing => {
                let parents = [query, key, value];
                record::<B, C, 3>(tensors, parents, hidden, Bias::Nothing, settings)
            }
            Bias::Added(bias) => {
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
    [query, key, value]: [Recorded<B, C>; 3],
    parents: [NodeGuard; PARENTS],
    hidden: MoreHidden<B>,
    bias: Bias<B>,
    settings: TiledSettings,
) -> (Recorded<B, C>, Recorded<B, C>, Recorded<B, C>)
where
    FromContext: Backward<B, PARENTS, State = State<B>>,
{
    match Backward::<B, PARENTS>::prepare::<C>(FromContext, parents)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let nodes = [
                prep.checkpoint(&query),
                prep.checkpoint(&key),
                prep.checkpoint(&value),
            ];
            let (context, log_sum_exp, stats) = B::tiled_forward(
                query.into_primitive(),
                key.into_primitive(),
                value.into_primitive(),
                hidden.clone(),
                bias.clone(),
                settings.clone(),
            );
            let d_log_sum_exp = SecondGradient::<B>::default();
            let state = State {
                query: nodes[0],
                key: nodes[1],
                value: nodes[2],
                hidden,
                bias,
                context: context.clone(),
                stats: stats.clone(),
                d_log_sum_exp: d_log_sum_exp.clone(),
                settings,
            };
            let context = prep.finish(state, context);
            let log_sum_exp = d_log_sum_exp.record::<C>(&context, log_sum_exp);
            let stats = <Autodiff<B, C> as AutodiffBackend>::from_inner(stats);
            (context, log_sum_exp, stats)
        }
        OpsKind::UnTracked(prep) => {
            let (context, log_sum_exp, stats) = B::tiled_forward(
                query.into_primitive(),
                key.into_primitive(),
                value.into_primitive(),
                hidden,
                bias,
                settings,
            );
            (
                prep.finish(context),
                <Autodiff<B, C> as AutodiffBackend>::from_inner(log_sum_exp),
                <Autodiff<B, C> as AutodiffBackend>::from_inner(stats),
            )
        }
    }
}
