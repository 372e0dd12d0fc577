//! What docs/mechanisms says of each call: every mechanism has a chapter, and every call runs.

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::mechanisms::BigBird;
use zoo_attention::mechanisms::GroupedQuery;
use zoo_attention::{
    AttentionOptions, Choice, FeatureMap, Lsh, Mechanism, MechanismConfig,
    MultiHeadAttentionConfig, Pattern, RandomFeatures, additive, attend, drawn_matrix,
    drawn_vector, fixed, flash, hard, linear, local_monotonic, local_predictive, lsh,
    multiplicative, retention, retention_decays, standard, strided,
};

use crate::{blocks_standing_in, device};

const CHAPTERS: [(&str, &str); 10] = [
    ("flash", include_str!("../../../docs/mechanisms/flash.md")),
    (
        "shared-heads",
        include_str!("../../../docs/mechanisms/shared-heads.md"),
    ),
    ("scores", include_str!("../../../docs/mechanisms/scores.md")),
    ("hard", include_str!("../../../docs/mechanisms/hard.md")),
    ("local", include_str!("../../../docs/mechanisms/local.md")),
    (
        "strided",
        include_str!("../../../docs/mechanisms/strided.md"),
    ),
    (
        "longformer",
        include_str!("../../../docs/mechanisms/longformer.md"),
    ),
    ("lsh", include_str!("../../../docs/mechanisms/lsh.md")),
    ("linear", include_str!("../../../docs/mechanisms/linear.md")),
    (
        "retention",
        include_str!("../../../docs/mechanisms/retention.md"),
    ),
];

const HEADS: usize = 2;
const PLACES: usize = 40;
const D_HEAD: usize = 8;

fn inputs(device: &Device) -> [Tensor<4>; 3] {
    [(); 3].map(|()| {
        let normal = Distribution::Normal(0.0, 1.0);
        Tensor::random([1, HEADS, PLACES, D_HEAD], normal, device)
    })
}

/// The vector and the matrix of mechanisms that learn them, as they are drawn.
fn learned(device: &Device) -> (Tensor<2>, Tensor<3>) {
    let vector = Tensor::<1>::from_floats(drawn_vector(HEADS, D_HEAD).as_slice(), device);
    let matrix = Tensor::<1>::from_floats(drawn_matrix(HEADS, D_HEAD).as_slice(), device);
    (
        vector.reshape([HEADS, D_HEAD]),
        matrix.reshape([HEADS, D_HEAD, D_HEAD]),
    )
}

/// A context for each query, of numbers.
fn assert_context(context: Tensor<4>) {
    assert_eq!(context.dims(), [1, HEADS, PLACES, D_HEAD]);
    let largest = context.abs().max().into_scalar::<f32>();
    assert!(largest > 0.0 && largest < 1e3, "{largest}");
}

#[test]
fn every_mechanism_has_a_chapter() {
    let index = include_str!("../../../docs/mechanisms/README.md");
    for mechanism in Mechanism::ALL {
        let word = format!("`{mechanism}`");
        let row = index
            .lines()
            .find(|line| line.starts_with("| [") && line.contains(&word));
        let row = row.unwrap_or_else(|| panic!("no chapter for {mechanism} in the index"));
        let chapter = CHAPTERS
            .iter()
            .find(|(name, _)| row.contains(&format!("({name}.md)")));
        let (name, text) = chapter.unwrap_or_else(|| panic!("no page for {row}"));
        let title = text.lines().next().unwrap_or_default();
        assert!(title.contains(&word), "{name}.md is not about {mechanism}");
        for name in mechanism.aliases() {
            assert!(text.contains(&format!("`{name}`")), "{mechanism}: {name}");
        }
        let (_, paper) = mechanism.about().paper;
        assert!(text.contains(paper), "{name}.md does not cite {paper}");
    }
}

#[test]
fn every_call_of_a_chapter_is_in_this_file() {
    for (name, page) in CHAPTERS {
        let blocks = blocks_standing_in(page, include_str!("chapters.rs"));
        assert_eq!(blocks, 1, "{name}.md");
    }
}

#[test]
fn softmax_attention() {
    let [query, key, value] = inputs(&device());
    let options = AttentionOptions::new().with_pattern(Pattern::Causal);
    let context = flash(query.clone(), key.clone(), value.clone(), &options);
    let attended = standard(query, key, value, &options); // .context, and .weights
    let difference = context - attended.context;
    assert!(difference.abs().max().into_scalar::<f32>() < 1e-5);
}

