//! The module around the mechanisms.

mod decoding;
mod retention;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention as burn_nn;
use burn::tensor::{Device, Distribution, Gradients, Tensor};
use libtest_mimic::Failed;
use zoo_attention::{
    AttentionOptions, Lsh, Mechanism, MechanismConfig, MultiHeadAttention,
    MultiHeadAttentionConfig, Pattern, Positions, lsh, rotate, standard,
};
use zoo_conformance::{Suite, Test, differs_from_full, same};
use zoo_models::weights::Weights;
use zoo_oracle::{Mask, SMALL_HEADS, SMALL_SEQUENCE, kv_heads_of, small_for_tests};

pub(crate) fn trials(suite: &mut Suite) {
    for mechanism in Mechanism::ALL {
        suite.add_training(
            format!("multi-head/learns-with-{mechanism}"),
            move |device| learns(small_for_tests(mechanism), device),
        );
        suite.add(
            format!("multi-head/decodes-with-{mechanism}"),
            move |device| decoding::decodes(mechanism, device),
        );
    }
    suite.add(
        "multi-head/retention-with-group-norm",
        retention::is_the_papers,
    );
    suite.add_table("multi-head/", decoding::TESTS);
    suite.add_table("multi-head/", TESTS);
}

/// How many heads share keys and values: two of four, unless the mechanism says how many,
/// or makes keys of its queries.
pub(crate) fn shared(mechanism: &MechanismConfig) -> Option<usize> {
    let says = kv_heads_of(mechanism, 4).is_some() || mechanism.mechanism() == Mechanism::Lsh;
    (!says).then_some(2)
}

/// Two layers, each with what goes in added to what comes out.
#[derive(Module, Debug)]
struct TwoLayers {
    first: MultiHeadAttention,
    second: MultiHeadAttention,
}

impl TwoLayers {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let layer = |layer: &MultiHeadAttention, x: Tensor<3>| {
            x.clone() + layer.forward(x.clone(), x.clone(), x, Pattern::Causal)
        };
        layer(&self.second, layer(&self.first, x))
    }
}

