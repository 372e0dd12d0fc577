//! The Transformer.

use zoo_attention::mechanisms::{Fixed, LocalP, Strided};
use zoo_models::{ModelError, TransformerConfig};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("transformer/", TESTS);
    let trained = TRAINED.map(|case| (names(case.0), case));
    suite.add_cases("transformer/overfits-with-", trained, check_overfitting);
    for case in DECODED {
        let (attentions, norm, positions) = case;
        let names = format!("{}-{}-norm", names(attentions), norm.name());
        let name = format!("transformer/decodes-with-{names}-and-{}", positions.name());
        suite.add(name, move |device| check_decoding(case, device));
    }
    let small = Mechanism::ALL.map(|mechanism| (mechanism.name(), mechanism.small_for_tests()));
    // Sizes derived from the length, which must not include padding.
    let fixed = Fixed {
        block_size: None,
        summary: 1,
    };
    let by_length = [
        ("strided-by-length", Strided { stride: None }.into()),
        ("fixed-by-length", fixed.into()),
    ];
    let padded = small.into_iter().chain(by_length);
    let prefix = "transformer/padding-has-no-effect-with-";
    suite.add_cases(prefix, padded, check_padding);
}

/// Mechanisms of the encoder, the decoder and cross-attention.
type Attentions = [Mechanism; 3];

fn names([encoder, decoder, cross]: Attentions) -> String {
    format!("{encoder}-{decoder}-{cross}")
}

const ROTARY: PositionEncoding = PositionEncoding::rotary(1e4);
const LEARNED: PositionEncoding = PositionEncoding::learned(12);

type Trained = (Attentions, Activation, Tying);

/// Each tying, and three activations.
const TRAINED: [Trained; 3] = {
    use Mechanism as M;
    let softmax = [M::Flash, M::Flash, M::Flash];
    let others = [M::SlidingWindow, M::Retention, M::Additive];
    let linear = [M::Linear, M::Linear, M::LocalP];
    [
        (softmax, Activation::Relu, Tying::Decoder),
        (others, Activation::Swiglu, Tying::None),
        (linear, Activation::Gelu, Tying::All),
    ]
};

type Decoded = (Attentions, Norm, PositionEncoding);

const DECODED: [Decoded; 8] = {
    use Mechanism as M;
    use PositionEncoding as P;
    let shared_heads = [M::GroupedQuery, M::MultiQuery, M::Dot];
    [
        ([M::Flash, M::Flash, M::Flash], Norm::Post, P::Sinusoidal),
        ([M::Flash, M::Flash, M::Flash], Norm::Pre, P::Alibi),
        ([M::Flash, M::Linear, M::Linear], Norm::Pre, LEARNED),
        ([M::Linear, M::Retention, M::LocalM], Norm::Pre, ROTARY),
        ([M::Flash, M::SlidingWindow, M::LocalP], Norm::Post, P::None),
        ([M::Strided, M::Longformer, M::Additive], Norm::Post, ROTARY),
        ([M::LocalM, M::LocalM, M::Hard], Norm::Pre, P::Sinusoidal),
        (shared_heads, Norm::Post, LEARNED),
    ]
};

fn config([encoder, decoder, cross]: [MechanismConfig; 3]) -> TransformerConfig {
    TransformerConfig::base(9, 11)
        .with_d_model(16)
        .with_n_heads(4)
        .with_encoder_layers(Some(1))
        .with_decoder_layers(Some(2))
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_encoder_attention(encoder)
        .with_decoder_attention(decoder)
        .with_cross_attention(cross)
}

/// [`config`] with a shared vocabulary.
pub(crate) fn shared_vocabulary(mechanisms: [MechanismConfig; 3]) -> TransformerConfig {
    TransformerConfig {
        source_vocabulary: 11,
        ..config(mechanisms)
    }
}

/// Two heads with d_head = 4.
fn two_heads(target_vocabulary: usize) -> TransformerConfig {
    TransformerConfig::base(9, target_vocabulary)
        .with_d_model(8)
        .with_n_heads(2)
        .with_d_feed_forward(Some(16))
}

fn sources() -> [Vec<u32>; 3] {
    [vec![1, 2, 3, 4, 5, 6], vec![7, 8], vec![4, 4, 1, 8]]
}

