//! What README.md and docs/library.md say of the library: every block runs, but for the one
//! that needs GPT-2's weights, which is compiled.

use std::error::Error;

use burn::tensor::{Device, Distribution, Tensor};

use crate::{blocks_standing_in, device};

const SEQ: usize = 48;

fn draw<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(dims, Distribution::Normal(0.0, 1.0), device)
}

fn assert_finite<const D: usize>(tensor: Tensor<D>, dims: [usize; D]) {
    assert_eq!(tensor.dims(), dims);
    let largest = tensor.abs().max().into_scalar::<f32>();
    assert!(largest > 0.0 && largest < 1e3, "{largest}");
}

#[test]
fn the_readme() {
    use zoo_attention::{AttentionOptions, Mechanism, MultiHeadAttentionConfig, Pattern, flash};
    let device = device();
    let [query, key, value] = [4, 2, 2].map(|heads| draw([2, heads, 5, 8], &device));
    let x = draw([2, SEQ, 512], &device);

    // query: [batch, heads, seq_q, d_head]; key and value may have fewer heads
    let pattern = Pattern::Causal.and(Pattern::key_lengths([5, 3]));
    let options = AttentionOptions::new().with_pattern(pattern);
    let context = flash(query, key, value, &options); // [batch, heads, seq_q, d_value]

    // With projections around it; the weights of burn-nn's MultiHeadAttention fit.
    let attention = MultiHeadAttentionConfig::new(512, 8)
        .with_mechanism(Mechanism::SlidingWindow.into())
        .init(&device);
    let y = attention.forward(x.clone(), x.clone(), x, Pattern::Causal); // [batch, seq, d_model]

    assert_finite(context, [2, 4, 5, 8]);
    assert_finite(y, [2, SEQ, 512]);
}

#[test]
fn attention_by_itself() {
    let device = device();
    let [query, key, value] = [4, 2, 2].map(|heads| draw([2, heads, 5, 8], &device));

    use zoo_attention::{AttentionOptions, Pattern, flash, standard};

    // query: [batch, heads, seq_q, d_head]; key and value may have fewer heads
    let pattern = Pattern::Causal.and(Pattern::key_lengths([5, 3]));
    let options = AttentionOptions::new().with_pattern(pattern);
    let context = flash(query.clone(), key.clone(), value.clone(), &options);

    // The same, and where each query looks: attended.weights is [batch, heads, seq_q, seq_k]
    let attended = standard(query, key, value, &options);

    let difference = context - attended.context;
    assert!(difference.abs().max().into_scalar::<f32>() < 1e-5);
    assert_eq!(attended.weights.dims(), [2, 4, 5, 5]);
}

#[test]
fn with_projections() -> Result<(), Box<dyn Error>> {
    let device = device();
    let x = draw([2, SEQ, 512], &device);
    let loss = draw([1], &device);

    use zoo_attention::{Mechanism, MultiHeadAttentionConfig, Pattern, Positions};

    let attention = MultiHeadAttentionConfig::new(512, 8)
        .with_kv_heads(Some(2))
        .with_positions(Positions::Rotary { theta: 10_000.0 })
        .with_mechanism(Mechanism::SlidingWindow.into())
        .init(&device);
    let y = attention.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);

    assert_finite(y, [2, SEQ, 512]);

    // [batch, heads, 2, seq]
    let weights = attention.explain(x.clone(), x.clone(), Pattern::Causal, &[0, 41]);
    // [batch, heads], 0 to ln(seq)
    let spread = attention.head_entropy(x.clone(), x.clone(), Pattern::Causal)?;
    // Sharpens; -0.01 spreads out.
    let loss = loss + attention.entropy_penalty(x.clone(), x, Pattern::Causal)? * 0.01;

    assert_finite(weights, [2, 8, 2, SEQ]);
    assert_finite(spread, [2, 8]);
    assert_finite(loss, [1]);
    Ok(())
}

#[test]
fn one_place_after_the_other() -> Result<(), Box<dyn Error>> {
    use zoo_attention::{MultiHeadAttentionConfig, Pattern};
    let device = device();
    let attention = MultiHeadAttentionConfig::new(64, 4).init(&device);
    let cross = attention.clone();
    let [prompt, next] = [6, 1].map(|seq| draw([2, seq, 64], &device));
    let encoded = draw([2, 9, 64], &device);

    let mut cache = attention.decode_cache(1024)?; // an error for those that cannot: bigbird, lsh, ...
    let so_far = attention.prefill(prompt, &mut cache); // [batch, seq, d_model]
    let y = attention.step(next.clone(), &mut cache); // [batch, 1, d_model]

    let memory = cross.remember(encoded.clone(), encoded);
    let elsewhere = cross.recall(next, &memory, Pattern::Full); // [batch, 1, d_model]

    assert_finite(so_far, [2, 6, 64]);
    assert_finite(y, [2, 1, 64]);
    assert_finite(elsewhere, [2, 1, 64]);
    Ok(())
}

/// Not run: there are no weights of GPT-2 here.
#[allow(dead_code)]
fn a_model(
    texts: Vec<Vec<u32>>,
    prompts: Vec<Vec<u32>>,
    device: Device,
) -> Result<Tensor<3>, Box<dyn Error>> {
    use zoo_models::generate::{GenerateConfig, Strategy, generate};
    use zoo_models::weights::{Weights, import};
    use zoo_models::{GptConfig, Tokens};

    // GPT-2's own weights, into GPT-2's own sizes.
    let model = GptConfig::new(50_257, 768, 12, 12).init(&device);
    println!("{model}"); // parts, sizes, parameters
    let model = import::gpt2(Weights::read("gpt2/model.safetensors")?)?.apply(model)?;

    // A batch of texts of any lengths; a token that is not in the vocabulary is an error.
    let tokens = Tokens::new(&texts, model.limits(), &device)?;
    let logits = model.forward(&tokens); // [batch, seq, vocabulary]

    // The best two of four beams for each prompt.
    let beam = Strategy::Beam {
        beams: 4,
        length_penalty: 0.6,
        n_best: 2,
    };
    let config = GenerateConfig::new(beam)
        .with_end(Some(50_256))
        .with_max_length(64);
    let answers = generate(&model, model.start(prompts.len())?, &prompts, &config)?;

    Weights::of(&model).write("mine.safetensors")?; // or .bpk, Burn's own

    assert_eq!(answers.len(), prompts.len());
    Ok(logits)
}

#[test]
fn every_block_of_both_pages_is_in_this_file() {
    let source = include_str!("library.rs");
    let readme = include_str!("../../../README.md");
    assert_eq!(blocks_standing_in(readme, source), 1);
    let library = include_str!("../../../docs/library.md");
    assert_eq!(blocks_standing_in(library, source), 5);
}
