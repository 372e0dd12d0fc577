//! The module around the mechanisms.

mod decoding;
mod retention;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention as burn_nn;
use burn::tensor::{Device, Gradients, Tensor};
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::{
    AttentionOptions, DecodeCache, Lsh, Mechanism, MechanismConfig, MultiHeadAttention,
    MultiHeadAttentionConfig, Pattern, Positions, lsh, rotate, standard,
};
use zoo_conformance::*;
use zoo_models::weights::Weights;
use zoo_oracle::{Mask, SMALL_HEADS, SMALL_SEQUENCE, kv_heads_of, small_for_tests};

pub(crate) fn trials(suite: &mut Suite) {
    for mechanism in Mechanism::ALL {
        let name = format!("multi-head/learns-with-{mechanism}");
        suite.add_training(name, move |device| {
            learns(small_for_tests(mechanism), device)
        });
        let name = format!("multi-head/decodes-with-{mechanism}");
        suite.add(name, move |device| decoding::decodes(mechanism, device));
    }
    let name = "multi-head/retention-with-group-norm";
    suite.add(name, retention::is_the_papers);
    suite.add_table("multi-head/", decoding::TESTS);
    suite.add_table("multi-head/", TESTS);
}

/// How many heads share keys and values: two of four, unless the mechanism says how many,
/// or makes keys of its queries.
pub(crate) fn shared(mechanism: &MechanismConfig) -> Option<usize> {
    let says = kv_heads_of(mechanism, 4).is_some() || mechanism.mechanism() == Mechanism::Lsh;
    (!says).then_some(2)
}

pub(crate) fn to_itself(layer: &MultiHeadAttention, x: &Tensor<3>, pattern: Pattern) -> Tensor<3> {
    layer.forward(x.clone(), x.clone(), x.clone(), pattern)
}

/// The layer's results for the places that are not in its cache yet, one after the other.
pub(crate) fn by_steps(
    layer: &MultiHeadAttention,
    x: &Tensor<3>,
    cache: &mut DecodeCache,
) -> Tensor<3> {
    let places = cache.len()..x.dims()[1];
    let steps = places.map(|at| layer.step(x.clone().slice_dim(1, at..at + 1), cache));
    Tensor::cat(steps.collect(), 1)
}

/// Two layers, each with what goes in added to what comes out.
#[derive(Module, Debug)]
struct TwoLayers {
    first: MultiHeadAttention,
    second: MultiHeadAttention,
}

impl TwoLayers {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let x = to_itself(&self.first, &x, Pattern::Causal) + x;
        to_itself(&self.second, &x, Pattern::Causal) + x
    }
}

/// Only the word differs: everybody is to know what stood first.
pub(crate) fn learns(mechanism: MechanismConfig, device: &Device) {
    const SEQ: usize = SMALL_SEQUENCE;
    differs_from_full(&mechanism, SMALL_HEADS, [SEQ; 2], Mask::Causal, device);
    device.seed(7);
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(mechanism);
    let mut model = TwoLayers {
        first: config.init(device),
        second: config.init(device),
    };
    let input = normal([16, SEQ, 8], device);
    let wanted = input.clone().slice_dim(1, 0..1).expand([16, SEQ, 8]);
    let mut losses = Vec::new();
    // Enough of them wherever a device's draws begin.
    for _ in 0..24 {
        let missed = model.forward(input.clone()) - wanted.clone();
        let loss = missed.square().mean();
        losses.push(loss.clone().into_scalar::<f32>());
        model = descended(model, &loss.backward(), 0.2);
    }
    assert!(losses[23] < 0.9 * losses[0], "{losses:?}");
}

/// The names of a module's parameters, each with the modules it is in.
fn names(module: &impl Module) -> Vec<String> {
    let weights = Weights::of(module);
    weights.keys().map(ToOwned::to_owned).collect()
}

/// The module after a step down the gradient, which every parameter must have.
pub(crate) fn descended<M: Module>(module: M, gradients: &Gradients, rate: f64) -> M {
    let mut descent = Descent {
        gradients,
        rate,
        without: 0,
    };
    let module = module.map(&mut descent);
    assert_eq!(descent.without, 0, "parameters without a gradient");
    module
}

struct Descent<'a> {
    gradients: &'a Gradients,
    rate: f64,
    /// Parameters that nothing was learned of.
    without: usize,
}

impl ModuleMapper for Descent<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| match tensor.grad(self.gradients) {
            Some(gradient) => {
                let moved = tensor.inner() - gradient.mul_scalar(self.rate);
                Tensor::from_inner(moved).require_grad()
            }
            None => {
                // What is not learned, but part of the module, has none.
                self.without += usize::from(tensor.is_require_grad());
                tensor
            }
        })
    }
}