fn check_overfitting((attentions, activation, tie_embeddings): Trained, device: &Device) {
    let device = &device.clone().autodiff();
    let mechanisms = attentions.map(Mechanism::small_for_tests);
    assert_not_full_attention(&mechanisms[0], 4, [6; 2], Mask::Full, device);
    assert_not_full_attention(&mechanisms[1], 4, [3; 2], Mask::Causal, device);
    let model = shared_vocabulary(mechanisms)
        .with_d_model(32)
        .with_d_feed_forward(Some(64))
        .with_n_heads(2)
        .with_decoder_layers(Some(1))
        .with_bias(false)
        .with_activation(activation)
        .with_norm(Norm::Pre)
        .with_tie_embeddings(tie_embeddings)
        .init(device);
    let source = tokens(&sources(), model.source_limits(), device);
    // All targets have the same first token: the others depend on the source.
    let targets = [vec![0, 5, 3, 9], vec![0, 7], vec![0, 2, 6]];
    let [inputs, targets] =
        shift(&targets).map(|rows| tokens(&rows, model.target_limits(), device));
    assert_overfits(0.01, model, |model| {
        token_loss(model.forward(&source, &inputs), &targets, 0.0)
    });
}

fn check_decoding((attentions, norm, positions): Decoded, device: &Device) {
    let mechanisms = attentions.map(Mechanism::small_for_tests);
    assert_not_full_attention(&mechanisms[0], 4, [6; 2], Mask::Full, device);
    assert_not_full_attention(&mechanisms[1], 4, [7; 2], Mask::Causal, device);
    let model = config(mechanisms)
        .with_norm(norm)
        .with_positions(positions)
        .init(device);
    let model = with_random_weights(model, 11);
    let source = |rows: &[usize]| {
        let rows = select_rows(&sources(), rows);
        tokens(&rows, model.source_limits(), device)
    };
    let forward = |rows: &[usize], target: &Tokens| model.forward(&source(rows), target);
    let start = |rows: &[usize]| must(model.start(&source(rows)));
    // The targets are longer than the sources.
    assert_incremental_matches(&model, model.target_limits(), &three_rows(), forward, start)
}

/// The logits of a padded pair equal those without padding, with the mechanism wherever it is
/// supported.
fn check_padding(mechanism: MechanismConfig, device: &Device) {
    let config = with_supported_mechanisms(config([mechanism; 3]));
    let encoder = &config.spec.encoder_attention;
    let decoder = &config.spec.decoder_attention;
    assert_not_full_attention(encoder.of_layer(0), 4, [9; 2], Mask::Full, device);
    assert_not_full_attention(decoder.of_layer(0), 4, [9; 2], Mask::Causal, device);
    let model = with_random_weights(must(config.try_init(device)), 3);
    let source = [3, 1, 4, 1, 5, 0, 2, 6, 5];
    let target = [2, 7, 1, 8, 2, 8, 1, 0, 4];
    let unpadded = model.forward(
        &tokens(&[source], model.source_limits(), device),
        &tokens(&[target], model.target_limits(), device),
    );
    let longer = [8, 7, 6, 5, 4, 3, 2, 1, 0, 3, 3, 5, 1];
    let sources = batch_with_longer(&source, &longer, &[7, 7, 8, 1], device);
    let longer = [9, 9, 8, 2, 4, 5, 1, 6, 10, 0, 7];
    let targets = batch_with_longer(&target, &longer, &[10, 3], device);
    let both = model.forward(&sources, &targets);
    assert_close(both.slice_dim(0, 1..2).slice_dim(1, 0..9), unpadded);
}

/// Replaces mechanisms that do not support cross-attention, a bidirectional encoder or a causal decoder
/// with flash.
pub(crate) fn with_supported_mechanisms(config: TransformerConfig) -> TransformerConfig {
    let config = match config
        .spec
        .decoder_attention
        .of_layer(0)
        .capabilities()
        .causal
    {
        Ok(()) => config,
        Err(_) => config.with_decoder_attention(Mechanism::Flash),
    };
    match config.check() {
        Err(ModelError::Mechanism {
            field: "encoder_attention",
            ..
        }) => config
            .with_encoder_attention(Mechanism::Flash)
            .with_cross_attention(Mechanism::Flash),
        Err(ModelError::Mechanism { .. }) => config.with_cross_attention(Mechanism::Flash),
        _ => config,
    }
}

