//! Cross-attention, incremental decoding and randomness in training.

use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::{
    Cosformer, Fixed, LocalM, Performer, Sigmoid, SlidingWindow, Strided,
};
use zoo_attention::{
    AttentionInput, AttentionOptions, DecodeCache, Mechanism, MechanismConfig,
    MultiHeadAttentionConfig, Pattern, Positions,
};
use zoo_backend::OpenDevice;
use zoo_examples::{Outcome, difference, normal, self_attention};
use zoo_models::{ModelError, TransformerConfig};

use crate::assert_same;

/// Cross-attention: one output for each query, with a memory that is projected once.
pub(crate) fn cross_attention(opened: &OpenDevice) -> Outcome {
    const D_MODEL: usize = 32;
    let device = &opened.device;
    let random = |seq: usize| normal([1, seq, D_MODEL], device);
    let layer = MultiHeadAttentionConfig::new(D_MODEL, 4).init(device);
    let x = random(24);
    println!("memory len   output         step by step, memory projected once, differs by");
    for memory_len in [7, 31] {
        let y = random(memory_len);
        let output = layer
            .forward(AttentionInput::cross_attn(x.clone(), y.clone()))
            .context;
        let memory = layer.project_memory(y.clone(), y);
        let steps = (0..24).map(|i| {
            let query = x.clone().slice_dim(1, i..i + 1);
            layer.cross_attend(query, &memory, Pattern::Full)
        });
        let steps = Tensor::cat(steps.collect(), 1);
        let differ = difference(&steps, &output);
        let shape = format!("{:?}", output.dims());
        println!("{memory_len:<13}{shape:<15}{differ:.7}");
        assert_eq!(shape, "[1, 24, 32]");
        assert_same(true, differ);
    }

    println!("\nas cross-attention of a Transformer");
    let mut unsupported = vec![];
    for mechanism in Mechanism::ALL {
        let config = TransformerConfig::base(100, 100);
        let config = config.with_cross_attention(mechanism);
        let support = match config.check() {
            Ok(()) => "supported".to_owned(),
            Err(ModelError::Mechanism { reason, .. }) => {
                unsupported.push(mechanism.name());
                format!("not supported: {reason}")
            }
            Err(other) => return Err(other.into()),
        };
        println!("{:18}{support}", mechanism.name());
    }
    let expected = "relative forgetting sliding-window block strided fixed longformer bigbird lsh moba \
                    native-sparse nystrom cosformer retention lightning mamba2 gla delta gated-delta kda";
    assert_eq!(unsupported.join(" "), expected);
    Ok(())
}

/// The parallel pass of training and incremental decoding compute the same output.
pub(crate) fn incremental_decoding(opened: &OpenDevice) -> Outcome {
    const SEQ: usize = 20;
    const D_MODEL: usize = 16;
    let device = &opened.device;
    let x = normal([1, SEQ, D_MODEL], device);
    // The same sequence with another last position.
    let earlier = x.clone().slice_dim(1, 0..SEQ - 1);
    let last = x.clone().slice_dim(1, SEQ - 1..SEQ).add_scalar(1.0);
    let other = Tensor::cat(vec![earlier, last], 1);

    println!("largest difference:");
    println!("                  incremental          earlier positions, if the last one changes");
    println!("mechanism         and parallel         causal       full");
    let mechanisms: [MechanismConfig; 4] = [
        Mechanism::Flash.into(),
        MechanismConfig::SlidingWindow(SlidingWindow { window: 5 }),
        Mechanism::Linear.into(),
        Mechanism::Performer.into(),
    ];
    for mechanism in mechanisms {
        let name = mechanism.mechanism().name();
        let layer = MultiHeadAttentionConfig::new(D_MODEL, 2)
            .with_positions(Positions::rotary(10_000.0))
            .with_mechanism(mechanism)
            .init(device);
        let expected = self_attention(&layer, &x, Pattern::Causal);
        let mut cache = layer.decode_cache(SEQ)?;
        let steps = (0..SEQ).map(|i| {
            let position = x.clone().slice_dim(1, i..i + 1);
            layer.step(position, &mut cache) // [1, 1, d_model]
        });
        let steps = difference(&Tensor::cat(steps.collect(), 1), &expected);
        let [causal, full] = [Pattern::Causal, Pattern::Full].map(|pattern| {
            let [a, b] = [&x, &other].map(|x| self_attention(&layer, x, pattern.clone()));
            let [a, b] = [a, b].map(|output| output.slice_dim(1, 0..SEQ - 1));
            difference(&a, &b)
        });
        println!("{name:<16}  {steps:<19.7}  {causal:<11.7}  {full:.7}");
        // Dot products are summed in another order.
        assert!(steps < 1e-4 && causal < 1e-4 && full > 1e-3);
    }
    Ok(())
}