const TESTS: &[(&str, Test)] = &[
    ("gives-what-burn-nn-gives", |device| {
        let theirs = burn_nn::MultiHeadAttentionConfig::new(12, 3)
            .with_dropout(0.0)
            .init(device);
        let (query, memory) = (normal([2, 5, 12], device), normal([2, 7, 12], device));
        let input = burn_nn::MhaInput::new(query.clone(), memory.clone(), memory.clone());
        let want = theirs.forward(input).context;
        for mechanism in [Mechanism::Standard, Mechanism::Flash] {
            let mut ours = MultiHeadAttentionConfig::new(12, 3)
                .with_mechanism(mechanism.into())
                .init(device);
            ours.query = theirs.query.clone();
            ours.key = Some(theirs.key.clone());
            ours.value = theirs.value.clone();
            ours.output = theirs.output.clone();
            let got = ours.forward(query.clone(), memory.clone(), memory.clone(), Pattern::Full);
            same(got, want.clone());
        }
    }),
    ("projections-are-called-as-in-burn-nn", |device| {
        let ours = names(&MultiHeadAttentionConfig::new(12, 3).init(device));
        let theirs = names(&burn_nn::MultiHeadAttentionConfig::new(12, 3).init(device));
        assert_eq!((ours.len(), ours), (8, theirs));
    }),
    ("keys-made-of-queries-have-no-parameters", |device| {
        let device = &device.clone().autodiff();
        let mechanism = Lsh::new(2, 3, 5);
        let attention = MultiHeadAttentionConfig::new(12, 2)
            .with_mechanism(mechanism.into())
            .with_positions(Positions::Rotary { theta: 1e4 })
            .with_qk_norm(true)
            .init(device);
        let names = names(&attention);
        assert!(!names.iter().any(|name| name.contains("key")), "{names:?}");
        let x = normal([2, 9, 12], device);
        let result = to_itself(&attention, &x, Pattern::Causal);
        // And each that there is has something to learn.
        let gradients = result.clone().square().sum().backward();
        descended(attention.clone(), &gradients, 0.0);
        let heads = |tensor: Tensor<3>| tensor.reshape([2, 9, 2, 6]).swap_dims(1, 2);
        let query = heads(attention.query.forward(x.clone()));
        let norm = attention.query_norm.as_ref().expect("it was asked for");
        let query = rotate(norm.forward(query), 0, 1e4);
        let value = heads(attention.value.forward(x));
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let by_hand = lsh(query, value, &mechanism, &options);
        let by_hand = by_hand.swap_dims(1, 2).reshape([2, 9, 12]);
        same(result, attention.output.forward(by_hand));
    }),
    ("a-temperature-divides-scores", |device| {
        let x = normal([2, 5, 12], device);
        for mechanism in [Mechanism::Flash, Mechanism::Dot, Mechanism::Multiplicative] {
            let config = MultiHeadAttentionConfig::new(12, 3).with_mechanism(mechanism.into());
            let hot = config.clone().with_temperature(4.0).init(device);
            // The same as queries that are a quarter as large.
            let mut cool = config.init(device).load_record(hot.clone().into_record());
            cool.query.weight = cool.query.weight.map(|weight| weight.div_scalar(4.0));
            cool.query.bias = cool.query.bias.map(|bias| bias.map(|b| b.div_scalar(4.0)));
            let [hot, cool] = [hot, cool].map(|layer| to_itself(&layer, &x, Pattern::Full));
            same(hot, cool);
        }
    }),
    ("a-softcap-caps-scores", |device| {
        let x = normal([2, 5, 12], device).mul_scalar(4.0);
        let attention = MultiHeadAttentionConfig::new(12, 3).with_softcap(Some(0.5));
        let attention = attention.init(device);
        let heads = |projected: Tensor<3>| projected.reshape([2, 5, 3, 4]).swap_dims(1, 2);
        let query = heads(attention.query.forward(x.clone()));
        let key = heads(attention.key.as_ref().expect("keys").forward(x.clone()));
        let value = heads(attention.value.forward(x.clone()));
        let by_hand = |options: &AttentionOptions| {
            let context = standard(query.clone(), key.clone(), value.clone(), options).context;
            let context = context.swap_dims(1, 2).reshape([2, 5, 12]);
            attention.output.forward(context)
        };
        let got = to_itself(&attention, &x, Pattern::Full);
        let capped = AttentionOptions::new().with_softcap(0.5);
        same(got.clone(), by_hand(&capped));
        let is_uncapped = is_same(got, by_hand(&AttentionOptions::new()));
        assert!(!is_uncapped, "the scores are below the cap");
    }),
    ("hard-samples-in-training-alone", |device| {
        let autodiff = &device.clone().autodiff();
        let attention = MultiHeadAttentionConfig::new(8, 2)
            .with_mechanism(Mechanism::Hard.into())
            .init(autodiff);
        let x = normal([2, 9, 8], autodiff);
        let of = |attention: &MultiHeadAttention, x: &Tensor<3>| {
            let x = || x.clone();
            must(attention.forward_with_weights(x(), x(), x(), Pattern::Full))
        };
        let [(once, _), (again, _)] = [of(&attention, &x), of(&attention, &x)];
        assert!(!is_same(once, again), "the same keys were drawn twice");
        // Frozen, and on a device that takes no gradients.
        let frozen = attention.clone().freeze();
        let (once, weights) = of(&frozen, &x);
        let (again, _) = of(&frozen, &x);
        same(once.clone(), again);
        let best = numbers(weights.max_dim(3));
        assert!(best.iter().all(|&weight| weight == 1.0), "{best:?}");
        let (plain, _) = of(&attention.valid(), &x.inner());
        same(plain, once.inner());
    }),
    ("shares-heads-as-the-oracle-says", |device| {
        let d_head = 2;
        for mechanism in [Mechanism::GroupedQuery, Mechanism::MultiQuery] {
            let mechanism = MechanismConfig::from(mechanism);
            for heads in [2, 6, 8, 12] {
                let config = MultiHeadAttentionConfig::new(d_head * heads, heads);
                let attention = config.with_mechanism(mechanism).init(device);
                let kv_heads = kv_heads_of(&mechanism, heads).expect("it says how many");
                let [_, width] = attention.value.weight.dims();
                assert_eq!(width, kv_heads * d_head, "{mechanism:?}, {heads} heads");
            }
        }
    }),
    ("returns-weights-or-says-who-does", |device| {
        const SEQ: usize = SMALL_SEQUENCE;
        let x = normal([1, SEQ, 8], device);
        for mechanism in Mechanism::ALL {
            let small = small_for_tests(mechanism);
            differs_from_full(&small, SMALL_HEADS, [SEQ; 2], Mask::Causal, device);
            let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(small);
            let attention = config.init(device);
            let x = || x.clone();
            let weighed = attention.forward_with_weights(x(), x(), x(), Pattern::Causal);
            if mechanism.returns_weights() {
                let (result, weights) = must(weighed);
                assert_eq!(weights.dims(), [1, SMALL_HEADS, SEQ, SEQ], "{mechanism}");
                same(to_itself(&attention, &x(), Pattern::Causal), result);
                continue;
            }
            let message = format!(
                "mechanism {mechanism} never holds its weights; these do, and return them: \
                 standard, additive, hard, local-p"
            );
            assert_eq!(weighed.err().map(|error| error.to_string()), Some(message));
        }
    }),
    ("rotary-products-know-the-distance-alone", |device| {
        let [query, key] = [(); 2].map(|()| normal([1, 2, 6, 8], device));
        let products = |first: i64| {
            let turned = |tensor: &Tensor<4>| rotate(tensor.clone(), first, 1e4);
            turned(&query).matmul(turned(&key).swap_dims(2, 3))
        };
        same(products(0), products(1000));
        // And they do know it.
        let plain = query.clone().matmul(key.clone().swap_dims(2, 3));
        assert!(!is_same(products(0), plain), "nothing was turned");
    }),
    ("every-option-together", |device| {
        let device = &device.clone().autodiff();
        let attention = MultiHeadAttentionConfig::new(16, 4)
            .with_kv_heads(Some(2))
            .with_d_head(Some(6))
            .with_positions(Positions::Rotary { theta: 1e4 })
            .with_qk_norm(true)
            .with_temperature(2.0)
            .with_dropout(0.5)
            .with_key_bias(false)
            .init(device);
        let x = normal([2, 5, 16], device);
        let twice = |layer: &MultiHeadAttention| {
            let [once, again] = [(); 2].map(|()| to_itself(layer, &x, Pattern::Causal));
            assert_eq!(once.dims(), [2, 5, 16]);
            is_same(once, again)
        };
        // Others are dropped every time, and none where nothing is learned.
        assert!(!twice(&attention), "the same weights were dropped twice");
        assert!(twice(&attention.freeze()), "a frozen layer drops weights");
    }),
    ("work is counted", |device| {
        let flops = |mechanism: MechanismConfig, [seq_q, seq_k]: [usize; 2], causal: bool| {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
            config.init(device).flops(seq_q, seq_k, causal)
        };
        let projections = 2.0 * 8.0 * (4.0 * 64.0 / 2.0); // 3 and 5 places, two matrices each
        let by_pair = 2.0 * 2.0 * 4.0; // score and value, four numbers in a head
        let full = projections + 2.0 * 15.0 * by_pair;
        let state = 2.0 * 4.0 * 4.0; // of a key or a query
        // One key and value head instead of two.
        let shared = projections - 2.0 * 5.0 * (2.0 * 32.0) + 2.0 * 15.0 * by_pair;
        let window = SlidingWindow { window: 1 };
        use Mechanism::{Flash, Linear, MultiQuery, Multiplicative};
        for (mechanism, seq, causal, want) in [
            (Flash.into(), [3, 5], false, full),
            (
                Flash.into(),
                [3, 5],
                true,
                projections + 2.0 * 12.0 * by_pair,
            ),
            (
                window.into(),
                [4, 4],
                false,
                projections + 2.0 * 10.0 * by_pair,
            ),
            (Linear.into(), [3, 5], true, projections + 2.0 * 8.0 * state),
            (MultiQuery.into(), [3, 5], false, shared),
            (
                Multiplicative.into(),
                [3, 5],
                false,
                full + 2.0 * 2.0 * 3.0 * 16.0,
            ),
        ] {
            assert_eq!(flops(mechanism, seq, causal), want, "{mechanism:?}");
        }
    }),
];
