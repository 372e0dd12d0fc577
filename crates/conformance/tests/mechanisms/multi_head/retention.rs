//! Retention as the layer of its paper has it, with what comes out of each head normalised.

use burn::tensor::{Device, Distribution, Tensor, TensorData};
use libtest_mimic::Failed;
use zoo_attention::mechanisms::Retention;
use zoo_attention::{
    MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig, Pattern, retention_decays,
};
use zoo_conformance::{numbers, same};

use super::names;

const BATCH: usize = 2;
const SEQ: usize = 7;
const HEADS: usize = 3;
const D_HEAD: usize = 4;
const D_MODEL: usize = HEADS * D_HEAD;

fn layer(group_norm: bool, device: &Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(D_MODEL, HEADS)
        .with_mechanism(MechanismConfig::Retention(Retention { group_norm }))
        .init(device)
}

pub(super) fn is_the_papers(device: &Device) -> Result<(), Failed> {
    let (plain, layer) = (layer(false, device), layer(true, device));
    // It has no parameters: a record of a layer without it is one of a layer with it.
    assert!(
        names(&plain) == names(&layer),
        "{:?} instead of {:?}",
        names(&layer),
        names(&plain)
    );
    let x = Tensor::<3>::random(
        [BATCH, SEQ, D_MODEL],
        Distribution::Normal(0.0, 1.0),
        device,
    );
    let forward = |layer: &MultiHeadAttention| {
        layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal)
    };
    let normalised = by_hand(&layer, &x, true);
    same(forward(&layer), layer.output.forward(normalised))?;

    // One position after the other.
    let mut cache = layer.decode_cache(SEQ).map_err(|error| error.to_string())?;
    let steps = (0..SEQ).map(|at| layer.step(x.clone().slice_dim(1, at..at + 1), &mut cache));
    same(Tensor::cat(steps.collect(), 1), forward(&layer))?;

    // Without it a layer is what it was.
    same(
        forward(&plain),
        plain.output.forward(by_hand(&plain, &x, false)),
    )
}

/// `[batch, seq, d_model]`, position by position in `f64`.
fn by_hand(layer: &MultiHeadAttention, x: &Tensor<3>, group_norm: bool) -> Tensor<3> {
    let key = layer.key.as_ref().expect("it has keys of its own");
    let [query, key, value] = [&layer.query, key, &layer.value].map(|projection| {
        let projected: Tensor<3> = projection.forward(x.clone());
        numbers(projected)
    });
    let decays = retention_decays(HEADS);
    let scale = 1.0 / (D_HEAD as f64).sqrt();
    let mut result = vec![0.0f32; BATCH * SEQ * D_MODEL];
    for example in 0..BATCH {
        let row = |at: usize, head: usize| ((example * SEQ + at) * HEADS + head) * D_HEAD;
        for (head, decay) in decays.iter().enumerate() {
            for i in 0..SEQ {
                let mut context = [0.0f64; D_HEAD];
                for j in 0..=i {
                    let (q, k) = (&query[row(i, head)..], &key[row(j, head)..]);
                    let product: f64 = (0..D_HEAD).map(|x| f64::from(q[x]) * f64::from(k[x])).sum();
                    let weight = scale * decay.powi((i - j) as i32) * product;
                    for (x, sum) in context.iter_mut().enumerate() {
                        *sum += weight * f64::from(value[row(j, head) + x]);
                    }
                }
                if group_norm {
                    let mean = context.iter().sum::<f64>() / D_HEAD as f64;
                    let squares = context.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                    let deviation = (squares / D_HEAD as f64 + 1e-5).sqrt();
                    context = context.map(|x| (x - mean) / deviation);
                }
                for (x, number) in context.into_iter().enumerate() {
                    result[row(i, head) + x] = number as f32;
                }
            }
        }
    }
    let data = TensorData::new(result, [BATCH, SEQ, D_MODEL]);
    Tensor::from_data(data, &x.device())
}