/// Cache size of every mechanism.
pub(crate) fn cache_sizes(opened: &OpenDevice) -> Outcome {
    println!("                                 cached elements after");
    println!("mechanism                        32 tokens   64 tokens   128 tokens");
    let mut unsupported = vec![];
    for mechanism in Mechanism::ALL {
        for (name, config) in configs(mechanism) {
            match DecodeCache::new(config, 128) {
                Ok(cache) => {
                    let [first, second, third] = num_cached(cache, opened);
                    println!("{name:30}{first:>12}{second:>12}{third:>13}");
                    check_sizes(mechanism, [first, second, third]);
                }
                Err(error) => {
                    println!("{name:30}   {error}");
                    assert!(error.to_string().contains("cannot decode"));
                    unsupported.push(name);
                }
            }
        }
    }
    unsupported.sort();
    let expected = "bigbird/cosformer, length n/fixed, block sqrt(n)/linformer/local-p/lsh/nystrom/sigmoid, \
                    length n/strided, stride sqrt(n)";
    assert_eq!(unsupported.join("/"), expected);
    Ok(())
}

/// Configs of a mechanism with small windows and strides, which determine its cache size.
fn configs(mechanism: Mechanism) -> Vec<(String, MechanismConfig)> {
    const SIZE: usize = 8;
    let (stride, block, summary) = (Some(SIZE), Some(SIZE), 1);
    let given: Option<MechanismConfig> = match mechanism {
        Mechanism::Sigmoid => Some(Sigmoid { length: Some(128) }.into()),
        Mechanism::Cosformer => Some(Cosformer { length: Some(128) }.into()),
        _ => None,
    };
    if let Some(given) = given {
        return vec![
            (format!("{mechanism}, length 128"), given),
            (format!("{mechanism}, length n"), mechanism.into()),
        ];
    }
    let (key, config): (&str, MechanismConfig) = match mechanism {
        Mechanism::SlidingWindow => ("window", SlidingWindow { window: SIZE }.into()),
        Mechanism::LocalM => ("window", LocalM { window: SIZE }.into()),
        Mechanism::Strided => ("stride", Strided { stride }.into()),
        Mechanism::Fixed => (
            "block",
            Fixed {
                block_size: block,
                summary,
            }
            .into(),
        ),
        _ => return vec![(mechanism.to_string(), mechanism.into())],
    };
    let mut configs = vec![(format!("{mechanism}, {key} {SIZE}"), config)];
    if key != "window" {
        configs.push((format!("{mechanism}, {key} sqrt(n)"), mechanism.into()));
    }
    configs
}

/// Number of elements of a cache after 32, 64 and 128 tokens.
fn num_cached(mut cache: DecodeCache, opened: &OpenDevice) -> [usize; 3] {
    let kv_heads = cache.mechanism().kv_heads(4).unwrap_or(4);
    [32, 32, 64].map(|more| {
        let [key, value] = [(); 2].map(|()| normal([1, kv_heads, more, 8], &opened.device));
        cache.extend(key, value, &AttentionOptions::new());
        cache.num_elements()
    })
}

/// Asserts the sizes in docs/theory.
fn check_sizes(mechanism: Mechanism, sizes: [usize; 3]) {
    let key_value = 2 * 8; // a key and a value with d_head 8
    let state = |features: usize| {
        // A matrix of key features by value elements, and at most one more column and element.
        let state = 4 * features * 8..=4 * (features * 9 + 1);
        let is_constant = sizes == [sizes[0]; 3];
        assert!(is_constant && state.contains(&sizes[0]), "{sizes:?}");
    };
    let all = |heads: usize| assert_eq!(sizes, [32, 64, 128].map(|n| heads * key_value * n));
    match mechanism {
        Mechanism::SlidingWindow | Mechanism::LocalM => {
            assert_eq!(sizes, [4 * key_value * (8 + 1); 3]);
        }
        Mechanism::Linear
        | Mechanism::Retention
        | Mechanism::Lightning
        | Mechanism::Mamba2
        | Mechanism::Gla
        | Mechanism::Delta
        | Mechanism::GatedDelta
        | Mechanism::Kda => state(8),
        Mechanism::Performer => state(256),
        Mechanism::Cosformer => state(16),
        Mechanism::Based => state(1 + 8 + 64),
        Mechanism::MultiQuery | Mechanism::GroupedQuery | Mechanism::Mla => all(1),
        _ => all(4),
    }
}

/// Dropout, hard attention and resampled features are random in training only.
pub(crate) fn train_eval_mode(opened: &OpenDevice) -> Outcome {
    let plain = &opened.device;
    let training = &plain.clone().autodiff();
    let config = MultiHeadAttentionConfig::new(32, 4);
    let resampled = MechanismConfig::Performer(Performer {
        n_features: 32,
        seed: 0,
        resample: Some(1),
    });

    println!("                              difference of two passes on");
    println!("                              an autodiff device      a plain device");
    let with = |mechanism: MechanismConfig| config.clone().with_mechanism(mechanism);
    for (name, config) in [
        ("no dropout", config.clone()),
        ("dropout", config.clone().with_dropout(0.5)),
        ("hard", with(Mechanism::Hard.into())),
        ("performer, features resampled", with(resampled)),
    ] {
        let [random, fixed] = [training, plain].map(|device| rerun_difference(&config, device));
        println!("{name:30}{random:<24.7}{fixed:.7}");
        assert_eq!(random > 1e-3, name != "no dropout");
        assert!(fixed < 1e-6);
    }
    Ok(())
}

/// Largest difference between two passes of one layer over one input.
fn rerun_difference(config: &MultiHeadAttentionConfig, device: &Device) -> f32 {
    let layer = config.init(device);
    let x = normal([1, 16, 32], device);
    let pass = || self_attention(&layer, &x, Pattern::Full);
    difference(&pass(), &pass())
}
