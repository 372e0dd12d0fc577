//! Layers against modules of transformers and flash-linear-attention, which `golden/layers.py` called:
//! outputs, decoding, and gradients of inputs and parameters. One module is that of burn-nn.

use burn::module::{Module, ParamId};
use burn::nn::attention as burn_nn;
use burn::optim::GradientsParams;
use zoo_attention::mechanisms::{Differential, Kda, Retention, Sink};
use zoo_attention::{PairLayout, Rotary};
use zoo_models::weights::Weights;

use super::multi_head::{decode_all, self_attention};
use super::recent::trials_of_file;
use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/layers.safetensors");
    let script = include_str!("../../golden/layers.py");
    trials_of_file(suite, "layers", file, script, check_case);
    suite.add(
        "multi-head/sink-of-zero-matches-quiet-softmax-of-burn-nn",
        |device| {
            let theirs = burn_nn::MultiHeadAttentionConfig::new(12, 3)
                .with_dropout(0.0)
                .with_quiet_softmax(true)
                .init(device);
            let sink = Sink {
                learned: false,
                ..Sink::default()
            };
            let config = MultiHeadAttentionConfig::new(12, 3);
            let [ours, plain] = [sink.into(), MechanismConfig::from(Mechanism::Flash)].map(|one| {
                let layer = config.clone().with_mechanism(one).init(device);
                layer.load_record(theirs.clone().into_record())
            });
            let x = random_normal([2, 7, 12], device);
            let want = theirs
                .forward(burn_nn::MhaInput::self_attn(x.clone()))
                .context;
            assert!(!is_close(
                self_attention(&plain, &x, Pattern::Full),
                want.clone()
            ));
            assert_close(self_attention(&ours, &x, Pattern::Full), want);
        },
    );
}

fn check_case(golden: &Golden, case: &str, device: &Device) {
    let weights = golden.strip_prefix("weights.").tensors;
    let layer = config(golden, case).init(device);
    let layer = must(Weights::from_tensors(weights.clone()).apply(layer));
    let three = |name: &str| {
        let tensor: Option<Tensor<3>> = golden.tensor(name, device);
        tensor.expect("every case has one")
    };
    let x = three("x").require_grad();
    // The modules compute some parts in f32, too: the same errors once more.
    let tolerance = Precision::F32.backward(8.0);
    let check = |name: &str, got: Vec<f32>| must(tolerance.check(name, &got, &golden.values(name)));
    let context = self_attention(&layer, &x, Pattern::Causal);
    check("context", to_vec(context.clone()));
    let mut cache = must(layer.decode_cache(4));
    let first = layer.prefill(x.clone().slice_dim(1, 0..2), &mut cache);
    let rest = decode_all(&layer, &x, &mut cache);
    check("context", to_vec(Tensor::cat(vec![first, rest], 1)));

    let gradients = (context * three("upstream")).sum().backward();
    let gradient = x.grad(&gradients).expect("a gradient");
    check("d_x", to_vec(gradient));
    let ids = Weights::from_model(&layer).param_ids();
    let gradients = GradientsParams::from_grads(gradients, &layer);
    for (name, data) in weights {
        let id = ParamId::from(ids[&name]);
        let gradient = match data.shape().len() {
            1 => gradients.get::<1>(id).map(to_vec),
            _ => gradients.get::<2>(id).map(to_vec),
        };
        let name = format!("d_{name}");
        // The others are constants in the module.
        if golden.tensors.contains_key(&name) {
            check(&name, gradient.expect("a gradient"));
        }
    }
}

fn config(golden: &Golden, case: &str) -> MultiHeadAttentionConfig {
    let config = MultiHeadAttentionConfig::new(10, 4)
        .with_d_head(6)
        .with_query_bias(false)
        .with_key_bias(false)
        .with_value_bias(false)
        .with_output_bias(false);
    match case {
        "differential" => config.with_mechanism(Differential {
            lambda_init: must(golden.metadata["lambda_init"].parse()),
            head_norm: true,
        }),
        "kda" => config.with_output_gate(true).with_mechanism(Kda {
            head_norm: true,
            short_conv: Some(4),
        }),
        "output-gate" => {
            let rotary = Rotary::new(1e4).with_layout(PairLayout::Halves);
            config
                .with_n_heads_kv(2)
                .with_output_gate(true)
                .with_qk_norm(true)
                .with_positions(Positions::Rotary(rotary.with_fraction(2.0 / 3.0)))
        }
        "retention" => config.with_mechanism(Retention { group_norm: true }),
        other => panic!("no case for {other}"),
    }
}
