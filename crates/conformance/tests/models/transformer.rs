//! The Transformer on a device.

use burn::module::Module;
use burn::tensor::Device;
use zoo_attention::mechanisms::{Fixed, LocalP, Strided};
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_models::{
    Activation, ModelError, Norm, PositionEncoding, Tokens, TransformerConfig, Tying, token_loss,
};
use zoo_oracle::{Mask, small_for_tests};

use crate::support::*;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add_table("transformer/", TESTS);
    for (index, attentions) in LEARNING.into_iter().enumerate() {
        let name = format!("transformer/learns-by-heart-with-{}", words(attentions));
        suite.add_training(name, move |device| {
            learns_by_heart(attentions, index, device)
        });
    }
    for (attentions, norm, positions) in STEPPING {
        let words = format!("{}-{}-norm", words(attentions), norm.word());
        let name = format!("transformer/steps-with-{words}-and-{}", positions.word());
        suite.add(name, move |device| {
            steps(attentions, norm, positions, device)
        });
    }
    let small = Mechanism::ALL.map(|mechanism| (mechanism.word(), small_for_tests(mechanism)));
    // Sizes that follow from the length, which padding must not change.
    let fixed = Fixed {
        block: None,
        summary: 1,
    };
    let by_length = [
        ("strided-by-length", Strided { stride: None }.into()),
        ("fixed-by-length", fixed.into()),
    ];
    for (name, mechanism) in small.into_iter().chain(by_length) {
        let name = format!("transformer/padding-changes-nothing-with-{name}");
        suite.add(name, move |device| {
            padding_changes_nothing(mechanism, device)
        });
    }
}

/// The source to itself, the target to itself, the target to the source.
type Attentions = [Mechanism; 3];

fn words([encoder, decoder, cross]: Attentions) -> String {
    format!("{encoder}-{decoder}-{cross}")
}

const ROTARY: PositionEncoding = PositionEncoding::rotary(1e4);
const LEARNED: PositionEncoding = PositionEncoding::learned(12);

const LEARNING: [Attentions; 3] = [
    [Mechanism::Flash, Mechanism::Flash, Mechanism::Flash],
    [
        Mechanism::SlidingWindow,
        Mechanism::Retention,
        Mechanism::Additive,
    ],
    [Mechanism::Linear, Mechanism::Linear, Mechanism::LocalP],
];

const STEPPING: [(Attentions, Norm, PositionEncoding); 8] = {
    use Mechanism as M;
    use PositionEncoding as P;
    [
        ([M::Flash, M::Flash, M::Flash], Norm::Post, P::Sinusoidal),
        ([M::Flash, M::Flash, M::Flash], Norm::Pre, P::Alibi),
        ([M::Flash, M::Linear, M::Linear], Norm::Pre, LEARNED),
        ([M::Linear, M::Retention, M::LocalM], Norm::Pre, ROTARY),
        ([M::Flash, M::SlidingWindow, M::LocalP], Norm::Post, P::None),
        ([M::Strided, M::Longformer, M::Additive], Norm::Post, ROTARY),
        ([M::LocalM, M::LocalM, M::Hard], Norm::Pre, P::Sinusoidal),
        (
            [M::GroupedQuery, M::MultiQuery, M::Dot],
            Norm::Post,
            LEARNED,
        ),
    ]
};

fn config([encoder, decoder, cross]: [MechanismConfig; 3]) -> TransformerConfig {
    TransformerConfig::base(9, 11)
        .with_d_model(16)
        .with_heads(4)
        .with_encoder_layers(Some(1))
        .with_decoder_layers(Some(2))
        .with_d_feed_forward(Some(24))
        .with_dropout(0.0)
        .with_encoder_attention(encoder)
        .with_decoder_attention(decoder)
        .with_cross_attention(cross)
}

/// The same with one vocabulary for both sides.
fn one_vocabulary(mechanisms: [MechanismConfig; 3]) -> TransformerConfig {
    TransformerConfig {
        source_vocabulary: 11,
        ..config(mechanisms)
    }
}

fn sources() -> [Vec<u32>; 3] {
    [vec![1, 2, 3, 4, 5, 6], vec![7, 8], vec![4, 4, 1, 8]]
}

