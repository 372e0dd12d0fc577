//! The module around the mechanisms.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::attention as burn_nn;
use burn::tensor::{Device, Distribution, Gradients, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{
    AttentionOptions, CannotDecode, Lsh, Mechanism, MechanismConfig, MultiHeadAttention,
    MultiHeadAttentionConfig, MultiHeadError, Pattern, Positions, lsh, rotate,
};
use zoo_backend::Opened;
use zoo_testkit::Precision;

type Test = fn(&Device) -> Result<(), Failed>;

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    let mut trials: Vec<Trial> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| {
            let device = opened.device.clone().autodiff();
            Trial::test(format!("multi-head/learns-with-{mechanism}"), move || {
                learns(mechanism.into(), &device)
            })
        })
        .collect();
    trials.extend(Mechanism::ALL.into_iter().map(|mechanism| {
        let device = opened.device.clone();
        Trial::test(format!("multi-head/decodes-with-{mechanism}"), move || {
            decodes(mechanism, &device)
        })
    }));
    trials.extend(TESTS.iter().map(|(name, test)| {
        let device = opened.device.clone();
        Trial::test(format!("multi-head/{name}"), move || test(&device))
    }));
    trials
}

/// A mechanism at sizes smaller than a few places, and that do not depend on how many.
pub(crate) fn small(mechanism: Mechanism) -> MechanismConfig {
    match mechanism {
        Mechanism::SlidingWindow => MechanismConfig::SlidingWindow { window: 2 },
        Mechanism::Block => MechanismConfig::Block { size: 3 },
        Mechanism::LocalM => MechanismConfig::LocalM { window: 2 },
        Mechanism::Strided => MechanismConfig::Strided { stride: Some(2) },
        Mechanism::Fixed => MechanismConfig::Fixed {
            block: Some(3),
            summary: 1,
        },
        Mechanism::Longformer => MechanismConfig::Longformer {
            window: 1,
            global: 1,
        },
        other => other.into(),
    }
}

/// How many heads share keys and values: two of four, unless the mechanism says how many,
/// or makes keys of its queries.
pub(crate) fn shared(mechanism: &MechanismConfig) -> Option<usize> {
    let says = mechanism.kv_heads(4).is_some() || mechanism.mechanism() == Mechanism::Lsh;
    (!says).then_some(2)
}

/// One place after the other gives what all at once give, or says that it cannot.
fn decodes(mechanism: Mechanism, device: &Device) -> Result<(), Failed> {
    let mechanism = small(mechanism);
    let config = MultiHeadAttentionConfig::new(8, 4)
        .with_kv_heads(shared(&mechanism))
        .with_d_head(Some(4))
        .with_mechanism(mechanism.clone());
    for (positions, temperature) in [
        (Positions::Rotary { theta: 1e4 }, 1.0),
        (Positions::Alibi, 1.5),
    ] {
        let config = config
            .clone()
            .with_positions(positions)
            .with_temperature(temperature);
        match config.try_init(device) {
            Ok(attention) => decodes_as(&attention, &mechanism, device)?,
            // Some have no scores that could fall or be divided.
            Err(MultiHeadError::NoScores { .. }) if temperature != 1.0 => {}
            // And some have no places left that scores could fall between.
            Err(MultiHeadError::Sorted { .. }) if positions == Positions::Alibi => {}
            Err(error) => return Err(error.to_string().into()),
        }
    }
    Ok(())
}

fn decodes_as(
    attention: &MultiHeadAttention,
    mechanism: &MechanismConfig,
    device: &Device,
) -> Result<(), Failed> {
    let mut cache = match attention.decode_cache(2) {
        Ok(cache) => cache,
        Err(error)
            if matches!(
                mechanism.mechanism(),
                Mechanism::BigBird | Mechanism::LocalP | Mechanism::Lsh
            ) =>
        {
            return cannot(&error, mechanism);
        }
        Err(error) => return Err(error.to_string().into()),
    };
    let x = Tensor::<3>::random([2, 7, 8], Distribution::Normal(0.0, 1.0), device);
    let places = (0..7).map(|at| {
        let place = x.clone().slice_dim(1, at..at + 1);
        attention.step(place, &mut cache)
    });
    let by_step = Tensor::cat(places.collect(), 1);
    let at_once = attention.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
    same(by_step, at_once.clone())?;

    // The first ones at once, then one by one; and once more the last.
    let mut cache = attention
        .decode_cache(1)
        .map_err(|error| error.to_string())?;
    let mut parts = vec![attention.prefill(x.clone().slice_dim(1, 0..5), &mut cache)];
    for at in 5..7 {
        parts.push(attention.step(x.clone().slice_dim(1, at..at + 1), &mut cache));
    }
    same(Tensor::cat(parts, 1), at_once.clone())?;
    let last = at_once.slice_dim(1, 6..7);
    match cache.rewind(6) {
        Ok(()) => same(attention.step(x.slice_dim(1, 6..7), &mut cache), last),
        // A window or a state has forgotten what there was.
        Err(error) if forgets(mechanism) => {
            let message = format!(
                "a cache of {} cannot go back to 6 of 7 places",
                mechanism.mechanism()
            );
            match error.to_string().starts_with(&message) && cache.len() == 7 {
                true => Ok(()),
                false => Err(error.to_string().into()),
            }
        }
        Err(error) => Err(error.to_string().into()),
    }
}

