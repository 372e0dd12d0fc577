//! The multi-head attention module.

mod decoding;
mod retention;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention as burn_nn;
use burn::tensor::{Device, Gradients, Tensor};
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::mechanisms::{Lsh, lsh};
use zoo_attention::{
    AttentionInput, AttentionOptions, DecodeCache, Mechanism, MechanismConfig, MultiHeadAttention,
    MultiHeadAttentionConfig, Pattern, Positions, rotate, standard,
};
use zoo_conformance::*;
use zoo_models::weights::Weights;
use zoo_oracle::{Mask, SMALL_HEADS, SMALL_SEQUENCE, expected_kv_heads};

pub(crate) fn trials(suite: &mut Suite) {
    for mechanism in Mechanism::ALL {
        let name = format!("multi-head/trains-with-{mechanism}");
        suite.add_training(name, move |device| {
            check_training(mechanism.small_for_tests(), device)
        });
        let name = format!("multi-head/decodes-with-{mechanism}");
        suite.add(name, move |device| {
            decoding::check_decoding(mechanism, device)
        });
    }
    let name = "multi-head/retention-with-group-norm";
    suite.add(name, retention::check_group_norm);
    suite.add_table("multi-head/", decoding::TESTS);
    suite.add_table("multi-head/", TESTS);
}

/// Two KV heads for four query heads, unless the mechanism determines the number or its keys are
/// its queries.
pub(crate) fn test_kv_heads(mechanism: &MechanismConfig) -> Option<usize> {
    let is_fixed =
        expected_kv_heads(mechanism, 4).is_some() || mechanism.mechanism() == Mechanism::Lsh;
    (!is_fixed).then_some(2)
}

pub(crate) fn self_attention(
    layer: &MultiHeadAttention,
    x: &Tensor<3>,
    pattern: Pattern,
) -> Tensor<3> {
    layer
        .forward(AttentionInput::self_attn(x.clone()).pattern(pattern))
        .context
}

/// Decodes the positions that are not in the cache yet, one at a time.
pub(crate) fn decode_all(
    layer: &MultiHeadAttention,
    x: &Tensor<3>,
    cache: &mut DecodeCache,
) -> Tensor<3> {
    let positions = cache.len()..x.dims()[1];
    let steps = positions.map(|i| layer.step(x.clone().slice_dim(1, i..i + 1), cache));
    Tensor::cat(steps.collect(), 1)
}

/// Two layers with residual connections.
#[derive(Module, Debug)]
struct TwoLayers {
    first: MultiHeadAttention,
    second: MultiHeadAttention,
}

impl TwoLayers {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let x = self_attention(&self.first, &x, Pattern::Causal) + x;
        self_attention(&self.second, &x, Pattern::Causal) + x
    }
}

/// Trains a model to copy the first position to all others. Checks that the loss decreases.
pub(crate) fn check_training(mechanism: MechanismConfig, device: &Device) {
    const SEQ: usize = SMALL_SEQUENCE;
    assert_not_full_attention(&mechanism, SMALL_HEADS, [SEQ; 2], Mask::Causal, device);
    device.seed(7);
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(mechanism);
    let mut model = TwoLayers {
        first: config.init(device),
        second: config.init(device),
    };
    let input = random_normal([16, SEQ, 8], device);
    let target = input.clone().slice_dim(1, 0..1).expand([16, SEQ, 8]);
    let mut losses = Vec::new();
    // Enough steps for any random state of the device.
    for _ in 0..24 {
        let error = model.forward(input.clone()) - target.clone();
        let loss = error.square().mean();
        losses.push(loss.clone().into_scalar::<f32>());
        model = gradient_step(model, &loss.backward(), 0.2);
    }
    assert!(losses[23] < 0.9 * losses[0], "{losses:?}");
}

/// The paths of a module's parameters.
fn names(module: &impl Module) -> Vec<String> {
    let weights = Weights::from_model(module);
    weights.keys().map(ToOwned::to_owned).collect()
}

