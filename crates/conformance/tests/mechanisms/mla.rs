//! Multi-head latent attention against the module of DeepSeek-V3, whose values `golden/mla.py` computed,
//! and its cache.

use burn::module::Param;
use burn::nn::Linear;
use zoo_attention::PytorchWeights;
use zoo_attention::mechanisms::Mla;

use super::multi_head::decode_all;
use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/mla.safetensors");
    let golden = must(Golden::from_bytes(file));
    let (forward, backward) = (golden.clone(), golden.clone());
    suite.add("golden/mla/forward-and-decoding", move |device| {
        let attention = layer(&forward, device);
        let x: Tensor<3> = forward.tensor("x", device).expect("x");
        let tolerance = Precision::F32.backward(0.0);
        let check = |name: &str, got: Tensor<3>| {
            must(tolerance.check(name, &to_vec(got), &forward.values("context")));
        };
        let input = AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal);
        check("forward", attention.forward(input).context);
        let mut cache = must(attention.decode_cache(4));
        check("decoding", decode_all(&attention, &x, &mut cache));
    });
    suite.add_training("golden/mla/gradients", move |device| {
        let attention = layer(&backward, device);
        let x: Tensor<3> = backward.tensor("x", device).expect("x");
        let x = x.require_grad();
        let input = AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal);
        let output_grad = backward.tensor("output_grad", device).expect("gradient");
        let gradients = (attention.forward(input).context * output_grad)
            .sum()
            .backward();
        let got = to_vec(x.grad(&gradients).expect("a gradient"));
        let tolerance = Precision::F32.backward(0.0);
        must(tolerance.check("d_x", &got, &backward.values("d_x")));
    });
    suite.add("golden/mla/file-matches-its-script", move |_| {
        let script = include_str!("../../golden/mla.py");
        let [torch, transformers, seed] =
            ["torch", "transformers", "seed"].map(|key| &golden.metadata[key]);
        let head = format!(
            "PyTorch {torch}, seed {seed}. With the packages transformers {transformers} and"
        );
        assert!(script.contains(&head), "{head:?} is not in the script");
    });
    suite.add("mla/pytorch-weights-are-rejected", |device| {
        let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(Mechanism::Mla);
        let result = config
            .init(device)
            .with_pytorch_weights(PytorchWeights::default());
        let message =
            "mechanism mla computes its values from its keys: PyTorch's weights cannot be set";
        assert_error(result, message);
    });
    suite.add("mla/cache-holds-one-row-per-position", |device| {
        let (heads, d_head, seq) = (8, 4, 20);
        let config = MultiHeadAttentionConfig::new(heads * d_head, heads)
            .with_positions(Positions::rotary(1e4));
        let x = random_normal([2, seq, heads * d_head], device);
        let elements = |config: &MultiHeadAttentionConfig| {
            let attention = config.init(device);
            let mut cache = must(attention.decode_cache(4));
            let first = x.clone().slice_dim(1, 0..seq - 1);
            attention.prefill(first, &mut cache);
            decode_all(&attention, &x, &mut cache);
            let selected = cache.select(&[1]);
            assert_eq!(2 * selected.num_elements(), cache.num_elements());
            cache.num_elements()
        };
        let [latent, multi_head] = [Mechanism::Mla, Mechanism::Flash]
            .map(|one| elements(&config.clone().with_mechanism(one)));
        assert_eq!(latent, 2 * seq * (2 * d_head + d_head / 2));
        assert_eq!(multi_head, 2 * seq * 2 * heads * d_head);
        assert!(5 * latent <= multi_head);
    });
}

/// A layer with the parameters of the module.
fn layer(golden: &Golden, device: &Device) -> MultiHeadAttention {
    let mechanism = Mla {
        latent: Some(10),
        rope: Some(4),
    };
    let mut attention = MultiHeadAttentionConfig::new(24, 3)
        .with_mechanism(mechanism)
        .with_positions(Positions::rotary(1e4))
        .with_query_bias(false)
        .with_key_bias(false)
        .with_output_bias(false)
        .init(device);
    let load = |linear: &mut Linear, name: &str| {
        let weight: Tensor<2> = golden.tensor(name, device).expect(name);
        assert_eq!(weight.dims(), linear.weight.dims(), "{name}");
        linear.weight = Param::from_tensor(weight);
        assert!(linear.bias.is_none(), "{name}");
    };
    load(&mut attention.query, "query");
    load(attention.key.as_mut().expect("a projection"), "key");
    load(&mut attention.value, "value");
    load(&mut attention.output, "output");
    let latent = attention.latent.as_mut().expect("projections");
    load(&mut latent.key, "latent.key");
    let norm = golden.tensor("latent.norm", device).expect("latent.norm");
    latent.norm.gamma = Param::from_tensor(norm);
    attention
}