fn forgets(mechanism: &MechanismConfig) -> bool {
    matches!(
        mechanism.mechanism(),
        Mechanism::SlidingWindow
            | Mechanism::LocalM
            | Mechanism::Linear
            | Mechanism::Performer
            | Mechanism::Retention
    )
}

/// Whether an error says of a mechanism that it cannot decode.
fn cannot(error: &CannotDecode, mechanism: &MechanismConfig) -> Result<(), Failed> {
    let message = format!(
        "mechanism {} cannot decode: what a place sees depends on how many there will be",
        mechanism.mechanism()
    );
    match error.to_string() == message {
        true => Ok(()),
        false => Err(error.to_string().into()),
    }
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
    device.seed(7);
    let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism);
    let mut model = TwoLayers {
        first: config.init(device),
        second: config.init(device),
    };
    let input = Tensor::<3>::random([16, 6, 8], Distribution::Normal(0.0, 1.0), device);
    let wanted = input.clone().slice_dim(1, 0..1).expand([16, 6, 8]);
    let mut losses = Vec::new();
    for _ in 0..12 {
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
        if descent.without > 0 {
            return Err(format!("{} parameters have no gradient", descent.without).into());
        }
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    if last < 0.9 * first {
        Ok(())
    } else {
        Err(format!("the loss went from {first} to {last}: {losses:?}").into())
    }
}

