//! The multi-head attention module.

mod decoding;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, attention as burn_nn};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Gradients, activation};
use zoo_attention::mechanisms::forgetting::forgetting;
use zoo_attention::mechanisms::{
    Differential, GatedDelta, Lsh, Retention, ShortConvolution, Sink, SlidingWindow, lsh,
};
use zoo_attention::{DecodeCache, Rotary, rotate};
use zoo_models::weights::Weights;
use zoo_oracle::expected_kv_heads;

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let all = Mechanism::ALL;
    suite.add_each("multi-head/trains-with-", all, |mechanism, device| {
        check_training(mechanism.small_for_tests(), &device.clone().autodiff());
    });
    suite.add_each("multi-head/decodes-with-", all, decoding::check_decoding);
    let name = "multi-head/retention-with-group-norm";
    suite.add(name, retention_with_group_norm);
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

/// The causal pattern, unless the mechanism is never causal.
pub(crate) fn causal_or_full(mechanism: &MechanismConfig) -> Pattern {
    match mechanism.capabilities().causal {
        Ok(()) => Pattern::Causal,
        Err(_) => Pattern::Full,
    }
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

/// Query, key and value of a layer with three heads, without shared heads or positions.
fn three_heads(layer: &MultiHeadAttention, x: &Tensor<3>) -> [Tensor<4>; 3] {
    let key = layer.key.as_ref().expect("keys");
    let projections = [&layer.query, key, &layer.value];
    projections.map(|projection| split_heads(projection.forward(x.clone()), 3))
}

fn retention_with_group_norm(device: &Device) {
    let [plain, layer] = [false, true].map(|group_norm| {
        MultiHeadAttentionConfig::new(12, 3)
            .with_mechanism(Retention { group_norm })
            .init(device)
    });
    // The norm has no parameters.
    assert_eq!(names(&plain), names(&layer));
    let x = random_normal([2, 7, 12], device);
    for (layer, group_norm) in [(&layer, true), (&plain, false)] {
        let want = layer
            .output
            .forward(retention_reference(layer, &x, group_norm));
        assert_close(self_attention(layer, &x, Pattern::Causal), want.clone());
        let mut cache = must(layer.decode_cache(7));
        assert_close(decode_all(layer, &x, &mut cache), want);
    }
}

/// `[batch, seq, d_model]`: retention, which the oracle checks, and the norm by its formula.
fn retention_reference(layer: &MultiHeadAttention, x: &Tensor<3>, group_norm: bool) -> Tensor<3> {
    let [query, key, value] = three_heads(layer, x);
    let options = AttentionOptions::new().with_pattern(Pattern::Causal);
    let mechanism = Retention { group_norm: false };
    let mut context = attend(mechanism, query, key, value, &options);
    if group_norm {
        let centred = context.clone() - context.mean_dim(3);
        let variance = centred.clone().square().mean_dim(3);
        context = centred / (variance + 1e-5).sqrt();
    }
    merge_heads(context)
}

/// Two layers with residual connections.
#[derive(Module, Debug)]
struct TwoLayers {
    first: MultiHeadAttention,
    second: MultiHeadAttention,
}

impl TwoLayers {
    fn forward(&self, x: Tensor<3>, pattern: &Pattern) -> Tensor<3> {
        let x = self_attention(&self.first, &x, pattern.clone()) + x;
        self_attention(&self.second, &x, pattern.clone()) + x
    }
}

/// Trains a model to copy the first position to all others. Checks that the loss decreases.
pub(crate) fn check_training(mechanism: MechanismConfig, device: &Device) {
    const SEQ: usize = SMALL_SEQUENCE;
    let mask = match mechanism.capabilities().causal {
        Ok(()) => Mask::Causal,
        Err(_) => Mask::Full,
    };
    assert_not_full_attention(&mechanism, SMALL_HEADS, [SEQ; 2], mask, device);
    let pattern = causal_or_full(&mechanism);
    device.seed(7);
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(mechanism);
    let mut model = TwoLayers {
        first: config.init(device),
        second: config.init(device),
    };
    let input = random_normal([16, SEQ, 8], device);
    let target = input.clone().slice_dim(1, 0..1).expand([16, SEQ, 8]);
    // Tests that run in parallel share the random state of the device, and a few initial weights
    // need many steps.
    const MAX_STEPS: usize = 300;
    let mut losses: Vec<f32> = Vec::new();
    let mut has_decreased = false;
    while !has_decreased && losses.len() < MAX_STEPS {
        let error = model.forward(input.clone(), &pattern) - target.clone();
        let loss = error.square().mean();
        losses.push(loss.clone().into_scalar());
        model = gradient_step(model, loss.backward(), 0.2);
        has_decreased = losses[losses.len() - 1] < 0.9 * losses[0];
    }
    assert!(has_decreased, "{losses:?}");
}

/// The paths of a module's parameters.
fn names(module: &impl Module) -> Vec<String> {
    let weights = Weights::from_model(module);
    weights.keys().map(ToOwned::to_owned).collect()
}

/// The module after a step of gradient descent. Every parameter must have a gradient.
pub(crate) fn gradient_step<M: Module>(module: M, gradients: Gradients, rate: f64) -> M {
    let gradients = GradientsParams::from_grads(gradients, &module);
    let mut trained = TrainedParameters(0);
    module.visit(&mut trained);
    assert_eq!(gradients.len(), trained.0, "parameters without a gradient");
    SgdConfig::new().init().step(rate, module, gradients)
}

/// Counts the parameters that are trained.
struct TrainedParameters(usize);

impl ModuleVisitor for TrainedParameters {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0 += usize::from(param.is_require_grad());
    }
}