/// The module after a step of gradient descent. Every parameter must have a gradient.
pub(crate) fn gradient_step<M: Module>(module: M, gradients: &Gradients, rate: f64) -> M {
    let mut descent = Descent {
        gradients,
        rate,
        missing: 0,
    };
    let module = module.map(&mut descent);
    assert_eq!(descent.missing, 0, "parameters without a gradient");
    module
}

struct Descent<'a> {
    gradients: &'a Gradients,
    rate: f64,
    /// Number of parameters without a gradient.
    missing: usize,
}

impl ModuleMapper for Descent<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| match tensor.grad(self.gradients) {
            Some(gradient) => {
                let updated = tensor.inner() - gradient.mul_scalar(self.rate);
                Tensor::from_inner(updated).require_grad()
            }
            None => {
                // Tensors that are not trained have no gradient.
                self.missing += usize::from(tensor.is_require_grad());
                tensor
            }
        })
    }
}

const TESTS: &[(&str, Test)] = &[
    ("matches-burn-nn", |device| {
        let theirs = burn_nn::MultiHeadAttentionConfig::new(12, 3)
            .with_dropout(0.0)
            .init(device);
        let (query, memory) = (
            random_normal([2, 5, 12], device),
            random_normal([2, 7, 12], device),
        );
        let input = burn_nn::MhaInput::new(query.clone(), memory.clone(), memory.clone());
        let want = theirs.forward(input).context;
        for mechanism in [Mechanism::Standard, Mechanism::Flash] {
            let mut ours = MultiHeadAttentionConfig::new(12, 3)
                .with_mechanism(mechanism)
                .init(device);
            ours.query = theirs.query.clone();
            ours.key = Some(theirs.key.clone());
            ours.value = theirs.value.clone();
            ours.output = theirs.output.clone();
            let got = ours
                .forward(AttentionInput::cross_attn(query.clone(), memory.clone()))
                .context;
            assert_close(got, want.clone());
        }
    }),
    ("parameter-names-match-burn-nn", |device| {
        let ours = names(&MultiHeadAttentionConfig::new(12, 3).init(device));
        let theirs = names(&burn_nn::MultiHeadAttentionConfig::new(12, 3).init(device));
        assert_eq!((ours.len(), ours), (8, theirs));
    }),
    ("lsh-has-no-key-parameters", |device| {
        let device = &device.clone().autodiff();
        let mechanism = Lsh::new(2, 3, 5);
        let attention = MultiHeadAttentionConfig::new(12, 2)
            .with_mechanism(mechanism)
            .with_positions(Positions::Rotary { theta: 1e4 })
            .with_qk_norm(true)
            .init(device);
        let names = names(&attention);
        assert!(!names.iter().any(|name| name.contains("key")), "{names:?}");
        let x = random_normal([2, 9, 12], device);
        let result = self_attention(&attention, &x, Pattern::Causal);
        // All parameters have gradients.
        let gradients = result.clone().square().sum().backward();
        gradient_step(attention.clone(), &gradients, 0.0);
        let heads = |tensor: Tensor<3>| tensor.reshape([2, 9, 2, 6]).swap_dims(1, 2);
        // Training passes sample hash directions, inference uses those of the seed.
        let again = self_attention(&attention, &x, Pattern::Causal);
        assert!(
            !is_close(result, again),
            "the same hashes were sampled twice"
        );
        let (attention, x) = (attention.valid(), x.inner());
        let query = heads(attention.query.forward(x.clone()));
        let norm = attention.query_norm.as_ref().expect("a query norm");
        let query = rotate(norm.forward(query), 0, 1e4);
        let value = heads(attention.value.forward(x.clone()));
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let context = lsh(query, value, &mechanism, &options);
        let context = context.swap_dims(1, 2).reshape([2, 9, 12]);
        let result = self_attention(&attention, &x, Pattern::Causal);
        assert_close(result, attention.output.forward(context));
    }),
    ("temperature-divides-scores", |device| {
        let x = random_normal([2, 5, 12], device);
        for mechanism in [Mechanism::Flash, Mechanism::Dot, Mechanism::Multiplicative] {
            let config = MultiHeadAttentionConfig::new(12, 3).with_mechanism(mechanism);
            let layer = config.clone().with_temperature(4.0).init(device);
            // Equivalent to queries divided by 4.
            let mut divided = config.init(device).load_record(layer.clone().into_record());
            divided.query.weight = divided.query.weight.map(|weight| weight.div_scalar(4.0));
            divided.query.bias = (divided.query.bias).map(|bias| bias.map(|b| b.div_scalar(4.0)));
            let [got, want] =
                [layer, divided].map(|layer| self_attention(&layer, &x, Pattern::Full));
            assert_close(got, want);
        }
    }),
    ("softcap-caps-scores", |device| {
        let x = random_normal([2, 5, 12], device).mul_scalar(4.0);
        let attention = MultiHeadAttentionConfig::new(12, 3).with_softcap(Some(0.5));
        let attention = attention.init(device);
        let heads = |projected: Tensor<3>| projected.reshape([2, 5, 3, 4]).swap_dims(1, 2);
        let query = heads(attention.query.forward(x.clone()));
        let key = heads(attention.key.as_ref().expect("keys").forward(x.clone()));
        let value = heads(attention.value.forward(x.clone()));
        let reference = |options: &AttentionOptions| {
            let context = standard(query.clone(), key.clone(), value.clone(), options).context;
            let context = context.swap_dims(1, 2).reshape([2, 5, 12]);
            attention.output.forward(context)
        };
        let got = self_attention(&attention, &x, Pattern::Full);
        let capped = AttentionOptions::new().with_softcap(0.5);
        assert_close(got.clone(), reference(&capped));
        let is_uncapped = is_close(got, reference(&AttentionOptions::new()));
        assert!(!is_uncapped, "the softcap has no effect");
    }),
    ("hard-samples-only-in-training", |device| {
        let autodiff = &device.clone().autodiff();
        let attention = MultiHeadAttentionConfig::new(8, 2)
            .with_mechanism(Mechanism::Hard)
            .init(autodiff);
        let x = random_normal([2, 9, 8], autodiff);
        let attend = |attention: &MultiHeadAttention, x: &Tensor<3>| {
            attention.forward(AttentionInput::self_attn(x.clone()))
        };
        let [once, again] = [(); 2].map(|()| attend(&attention, &x).context);
        assert!(!is_close(once, again), "the same keys were sampled twice");
        // Frozen, and on a device without autodiff.
        let frozen = attention.clone().freeze();
        let output = attend(&frozen, &x);
        let once = output.context.clone();
        assert_close(once.clone(), attend(&frozen, &x).context);
        let largest = to_vec(output.into_weights().max_dim(3));
        assert!(largest.iter().all(|&weight| weight == 1.0), "{largest:?}");
        let plain = attend(&attention.valid(), &x.inner());
        assert_close(plain.context, once.inner());
    }),
    ("number-of-kv-heads", |device| {
        let d_head = 2;
        for mechanism in [Mechanism::GroupedQuery, Mechanism::MultiQuery] {
            let mechanism = MechanismConfig::from(mechanism);
            for heads in [2, 6, 8, 12] {
                let config = MultiHeadAttentionConfig::new(d_head * heads, heads);
                let attention = config.with_mechanism(mechanism).init(device);
                let kv_heads = expected_kv_heads(&mechanism, heads).expect("a fixed number");
                let [_, width] = attention.value.weight.dims();
                assert_eq!(width, kv_heads * d_head, "{mechanism:?}, {heads} heads");
            }
        }
    }),
    (
        "returns-weights-if-the-mechanism-materialises-them",
        |device| {
            const SEQ: usize = SMALL_SEQUENCE;
            let x = random_normal([1, SEQ, 8], device);
            for mechanism in Mechanism::ALL {
                let small = mechanism.small_for_tests();
                assert_not_full_attention(&small, SMALL_HEADS, [SEQ; 2], Mask::Causal, device);
                let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(small);
                let attention = config.init(device);
                let input = AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal);
                let output = attention.forward(input);
                if mechanism.returns_weights() {
                    let dims = output.into_weights().dims();
                    assert_eq!(dims, [1, SMALL_HEADS, SEQ, SEQ], "{mechanism}");
                } else {
                    assert_panics_containing(
                        || output.into_weights(),
                        "attention output: this mechanism does not materialise its weights",
                    );
                }
            }
        },
    ),
    ("rotary-scores-depend-only-on-the-distance", |device| {
        let [query, key] = [(); 2].map(|()| random_normal([1, 2, 6, 8], device));
        let scores = |first: i64| {
            let rotated = |tensor: &Tensor<4>| rotate(tensor.clone(), first, 1e4);
            rotated(&query).matmul(rotated(&key).swap_dims(2, 3))
        };
        assert_close(scores(0), scores(1000));
        let plain = query.clone().matmul(key.clone().swap_dims(2, 3));
        assert!(!is_close(scores(0), plain), "rotation has no effect");
    }),
    ("all-options", |device| {
        let device = &device.clone().autodiff();
        let attention = MultiHeadAttentionConfig::new(16, 4)
            .with_n_heads_kv(2)
            .with_d_head(6)
            .with_positions(Positions::Rotary { theta: 1e4 })
            .with_qk_norm(true)
            .with_temperature(2.0)
            .with_dropout(0.5)
            .with_key_bias(false)
            .init(device);
        let x = random_normal([2, 5, 16], device);
        let twice = |layer: &MultiHeadAttention| {
            let [once, again] = [(); 2].map(|()| self_attention(layer, &x, Pattern::Causal));
            assert_eq!(once.dims(), [2, 5, 16]);
            is_close(once, again)
        };
        assert!(!twice(&attention), "the same weights were dropped twice");
        assert!(twice(&attention.freeze()), "a frozen layer applies dropout");
    }),
    ("flops", |device| {
        let flops = |mechanism: MechanismConfig, [seq_q, seq_k]: [usize; 2], causal: bool| {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            config.init(device).flops(seq_q, seq_k, causal)
        };
        let projections = 2.0 * 8.0 * (4.0 * 64.0 / 2.0); // 3 and 5 positions, two matrices each
        let by_pair = 2.0 * 2.0 * 4.0; // score and value, d_head = 4
        let full = projections + 2.0 * 15.0 * by_pair;
        let state = 2.0 * 4.0 * 4.0; // of a key or query
        let causal = projections + 2.0 * 12.0 * by_pair;
        let windowed = projections + 2.0 * 10.0 * by_pair;
        let linear = projections + 2.0 * 8.0 * state;
        let multiplicative = full + 2.0 * 2.0 * 3.0 * 16.0;
        // One key and value head instead of two.
        let shared = projections - 2.0 * 5.0 * (2.0 * 32.0) + 2.0 * 15.0 * by_pair;
        let window = SlidingWindow { window: 1 };
        use Mechanism::{Flash, Linear, MultiQuery, Multiplicative};
        for (mechanism, seq, is_causal, want) in [
            (Flash.into(), [3, 5], false, full),
            (Flash.into(), [3, 5], true, causal),
            (window.into(), [4, 4], false, windowed),
            (Linear.into(), [3, 5], true, linear),
            (MultiQuery.into(), [3, 5], false, shared),
            (Multiplicative.into(), [3, 5], false, multiplicative),
        ] {
            assert_eq!(flops(mechanism, seq, is_causal), want, "{mechanism:?}");
        }
    }),
];