fn learns_by_heart(attentions: Attentions, index: usize, device: &Device) {
    // Every tying once, and three activations.
    let activation = [Activation::Relu, Activation::Swiglu, Activation::Gelu][index];
    let tying = [Tying::Decoder, Tying::None, Tying::All][index];
    let mechanisms = attentions.map(small_for_tests);
    differs_from_full(&mechanisms[0], 4, [6; 2], Mask::Full, device);
    differs_from_full(&mechanisms[1], 4, [3; 2], Mask::Causal, device);
    let model = one_vocabulary(mechanisms)
        .with_d_model(32)
        .with_d_feed_forward(Some(64))
        .with_heads(2)
        .with_decoder_layers(Some(1))
        .with_bias(false)
        .with_activation(activation)
        .with_norm(Norm::Pre)
        .with_tying(tying)
        .init(device);
    let source = tokens(&sources(), model.source_limits(), device);
    // The first token of each target is the same: the source alone knows the others.
    let targets = [vec![0, 5, 3, 9], vec![0, 7], vec![0, 2, 6]];
    let [given, wanted] =
        shifted(&targets).map(|rows| tokens(&rows, model.target_limits(), device));
    overfits(0.01, model, |model| {
        token_loss(model.forward(&source, &given), &wanted, 0.0)
    });
}

fn steps(attentions: Attentions, norm: Norm, positions: PositionEncoding, device: &Device) {
    let mechanisms = attentions.map(small_for_tests);
    differs_from_full(&mechanisms[0], 4, [6; 2], Mask::Full, device);
    differs_from_full(&mechanisms[1], 4, [7; 2], Mask::Causal, device);
    let model = config(mechanisms)
        .with_norm(norm)
        .with_positions(positions)
        .init(device);
    let model = drawn(model, 11);
    let source = |rows: &[usize]| {
        let rows: Vec<Vec<u32>> = rows.iter().map(|row| sources()[*row].clone()).collect();
        tokens(&rows, model.source_limits(), device)
    };
    let forward = |rows: &[usize], target: &Tokens| model.forward(&source(rows), target);
    let start = |rows: &[usize]| must(model.start(&source(rows)));
    // All as long, and longer than a source.
    let targets = [
        vec![0, 5, 3, 3, 9, 1, 7],
        vec![1, 5, 4, 10, 2, 2, 0],
        vec![2, 8, 8, 6, 3, 10, 4],
    ];
    steps_agree(&model, model.target_limits(), &targets, forward, start)
}

/// A pair beside a longer one, whatever is behind its ends, is what it is alone. The
/// mechanism is tried wherever it can be.
fn padding_changes_nothing(mechanism: MechanismConfig, device: &Device) {
    let config = wherever_it_can_be(config([mechanism; 3]));
    differs_from_full(
        &config.spec.encoder_attention,
        4,
        [9; 2],
        Mask::Full,
        device,
    );
    differs_from_full(&mechanism, 4, [9; 2], Mask::Causal, device);
    let model = drawn(must(config.try_init(device)), 3);
    let source = [3, 1, 4, 1, 5, 0, 2, 6, 5];
    let target = [2, 7, 1, 8, 2, 8, 1, 0, 4];
    let alone = model.forward(
        &tokens(&[source], model.source_limits(), device),
        &tokens(&[target], model.target_limits(), device),
    );
    let longer = [8, 7, 6, 5, 4, 3, 2, 1, 0, 3, 3, 5, 1];
    let sources = beside(&source, &longer, &[7, 7, 8, 1], device);
    let longer = [9, 9, 8, 2, 4, 5, 1, 6, 10, 0, 7];
    let targets = beside(&target, &longer, &[10, 3], device);
    let both = model.forward(&sources, &targets);
    same(both.slice_dim(0, 1..2).slice_dim(1, 0..9), alone);
}

/// The model with flash attention where its mechanism is refused: not across, or not ahead either.
pub(crate) fn wherever_it_can_be(config: TransformerConfig) -> TransformerConfig {
    match config.check() {
        Err(ModelError::Mechanism {
            field: "encoder_attention",
            ..
        }) => config
            .with_encoder_attention(Mechanism::Flash.into())
            .with_cross_attention(Mechanism::Flash.into()),
        Err(ModelError::Mechanism { .. }) => config.with_cross_attention(Mechanism::Flash.into()),
        _ => config,
    }
}