#[test]
fn shared_heads() {
    let device = &device();
    let few = MechanismConfig::GroupedQuery(GroupedQuery { kv_heads: Some(2) });
    let layer = MultiHeadAttentionConfig::new(64, 8)
        .with_mechanism(few)
        .init(device);
    assert_eq!(layer.value.weight.dims(), [64, 2 * 8]);
}

#[test]
fn scores() {
    let device = &device();
    let ([query, key, value], (vector, matrix)) = (inputs(device), learned(device));
    let options = AttentionOptions::new();
    let (q, k, v) = (query.clone(), key.clone(), value.clone());
    let dot = attend(Mechanism::Dot, q, k, v, &options);
    let general = multiplicative(query.clone(), key.clone(), value.clone(), matrix, &options);
    let aligned = additive(query, key, value, vector, &options); // .context, and .weights
    [dot, general, aligned.context]
        .into_iter()
        .for_each(assert_context);
}

#[test]
fn one_key_alone() {
    let [query, key, value] = inputs(&device());
    let options = AttentionOptions::new();
    let (q, k, v) = (query.clone(), key.clone(), value.clone());
    let best = hard(q, k, v, Choice::Best, &options);
    let choice = Choice::Sampled {
        temperature: 1.0,
        seed: 7,
    };
    let drawn = hard(query, key, value, choice, &options); // .context, and .weights
    for attended in [best, drawn] {
        assert_context(attended.context);
        let sum = attended.weights.sum().into_scalar::<f32>();
        assert_eq!(sum, (HEADS * PLACES) as f32);
    }
}

#[test]
fn what_is_near() {
    let device = &device();
    let ([query, key, value], (vector, matrix)) = (inputs(device), learned(device));
    let options = AttentionOptions::new();
    let pattern = Pattern::Causal.and(Pattern::Block { size: 16 });
    let block = AttentionOptions::new().with_pattern(pattern);
    let own_block = flash(query.clone(), key.clone(), value.clone(), &block);
    let level = local_monotonic(query.clone(), key.clone(), value.clone(), 10, &options);
    let placed = local_predictive(query, key, value, (vector, matrix), 10, &options);
    [own_block, level, placed.context]
        .into_iter()
        .for_each(assert_context);
}

#[test]
fn near_and_every_so_often() {
    let [query, key, value] = inputs(&device());
    let options = AttentionOptions::new();
    let far = strided(query.clone(), key.clone(), value.clone(), 8, &options);
    let summed_up = fixed(query, key, value, 8, 2, &options); // blocks of 8, the last 2 of each
    [far, summed_up].into_iter().for_each(assert_context);
}

#[test]
fn near_and_some_for_everyone() {
    let ([query, key, value], seq_k) = (inputs(&device()), PLACES);
    let document = AttentionOptions::new().with_pattern(Pattern::longformer(4, vec![0]));
    let long = flash(query.clone(), key.clone(), value.clone(), &document);
    let birds = AttentionOptions::new().with_pattern(Pattern::big_bird(&BigBird::default(), seq_k));
    let random = flash(query, key, value, &birds);
    [long, random].into_iter().for_each(assert_context);
}

#[test]
fn keys_that_hash_alike() {
    let [query, _, value] = inputs(&device());
    let options = AttentionOptions::new();
    let hashing = Lsh::new(8, 4, 0); // bucket, rounds, seed
    let context = lsh(query, value, &hashing, &options);
    assert_context(context);
}

#[test]
fn no_softmax() {
    let [query, key, value] = inputs(&device());
    let options = AttentionOptions::new();
    let elu = FeatureMap::Elu1;
    let spread = linear(query.clone(), key.clone(), value.clone(), elu, &options);
    let random = FeatureMap::FavorPlus(RandomFeatures::new(256, 0)); // count, seed
    let near_softmax = linear(query, key, value, random, &options);
    [spread, near_softmax].into_iter().for_each(assert_context);
}

#[test]
fn products_that_fade() {
    let ([query, key, value], kv_heads) = (inputs(&device()), HEADS);
    let causal = AttentionOptions::new().with_pattern(Pattern::Causal);
    let decays = retention_decays(kv_heads);
    let context = retention(query, key, value, &decays, &causal);
    assert_context(context);
}