const TESTS: &[(&str, Test)] = &[
    ("number-of-parameters", |device| {
        let config = two_heads(9)
            .with_encoder_layers(Some(2))
            .with_decoder_layers(Some(3));
        // Four projections of 8 x 8 and a bias; 8 x 16 and back; a norm.
        let (attention, network, norm) = (4 * (64 + 8), (128 + 16) + (128 + 8), 16);
        let encoder = 2 * (attention + network + 2 * norm) + norm;
        let decoder = 3 * (2 * attention + network + 3 * norm) + norm;
        let layers = encoder + decoder;
        let table = 9 * 8;
        let all = 2 * table + layers;
        assert_eq!(config.init(device).num_params(), all);
        let config = || config.clone();
        let learned = PositionEncoding::learned(5);
        let additive = config().with_cross_attention(Mechanism::Additive);
        for (config, want) in [
            (config(), all),
            (
                config().with_tie_embeddings(Tying::None),
                3 * table + 9 + layers,
            ),
            (config().with_tie_embeddings(Tying::All), table + layers),
            (config().with_final_norm(false), all - 2 * norm),
            (config().with_positions(learned), all + 2 * 5 * 8),
            (additive, all + 3 * 8),
        ] {
            assert_eq!(config.init(device).parameters(), want, "{:?}", config.spec);
        }
    }),
    ("flops", |device| {
        let model = two_heads(11).with_layers(1).init(device);
        // 4 source and 3 target tokens: projections, pairs of each head, feed-forward networks.
        let encoder = 2 * 4 * 4 * 64 + 16 * 2 * 4 * 4 + 2 * 4 * 2 * 128;
        let own = 2 * 3 * 4 * 64 + 6 * 2 * 4 * 4;
        let cross = 2 * (3 * 2 + 4 * 2) * 64 + 12 * 2 * 4 * 4;
        let decoder = own + cross + 2 * 3 * 2 * 128;
        let head = 2 * 3 * 8 * 11;
        let all = f64::from(2 * (encoder + decoder + head));
        assert_eq!(model.flops(2, 4, 3), all);
    }),
    ("summary-table", |device| {
        let model = shared_vocabulary(TRAINED[1].0.map(Mechanism::small_for_tests))
            .with_tie_embeddings(Tying::All);
        let parts = [
            "Transformer of 1 + 2 layers",
            "tied to target embedding",
            "1 x 16, 4 heads, sliding-window, relu 24,",
            "post-norm",
            "2 x 16, 4 heads, retention, cross-attention",
            "additive, relu 24, post-norm",
            "tied to target embedding",
        ];
        assert_contains_all(model.init(device).to_string(), &parts);
    }),
    ("empty-sequences", |device| {
        let strided = Strided { stride: None }.into();
        for mechanisms in [
            [Mechanism::Linear.into(); 3],
            [LocalP { window: 2 }.into(); 3],
            [strided, strided, Mechanism::Additive.into()],
        ] {
            let model = config(mechanisms).init(device);
            let source = tokens(&[vec![], vec![1, 2, 3]], model.source_limits(), device);
            let target = tokens(&[vec![4], vec![]], model.target_limits(), device);
            let logits = to_vec(model.forward(&source, &target));
            let is_finite = logits.iter().all(|value| value.is_finite());
            assert!(is_finite, "{mechanisms:?}: {logits:?}");
        }
    }),
    ("tied-embeddings-share-gradients", |device| {
        let device = &device.clone().autodiff();
        let config =
            shared_vocabulary([Mechanism::Flash.into(); 3]).with_tie_embeddings(Tying::All);
        let model = config.init(device);
        // A token of the source has a gradient in the shared embedding.
        let source = tokens(&[[3]], model.source_limits(), device);
        let target = tokens(&[[1]], model.target_limits(), device);
        let logits = model.forward(&source, &target).slice_dim(2, 0..1);
        let gradients = logits.sum().backward();
        let table = model.target_embedding.weight.val();
        let gradient = table.grad(&gradients).expect("a gradient");
        let rows = to_vec(gradient.abs().sum_dim(1));
        // The output token, the target token and the source token.
        let nonzero: Vec<usize> = (0..11).filter(|row| rows[*row] > 0.0).collect();
        assert_eq!(nonzero, vec![0, 1, 3]);
    }),
    ("unsupported-decoding-is-an-error", |device| {
        let strided = Strided { stride: None }.into();
        let model = config([Mechanism::Flash.into(), strided, Mechanism::Flash.into()]);
        let model = model.init(device);
        let source = tokens(&sources(), model.source_limits(), device);
        let message = "decoder_attention: mechanism strided cannot decode token by token: without \
                       `stride`, it is sqrt(seq_k), which grows while decoding";
        assert_error(model.start(&source), message);
    }),
    ("different-batch-sizes-are-rejected", |device| {
        let model = config([Mechanism::Flash.into(); 3]).init(device);
        let source = tokens(&sources(), model.source_limits(), device);
        let target = tokens(&[[1, 2]], model.target_limits(), device);
        assert_panics_containing(
            || model.forward(&source, &target),
            "Transformer: a target must be [batch = 3, seq] as the source is, got [1, 2]",
        );
    }),
    ("token-out-of-vocabulary-is-rejected", |device| {
        let model = config([Mechanism::Flash.into(); 3]).init(device);
        // The target vocabulary has token 10, the source vocabulary does not.
        let rows = [[1, 10]];
        tokens(&rows, model.target_limits(), device);
        let message = "token 10 at position 1 of row 0 is outside of the vocabulary: it has 9 \
                       tokens, 0 to 8";
        assert_error(Tokens::new(&rows, model.source_limits(), device), message);
    }),
];