const TESTS: &[(&str, Test)] = &[
    ("parameters-are-counted", |device| {
        let config = TransformerConfig::base(9, 9)
            .with_d_model(8)
            .with_heads(2)
            .with_encoder_layers(Some(2))
            .with_decoder_layers(Some(3))
            .with_d_feed_forward(Some(16));
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
        let additive = config().with_cross_attention(Mechanism::Additive.into());
        for (config, want) in [
            (config(), all),
            (config().with_tying(Tying::None), 3 * table + 9 + layers),
            (config().with_tying(Tying::All), table + layers),
            (config().with_final_norm(false), all - 2 * norm),
            (config().with_positions(learned), all + 2 * 5 * 8),
            (additive, all + 3 * 8),
        ] {
            assert_eq!(config.init(device).parameters(), want, "{:?}", config.spec);
        }
    }),
    ("work-is-counted", |device| {
        let model = TransformerConfig::base(9, 11)
            .with_d_model(8)
            .with_heads(2)
            .with_layers(1)
            .with_d_feed_forward(Some(16))
            .init(device);
        // Sources of 4 tokens and targets of 3: projections, pairs of each head, networks.
        let encoder = 2 * 4 * 4 * 64 + 16 * 2 * 4 * 4 + 2 * 4 * 2 * 128;
        let own = 2 * 3 * 4 * 64 + 6 * 2 * 4 * 4;
        let across = 2 * (3 * 2 + 4 * 2) * 64 + 12 * 2 * 4 * 4;
        let decoder = own + across + 2 * 3 * 2 * 128;
        let head = 2 * 3 * 8 * 11;
        let all = f64::from(2 * (encoder + decoder + head));
        assert_eq!(model.flops(2, 4, 3), all);
    }),
    ("is-shown-in-a-table", |device| {
        let model = one_vocabulary(LEARNING[1].map(small_for_tests)).with_tying(Tying::All);
        let parts = [
            "Transformer of 1 + 2 layers",
            "the target's",
            "1 x 16, 4 heads, sliding-window, relu 24, post-norm",
            "2 x 16, 4 heads, retention, across additive, relu 24, post-norm",
            "the target embedding's",
        ];
        has_parts(model.init(device).to_string(), &parts);
    }),
    ("empty-sequences-have-an-answer", |device| {
        let strided = Strided { stride: None }.into();
        for mechanisms in [
            [Mechanism::Linear.into(); 3],
            [LocalP { window: 2 }.into(); 3],
            [strided, strided, Mechanism::Additive.into()],
        ] {
            let model = config(mechanisms).init(device);
            let source = tokens(&[vec![], vec![1, 2, 3]], model.source_limits(), device);
            let target = tokens(&[vec![4], vec![]], model.target_limits(), device);
            let said = numbers(model.forward(&source, &target));
            let is_finite = said.iter().all(|number| number.is_finite());
            assert!(is_finite, "{mechanisms:?}: {said:?}");
        }
    }),
    ("all-three-share-their-vectors", |device| {
        let device = &device.clone().autodiff();
        let config = one_vocabulary([Mechanism::Flash.into(); 3]).with_tying(Tying::All);
        let model = config.init(device);
        // A token of the source alone has a gradient in the only table there is.
        let source = tokens(&[[3]], model.source_limits(), device);
        let target = tokens(&[[1]], model.target_limits(), device);
        let said = model.forward(&source, &target).slice_dim(2, 0..1);
        let gradients = said.sum().backward();
        let table = model.target_embedding.weight.val();
        let gradient = table.grad(&gradients).expect("the table has no gradient");
        let rows = numbers(gradient.abs().sum_dim(1));
        // The target's own token, the source's, and the one that was asked for.
        let touched: Vec<usize> = (0..11).filter(|row| rows[*row] > 0.0).collect();
        assert_eq!(touched, vec![0, 1, 3]);
    }),
    ("what-cannot-go-token-by-token-says-so", |device| {
        let strided = Strided { stride: None }.into();
        let model = config([Mechanism::Flash.into(), strided, Mechanism::Flash.into()]);
        let model = model.init(device);
        let source = tokens(&sources(), model.source_limits(), device);
        let said = model.start(&source).err().map(|error| error.to_string());
        let reason = "decoder_mechanism: mechanism strided cannot decode token by token: without \
                      `stride`, it is sqrt(seq_k), which grows while decoding";
        assert_eq!(said.as_deref(), Some(reason));
    }),
    ("batches-must-fit", |device| {
        let model = config([Mechanism::Flash.into(); 3]).init(device);
        let source = tokens(&sources(), model.source_limits(), device);
        let target = tokens(&[[1, 2]], model.target_limits(), device);
        is_refused(
            || model.forward(&source, &target),
            "Transformer: a target must be [batch = 3, seq] as the source is, got [1, 2]",
        );
    }),
    ("a-token-of-the-other-vocabulary-is-refused", |device| {
        let model = config([Mechanism::Flash.into(); 3]).init(device);
        // The target has a tenth token, the source has not.
        let rows = [[1, 10]];
        tokens(&rows, model.target_limits(), device);
        let said = "token 10 at place 1 of row 0 is outside of the vocabulary: it has 9 tokens, 0 \
                    to 8";
        refuses_tokens(&rows, model.source_limits(), said, device);
    }),
];