/// Only the word differs: everybody is to know what stood first.
pub(crate) fn learns(mechanism: MechanismConfig, device: &Device) -> Result<(), Failed> {
    const SEQ: usize = SMALL_SEQUENCE;
    differs_from_full(&mechanism, SMALL_HEADS, [SEQ; 2], Mask::Causal, device)?;
    device.seed(7);
    let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(mechanism);
    let mut model = TwoLayers {
        first: config.init(device),
        second: config.init(device),
    };
    let input = Tensor::<3>::random([16, SEQ, 8], Distribution::Normal(0.0, 1.0), device);
    let wanted = input.clone().slice_dim(1, 0..1).expand([16, SEQ, 8]);
    let mut losses = Vec::new();
    // Enough of them wherever a device's draws begin.
    for _ in 0..24 {
        let missed = model.forward(input.clone()) - wanted.clone();
        let loss = missed.square().mean();
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = loss.backward();
        let mut descent = Descent {
            gradients: &gradients,
            rate: 0.2,
            without: 0,
        };
        model = model.map(&mut descent);
        assert!(
            descent.without == 0,
            "{} parameters have no gradient",
            descent.without
        );
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(
        last < 0.9 * first,
        "the loss went from {first} to {last}: {losses:?}"
    );
    Ok(())
}

/// The names of a module's parameters, each with the modules it is in.
fn names(module: &impl Module) -> Vec<String> {
    let weights = Weights::of(module);
    weights.keys().map(ToOwned::to_owned).collect()
}

/// A step down the gradient.
pub(crate) struct Descent<'a> {
    pub(crate) gradients: &'a Gradients,
    pub(crate) rate: f64,
    /// Parameters that nothing was learned of.
    pub(crate) without: usize,
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
        let draw =
            |seq: usize| Tensor::<3>::random([2, seq, 12], Distribution::Normal(0.0, 1.0), device);
        let (query, memory) = (draw(5), draw(7));
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
            same(got, want.clone())?;
        }
        Ok(())
    }),
    ("projections-are-called-as-in-burn-nn", |device| {
        let ours = MultiHeadAttentionConfig::new(12, 3).init(device);
        let theirs = burn_nn::MultiHeadAttentionConfig::new(12, 3).init(device);
        let (ours, theirs) = (names(&ours), names(&theirs));
        assert!(
            ours == theirs && ours.len() == 8,
            "{ours:?} instead of {theirs:?}"
        );
        Ok(())
    }),
    ("keys-made-of-queries-have-no-parameters", |device| {
        let device = &device.clone().autodiff();
        let (bucket, rounds, seed) = (2, 3, 5);
        let attention = MultiHeadAttentionConfig::new(12, 2)
            .with_mechanism(MechanismConfig::Lsh(Lsh {
                bucket,
                rounds,
                seed,
            }))
            .with_positions(Positions::Rotary { theta: 1e4 })
            .with_qk_norm(true)
            .init(device);
        assert!(
            !names(&attention).iter().any(|name| name.contains("key")),
            "{:?}",
            names(&attention)
        );
        let x = Tensor::<3>::random([2, 9, 12], Distribution::Normal(0.0, 1.0), device);
        let result = attention.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
        // And each that there is has something to learn.
        let gradients = result.clone().square().sum().backward();
        let mut descent = Descent {
            gradients: &gradients,
            rate: 0.0,
            without: 0,
        };
        attention.clone().map(&mut descent);
        assert!(
            descent.without == 0,
            "{} parameters have no gradient",
            descent.without
        );
        let heads = |tensor: Tensor<3>| tensor.reshape([2, 9, 2, 6]).swap_dims(1, 2);
        let query = heads(attention.query.forward(x.clone()));
        let norm = attention.query_norm.as_ref().ok_or("it was asked for")?;
        let query = rotate(norm.forward(query), 0, 1e4);
        let value = heads(attention.value.forward(x));
        let options = AttentionOptions::new().with_pattern(Pattern::Causal);
        let by_hand = lsh(query, value, &Lsh::new(bucket, rounds, seed), &options);
        let by_hand = by_hand.swap_dims(1, 2).reshape([2, 9, 12]);
        same(result, attention.output.forward(by_hand))
    }),
    ("a-temperature-divides-scores", |device| {
        let x = Tensor::<3>::random([2, 5, 12], Distribution::Normal(0.0, 1.0), device);
        for mechanism in [Mechanism::Flash, Mechanism::Dot, Mechanism::Multiplicative] {
            let config = MultiHeadAttentionConfig::new(12, 3).with_mechanism(mechanism.into());
            let hot = config.clone().with_temperature(4.0).init(device);
            // The same as queries that are a quarter as large.
            let mut cool = config.init(device);
            cool.query = hot.query.clone();
            cool.key = hot.key.clone();
            cool.value = hot.value.clone();
            cool.output = hot.output.clone();
            cool.query.weight = cool.query.weight.map(|weight| weight.div_scalar(4.0));
            cool.query.bias = cool.query.bias.map(|bias| bias.map(|b| b.div_scalar(4.0)));
            let of = |attention: &MultiHeadAttention| {
                attention.forward(x.clone(), x.clone(), x.clone(), Pattern::Full)
            };
            same(of(&hot), of(&cool))?;
        }
        Ok(())
    }),
    ("a-softcap-caps-scores", |device| {
        let x = Tensor::<3>::random([2, 5, 12], Distribution::Normal(0.0, 4.0), device);
        let attention = MultiHeadAttentionConfig::new(12, 3).with_softcap(Some(0.5));
        let attention = attention.init(device);
        let heads = |projected: Tensor<3>| projected.reshape([2, 5, 3, 4]).swap_dims(1, 2);
        let query = heads(attention.query.forward(x.clone()));
        let key = heads(attention.key.as_ref().ok_or("no keys")?.forward(x.clone()));
        let value = heads(attention.value.forward(x.clone()));
        let by_hand = |options: &AttentionOptions| {
            let context = standard(query.clone(), key.clone(), value.clone(), options).context;
            let context = context.swap_dims(1, 2).reshape([2, 5, 12]);
            attention.output.forward(context)
        };
        let got = attention.forward(x.clone(), x.clone(), x, Pattern::Full);
        let capped = AttentionOptions::new().with_softcap(0.5);
        same(got.clone(), by_hand(&capped))?;
        // The cap changes something.
        match same(got, by_hand(&AttentionOptions::new())) {
            Ok(()) => Err("the scores are below the cap".into()),
            Err(_) => Ok(()),
        }
    }),
    ("hard-samples-in-training-alone", |device| {
        let autodiff = &device.clone().autodiff();
        let attention = MultiHeadAttentionConfig::new(8, 2)
            .with_mechanism(Mechanism::Hard.into())
            .init(autodiff);
        let x = Tensor::<3>::random([2, 9, 8], Distribution::Normal(0.0, 1.0), autodiff);
        let of = |attention: &MultiHeadAttention, x: &Tensor<3>| {
            let x = || x.clone();
            let weighed = attention.forward_with_weights(x(), x(), x(), Pattern::Full);
            weighed.map_err(|error| Failed::from(error.to_string()))
        };
        let [(once, _), (again, _)] = [of(&attention, &x)?, of(&attention, &x)?];
        assert!(same(once, again).is_err(), "the same keys were drawn twice");
        // Frozen, and on a device that takes no gradients.
        let frozen = attention.clone().freeze();
        let (once, weights) = of(&frozen, &x)?;
        let (again, _) = of(&frozen, &x)?;
        same(once.clone(), again)?;
        let best: Vec<f32> = weights
            .max_dim(3)
            .try_into_vec_as()
            .map_err(|error| format!("{error:?}"))?;
        assert!(
            !best.iter().any(|&weight| weight != 1.0),
            "not one key alone: {best:?}"
        );
        let (plain, _) = of(&attention.valid(), &x.inner())?;
        same(plain, once.inner())
    }),
    ("shares-heads-as-the-oracle-says", |device| {
        let d_head = 2;
        for mechanism in [Mechanism::GroupedQuery, Mechanism::MultiQuery] {
            let mechanism = MechanismConfig::from(mechanism);
            for heads in [2, 6, 8, 12] {
                let config = MultiHeadAttentionConfig::new(d_head * heads, heads);
                let attention = config.with_mechanism(mechanism).init(device);
                let kv_heads = kv_heads_of(&mechanism, heads).ok_or("it says how many")?;
                let [_, width] = attention.value.weight.dims();
                if width != kv_heads * d_head {
                    let message = format!("{mechanism:?}, {heads} heads: {width} numbers");
                    return Err(format!("{message} for {kv_heads} heads of values").into());
                }
            }
        }
        Ok(())
    }),
    ("returns-weights-or-says-who-does", |device| {
        const SEQ: usize = SMALL_SEQUENCE;
        let x = Tensor::<3>::random([1, SEQ, 8], Distribution::Normal(0.0, 1.0), device);
        for mechanism in Mechanism::ALL {
            let small = small_for_tests(mechanism);
            differs_from_full(&small, SMALL_HEADS, [SEQ; 2], Mask::Causal, device)?;
            let config = MultiHeadAttentionConfig::new(8, SMALL_HEADS).with_mechanism(small);
            let attention = config.init(device);
            let x = || x.clone();
            let weighed = attention.forward_with_weights(x(), x(), x(), Pattern::Causal);
            let error = match weighed {
                Ok((result, weights)) if mechanism.returns_weights() => {
                    assert!(
                        weights.dims() == [1, SMALL_HEADS, SEQ, SEQ],
                        "{mechanism}: {:?}",
                        weights.dims()
                    );
                    same(attention.forward(x(), x(), x(), Pattern::Causal), result)?;
                    continue;
                }
                Ok(_) => return Err(format!("{mechanism} returned weights").into()),
                Err(error) => error.to_string(),
            };
            let message = format!(
                "mechanism {mechanism} never holds its weights; these do, and return them: \
                 standard, additive, hard, local-p"
            );
            if mechanism.returns_weights() || error != message {
                return Err(error.into());
            }
        }
        Ok(())
    }),
    ("rotary-products-know-the-distance-alone", |device| {
        let draw = || Tensor::<4>::random([1, 2, 6, 8], Distribution::Normal(0.0, 1.0), device);
        let (query, key) = (draw(), draw());
        let products = |first: i64| {
            let turned = |tensor: &Tensor<4>| rotate(tensor.clone(), first, 1e4);
            turned(&query).matmul(turned(&key).swap_dims(2, 3))
        };
        let [here, there] = [products(0), products(1000)].map(|x| x.reshape([1, 12, 6]));
        same(here.clone(), there)?;
        // And they do know it.
        let plain = query.matmul(key.swap_dims(2, 3)).reshape([1, 12, 6]);
        match same(here, plain) {
            Ok(()) => Err("nothing was turned".into()),
            Err(_) => Ok(()),
        }
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
        let x = Tensor::<3>::random([2, 5, 16], Distribution::Normal(0.0, 1.0), device);
        let result = || attention.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
        let (once, again) = (result(), result());
        assert!(once.dims() == [2, 5, 16], "{:?}", once.dims());
        // Others are forgotten every time, and none where nothing is learned.
        assert!(
            same(once, again).is_err(),
            "the same weights were forgotten twice"
        );
        let frozen = attention.freeze();
        let result = || frozen.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
        same(result(), result())
    }),
];