const TESTS: &[(&str, Test)] = &[
    ("matches-burn-nn", |device| {
        let theirs = burn_nn::MultiHeadAttentionConfig::new(12, 3)
            .with_dropout(0.0)
            .init(device);
        let [query, memory] = [5, 7].map(|seq| random_normal([2, seq, 12], device));
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
            let input = AttentionInput::cross_attn(query.clone(), memory.clone());
            assert_close(ours.forward(input).context, want.clone());
        }
    }),
    ("output-gate", |device| {
        let config = MultiHeadAttentionConfig::new(12, 3).with_output_gate(true);
        let layer = config.init(device);
        let x = random_normal([2, 7, 12], device);
        let [query, key, value] = three_heads(&layer, &x);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let context = merge_heads(attend(Mechanism::Standard, query, key, value, &options));
        let gate = layer.gate.as_ref().expect("a gate").forward(x.clone());
        let gated = context.clone() / (gate.neg().exp() + 1.0);
        let want = layer.output.forward(gated);
        assert!(!is_close(layer.output.forward(context), want.clone()));
        assert_close(self_attention(&layer, &x, Pattern::Causal), want.clone());
        let mut cache = must(layer.decode_cache(1));
        let first = layer.prefill(x.clone().slice_dim(1, 0..4), &mut cache);
        let rest = decode_all(&layer, &x, &mut cache);
        assert_close(Tensor::cat(vec![first, rest], 1), want);
        let memory = layer.project_memory(x.clone(), x.clone());
        let query = x.clone().slice_dim(1, 0..5);
        let crossed = layer.cross_attend(query.clone(), &memory, Pattern::Full);
        let input = AttentionInput::cross_attn(query.clone(), x.clone());
        assert_close(crossed, layer.forward(input).context);
        let from = layer.cross_attend_from(2, query.clone(), &memory, Pattern::Full);
        assert_close(from, layer.cross_attend(query, &memory, Pattern::Full));
        // A projection, twice the operations of its elements for each position.
        let plain = MultiHeadAttentionConfig::new(12, 3).init(device);
        let more = layer.flops(7, 7, true) - plain.flops(7, 7, true);
        assert_eq!(more, 2.0 * 7.0 * 144.0);
    }),
    ("short-convolution", |device| {
        let mechanism = GatedDelta {
            head_norm: false,
            short_conv: Some(4),
        };
        let layer = MultiHeadAttentionConfig::new(12, 3)
            .with_mechanism(mechanism)
            .init(device);
        let convolution = layer.params.short_conv.as_ref().expect("weights");
        let x = random_normal([2, 9, 12], device);
        // Without weights of earlier positions and with a weight of 1, it is SiLU.
        let mut pointwise = layer.clone();
        let ones = || {
            let rows = Tensor::zeros([3, 12], device);
            Param::from_tensor(Tensor::cat(vec![Tensor::ones([1, 12], device), rows], 0))
        };
        pointwise.params.short_conv = Some(ShortConvolution {
            query: ones(),
            key: ones(),
            value: ones(),
        });
        let mut plain = layer.clone();
        plain.params.short_conv = None;
        let [_, _, value] = three_heads(&layer, &x).map(activation::silu);
        let gated = |layer: &MultiHeadAttention| self_attention(layer, &x, Pattern::Causal);
        assert!(!is_close(gated(&plain), gated(&layer)));
        assert!(!is_close(gated(&pointwise), gated(&layer)));
        let rows = [8];
        let weights = pointwise.explain(
            AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal),
            &rows,
        );
        let context = merge_heads(weights.matmul(value));
        let want = gated(&pointwise).slice_dim(1, 8..9);
        assert_close(layer.output.forward(context), want);
        // Prompts shorter than the convolution, of its length, and longer.
        let want = gated(&layer);
        for prompt in [1, 2, 3, 4, 7] {
            let mut cache = must(layer.decode_cache(1));
            let first = layer.prefill(x.clone().slice_dim(1, 0..prompt), &mut cache);
            let rest = decode_all(&layer, &x, &mut cache);
            assert_close(Tensor::cat(vec![first, rest], 1), want.clone());
            // A state of 4 x 4 elements for each head, and three inputs of 36 elements.
            assert_eq!(cache.num_elements(), 2 * (3 * 16 + 3 * 36));
        }
        let mut cache = must(layer.decode_cache(1));
        layer.prefill(x.clone().slice_dim(1, 0..5), &mut cache);
        let mut second = cache.select(&[1]);
        let last = decode_all(&layer, &x.clone().slice_dim(0, 1..2), &mut second);
        assert_close(last, want.slice_dim(0, 1..2).slice_dim(1, 5..9));
        assert_eq!(convolution.query.dims(), [4, 12]);
    }),
    ("head-norm-of-differential-attention", |device| {
        let differential = Differential {
            lambda_init: 0.6,
            head_norm: true,
        };
        let plain = Differential {
            head_norm: false,
            ..differential
        };
        let layer = MultiHeadAttentionConfig::new(12, 3)
            .with_mechanism(differential)
            .init(device);
        let x = random_normal([2, 7, 12], device);
        let [query, key, value] = three_heads(&layer, &x);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        // The initial vectors are those of the layer.
        let context = attend(plain, query, key, value, &options);
        let mean_square = context.clone().square().mean_dim(3);
        let normalised = context / (mean_square + 1e-5).sqrt() * 0.4;
        let want = layer.output.forward(merge_heads(normalised));
        assert_close(self_attention(&layer, &x, Pattern::Causal), want.clone());
        let mut cache = must(layer.decode_cache(7));
        assert_close(decode_all(&layer, &x, &mut cache), want);
    }),
    // The gates of a layer are those of its input, also after a prompt, beams and truncation.
    ("gates-of-forgetting-attention", |device| {
        let mut layer = MultiHeadAttentionConfig::new(12, 3)
            .with_mechanism(Mechanism::Forgetting)
            .init(device);
        // The logarithms of 150 gates of 0.5 would add up to 100, whose rounding exceeds the tolerance.
        layer.params.decay = layer.params.decay.map(|decay| Linear {
            bias: decay.bias.map(|bias| bias.map(|bias| bias + 2.0)),
            ..decay
        });
        let x = random_normal([2, 150, 12], device);
        let [query, key, value] = three_heads(&layer, &x);
        let decay = layer.params.decay.as_ref().expect("a projection");
        let gates = activation::log_sigmoid(decay.forward(x.clone())).swap_dims(1, 2);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let context = forgetting(query, key, value, gates, &options);
        let want = layer.output.forward(merge_heads(context));
        assert_close(self_attention(&layer, &x, Pattern::Causal), want.clone());
        let mut plain = MultiHeadAttentionConfig::new(12, 3).init(device);
        plain.query = layer.query.clone();
        plain.key = layer.key.clone();
        plain.value = layer.value.clone();
        plain.output = layer.output.clone();
        let without_gates = self_attention(&plain, &x, Pattern::Causal);
        assert!(!is_close(without_gates, want.clone()));

        let mut cache = must(layer.decode_cache(1));
        layer.prefill(x.clone().slice_dim(1, 0..146), &mut cache);
        let mut swapped = cache.select(&[1, 0]);
        let last = |x: &Tensor<3>| x.clone().slice_dim(1, 146..150);
        assert_close(decode_all(&layer, &x, &mut cache), last(&want));
        must(cache.truncate(147));
        let again = decode_all(&layer, &x, &mut cache);
        assert_close(again, want.clone().slice_dim(1, 147..150));
        let got = decode_all(&layer, &x.flip([0]), &mut swapped);
        assert_close(got, last(&want.flip([0])));
    }),
    // The first positions and a window, which wraps around several times.
    ("streaming-with-a-sink", |device| {
        let sink = Sink {
            learned: true,
            window: Some(5),
            first: 3,
        };
        let mut layer = MultiHeadAttentionConfig::new(12, 3)
            .with_mechanism(sink)
            .init(device);
        let sinks = Tensor::<1>::from_floats([0.5, -1.0, 2.0], device);
        layer.params.sink = Some(Param::from_tensor(sinks));
        let x = random_normal([1, 40, 12], device);
        let full = self_attention(&layer, &x, Pattern::Causal);
        for prompt in [1, 2, 3, 4, 9, 12, 30] {
            let mut cache = must(layer.decode_cache(1));
            let first = layer.prefill(x.clone().slice_dim(1, 0..prompt), &mut cache);
            let rest = decode_all(&layer, &x, &mut cache);
            assert_close(Tensor::cat(vec![first, rest], 1), full.clone());
            // Three heads of four elements, keys and values.
            assert_eq!(cache.num_elements(), 2 * 12 * (3 + 6), "prompt of {prompt}");
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
            .with_positions(Positions::rotary(1e4))
            .with_qk_norm(true)
            .init(device);
        let names = names(&attention);
        assert!(!names.iter().any(|name| name.contains("key")), "{names:?}");
        let x = random_normal([2, 9, 12], device);
        let result = self_attention(&attention, &x, Pattern::Causal);
        // All parameters have gradients.
        let gradients = result.clone().square().sum().backward();
        gradient_step(attention.clone(), gradients, 0.0);
        // Training passes sample hash directions, inference uses those of the seed.
        let again = self_attention(&attention, &x, Pattern::Causal);
        assert!(!is_close(result, again), "hashes were sampled only once");
        let (attention, x) = (attention.valid(), x.inner());
        let query = split_heads(attention.query.forward(x.clone()), 2);
        let norm = attention.query_norm.as_ref().expect("a query norm");
        let query = rotate(norm.forward(query), 0, &Rotary::default());
        let value = split_heads(attention.value.forward(x.clone()), 2);
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let context = merge_heads(lsh(query, value, &mechanism, &options));
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
        let [query, key, value] = three_heads(&attention, &x);
        let reference = |options: &AttentionOptions| {
            let context = standard(query.clone(), key.clone(), value.clone(), options).context;
            attention.output.forward(merge_heads(context))
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
        let once = attend(&frozen, &x).context;
        assert_close(once.clone(), attend(&frozen, &x).context);
        let weights = frozen.explain(AttentionInput::self_attn(x.clone()), &[0, 8]);
        let largest = to_vec(weights.max_dim(3));
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
                let attention = MultiHeadAttentionConfig::new(8, SMALL_HEADS)
                    .with_mechanism(small)
                    .init(device);
                let pattern = causal_or_full(&small);
                let input = AttentionInput::self_attn(x.clone()).pattern(pattern);
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
    ("all-options", |device| {
        let device = &device.clone().autodiff();
        let attention = MultiHeadAttentionConfig::new(16, 4)
            .with_n_heads_kv(2)
            .with_d_head(6)
            .with_positions(Positions::rotary(1e4))
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
