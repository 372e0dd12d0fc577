//! The backward pass of the MLP scores, which saves only its inputs.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

use super::ops::{AdditiveForward, backward};

/// The backward step from the scores to query, key and vector.
#[derive(Debug)]
struct ScoresBackward;

impl<B: Backend> Backward<B, 3> for ScoresBackward {
    type State = [NodeId; 3];

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, saved: &mut Checkpointer) {
        let d_scores = grads.consume::<B>(&ops.node);
        let [query, key, vector] = ops.state.map(|node| saved.retrieve_node_output(node));
        let parent_gradients = backward::<B>(query, key, vector, d_scores);
        for (parent, gradient) in ops.parents.into_iter().zip(parent_gradients) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B: AdditiveForward, C: CheckpointStrategy> AdditiveForward for Autodiff<B, C> {
    fn additive_scores(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        vector: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let parents = [query.node(), key.node(), vector.node()];
        match Backward::<B, 3>::prepare::<C>(ScoresBackward, parents)
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(mut prep) => {
                let nodes = [
                    prep.checkpoint(&query),
                    prep.checkpoint(&key),
                    prep.checkpoint(&vector),
                ];
                let [query, key, vector] = [query, key, vector].map(|t| t.into_primitive());
                let scores = B::additive_scores(query, key, vector);
                prep.finish(nodes, scores)
            }
            OpsKind::UnTracked(prep) => {
                let [query, key, vector] = [query, key, vector].map(|t| t.into_primitive());
                prep.finish(B::additive_scores(query, key, vector))
            }
        }
    }
}