/// What the parameters of a module are called, each with the modules it is in.
fn names(module: &impl Module) -> Vec<String> {
    #[derive(Default)]
    struct Names {
        path: Vec<String>,
        names: Vec<String>,
    }
    impl ModuleVisitor for Names {
        fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<D>>) {
            self.names.push(self.path.join("."));
        }

        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
    }
    let mut names = Names::default();
    module.visit(&mut names);
    names.names
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
        match ours == theirs && ours.len() == 8 {
            true => Ok(()),
            false => Err(format!("{ours:?} instead of {theirs:?}").into()),
        }
    }),
    ("keys-made-of-queries-have-no-parameters", |device| {
        let device = &device.clone().autodiff();
        let (bucket, rounds, seed) = (2, 3, 5);
        let attention = MultiHeadAttentionConfig::new(12, 2)
            .with_mechanism(MechanismConfig::Lsh {
                bucket,
                rounds,
                seed,
            })
            .with_positions(Positions::Rotary { theta: 1e4 })
            .with_qk_norm(true)
            .init(device);
        if names(&attention).iter().any(|name| name.contains("key")) {
            return Err(format!("{:?}", names(&attention)).into());
        }
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
        if descent.without > 0 {
            return Err(format!("{} parameters have no gradient", descent.without).into());
        }
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
    ("memory-is-projected-once", |device| {
        let draw =
            |seq: usize| Tensor::<3>::random([2, seq, 12], Distribution::Normal(0.0, 1.0), device);
        let (query, memory) = (draw(5), draw(7));
        let padded = Pattern::key_lengths(vec![7, 4]);
        for mechanism in Mechanism::ALL {
            // One looks back, and there is no back here; one has no keys but its queries.
            if matches!(mechanism, Mechanism::Retention | Mechanism::Lsh) {
                continue;
            }
            let attention = MultiHeadAttentionConfig::new(12, 3)
                .with_mechanism(mechanism.into())
                .init(device);
            let kept = attention.remember(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, padded.clone()] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention.forward(query.clone(), key, value, pattern.clone());
                same(
                    attention.recall(query.clone(), &kept, pattern.clone()),
                    want,
                )
                .map_err(|error| format!("{mechanism}: {error:?}"))?;
            }
        }
        Ok(())
    }),
    ("memory-is-recalled-from-any-place-on", |device| {
        let draw =
            |seq: usize| Tensor::<3>::random([2, seq, 12], Distribution::Normal(0.0, 1.0), device);
        let memory = draw(5);
        // More queries than keys: the last are beyond every window.
        let query = draw(9);
        let mechanisms = [
            MechanismConfig::LocalM { window: 1 },
            MechanismConfig::LocalM { window: 0 },
            MechanismConfig::Flash,
            MechanismConfig::LocalP { window: 1 },
            Mechanism::Linear.into(),
            Mechanism::Performer.into(),
            Mechanism::Additive.into(),
            Mechanism::Hard.into(),
            Mechanism::Multiplicative.into(),
        ];
        for mechanism in mechanisms {
            let attention = MultiHeadAttentionConfig::new(12, 3)
                .with_mechanism(mechanism.clone())
                .init(device);
            let kept = attention.remember(memory.clone(), memory.clone());
            for pattern in [Pattern::Full, Pattern::key_lengths(vec![5, 2])] {
                let (key, value) = (memory.clone(), memory.clone());
                let want = attention.forward(query.clone(), key, value, pattern.clone());
                let mut first = 0;
                let parts = [1, 2, 1, 1, 3, 1].map(|new| {
                    let part = query.clone().slice_dim(1, first..first + new);
                    let part = attention.recall_from(first, part, &kept, pattern.clone());
                    first += new;
                    part
                });
                same(Tensor::cat(parts.to_vec(), 1), want)
                    .map_err(|error| format!("{mechanism:?}, {pattern:?}: {error:?}"))?;
            }
        }
        Ok(())
    }),
    ("a-cache-is-filled-from-the-first-place-on", |device| {
        let attention = MultiHeadAttentionConfig::new(8, 2).init(device);
        let mut cache = attention.decode_cache(4).map_err(|e| e.to_string())?;
        attention.step(Tensor::zeros([1, 1, 8], device), &mut cache);
        crate::misuses::is_refused(
            || {
                attention.prefill(Tensor::zeros([1, 2, 8], device), &mut cache.clone());
            },
            "multi-head attention: a cache is filled from the first place on, this one has 1",
        )
    }),
    ("a-cache-of-another-mechanism-is-refused", |device| {
        let of = |mechanism: Mechanism| {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism.into());
            config.init(device)
        };
        let cache = of(Mechanism::Linear).decode_cache(1);
        let cache = cache.map_err(|error| error.to_string())?;
        let (flash, place) = (of(Mechanism::Flash), Tensor::<3>::zeros([1, 1, 8], device));
        crate::misuses::is_refused(
            || {
                flash.step(place.clone(), &mut cache.clone());
            },
            "multi-head attention: a cache of linear was given to flash",
        )
    }),
    ("sizes-that-follow-the-length-cannot-decode", |device| {
        for mechanism in [Mechanism::Strided, Mechanism::Fixed] {
            let mechanism = MechanismConfig::from(mechanism);
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism.clone());
            match config.init(device).decode_cache(1) {
                Ok(_) => return Err(format!("{mechanism:?} decodes").into()),
                Err(error) => cannot(&error, &mechanism)?,
            }
        }
        Ok(())
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
        if same(once, again).is_ok() {
            return Err("the same keys were drawn twice".into());
        }
        // Frozen, and on a device that takes no gradients.
        let frozen = attention.clone().freeze();
        let (once, weights) = of(&frozen, &x)?;
        let (again, _) = of(&frozen, &x)?;
        same(once.clone(), again)?;
        let best: Vec<f32> = weights
            .max_dim(3)
            .try_into_vec_as()
            .map_err(|error| format!("{error:?}"))?;
        if best.iter().any(|&weight| weight != 1.0) {
            return Err(format!("not one key alone: {best:?}").into());
        }
        let (plain, _) = of(&attention.valid(), &x.inner())?;
        same(plain, once.inner())
    }),
    ("returns-weights-or-says-who-does", |device| {
        let x = Tensor::<3>::random([1, 4, 8], Distribution::Normal(0.0, 1.0), device);
        for mechanism in Mechanism::ALL {
            let config = MultiHeadAttentionConfig::new(8, 2).with_mechanism(mechanism.into());
            let attention = config.init(device);
            let x = || x.clone();
            let weighed = attention.forward_with_weights(x(), x(), x(), Pattern::Causal);
            let error = match weighed {
                Ok((result, weights)) if mechanism.holds_weights() => {
                    if weights.dims() != [1, 2, 4, 4] {
                        return Err(format!("{mechanism}: {:?}", weights.dims()).into());
                    }
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
            if mechanism.holds_weights() || error != message {
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
        if once.dims() != [2, 5, 16] {
            return Err(format!("{:?}", once.dims()).into());
        }
        // Others are forgotten every time, and none where nothing is learned.
        if same(once, again).is_ok() {
            return Err("the same weights were forgotten twice".into());
        }
        let frozen = attention.freeze();
        let result = || frozen.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
        same(result(), result())
    }),
];

pub(crate) fn same(got: Tensor<3>, want: Tensor<3>) -> Result<(), Failed> {
    let numbers = |tensor: Tensor<3>| -> Result<Vec<f32>, Failed> {
        tensor
            .try_into_vec_as()
            .map_err(|error| format!("{error:?}").into())
    };
    let want: Vec<f64> = numbers(want)?.into_iter().map(f64::from).collect();
    // Both sides are rounded.
    Precision::F32
        .backward(0.0)
        .check("result", &numbers(got)?, &want)?;
    Ok(())
}
