//! The ways to tell a model what stands where, and who can be told how.

use std::error::Error;

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{
    AttentionOptions, Mechanism, MultiHeadAttentionConfig, Positions, alibi_slopes, standard,
};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};
use zoo_models::{Classifier, ClassifierConfig, PositionEncoding, Tokens};

const ROTARY: f64 = 10_000.0;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device;
    println!("a classifier told by      differs when the text is shuffled by");
    let text: Vec<u32> = (0..9).collect();
    let shuffled = text.iter().map(|at| at * 4 % 9).collect();
    for (name, positions) in [
        ("nothing", PositionEncoding::None),
        ("waves", PositionEncoding::Sinusoidal),
        ("learned places", PositionEncoding::learned(9)),
        ("turned queries and keys", PositionEncoding::rotary(ROTARY)),
        ("ALiBi", PositionEncoding::Alibi),
    ] {
        let config = ClassifierConfig::new(9, 3, 16, 2, 1).with_positions(positions);
        let model: Classifier = config.init(device);
        let logits = |ids: &Vec<u32>| {
            let tokens = Tokens::new(&[ids], model.limits(), device)?;
            Ok::<Tensor<2>, Box<dyn Error>>(model.forward(&tokens))
        };
        println!(
            "{name:26}{:.7}",
            difference(&logits(&text)?, &logits(&shuffled)?)
        );
        let longer = Tokens::new(&[[0; 10]], model.limits(), device);
        if let Err(error) = longer {
            println!("{:26}refuses a longer text: {error}", "");
        }
    }

    alibi_is_a_bias(opened);

    for (name, positions) in [
        ("rotary", Positions::Rotary { theta: ROTARY }),
        ("ALiBi", Positions::Alibi),
    ] {
        let refuses = |mechanism: &Mechanism| {
            let config = MultiHeadAttentionConfig::new(16, 2)
                .with_mechanism((*mechanism).into())
                .with_positions(positions);
            config.try_init(device).is_err()
        };
        let refusing = Mechanism::ALL.into_iter().filter(refuses);
        let words: Vec<&str> = refusing.map(Mechanism::word).collect();
        println!("{name} is refused by {words:?}");
    }
    Ok(())
}

/// `s - m·|i - j|`, once by the option and once written out.
fn alibi_is_a_bias(opened: &Opened) {
    const PLACES: usize = 12;
    let [query, key, value] = [(); 3].map(|()| {
        let normal = Distribution::Normal(0.0, 1.0);
        Tensor::<4>::random([1, 4, PLACES, 16], normal, &opened.device)
    });
    let slopes = alibi_slopes(4);
    let written = slopes.iter().flat_map(|slope| {
        let pairs = (0..PLACES * PLACES).map(|at| (at / PLACES).abs_diff(at % PLACES));
        pairs.map(move |distance| -slope * distance as f32)
    });
    let written: Vec<f32> = written.collect();
    let bias = Tensor::<1>::from_floats(written.as_slice(), &opened.device);
    let bias = AttentionOptions::new().with_bias(bias.reshape([1, 4, PLACES, PLACES]));
    let alibi = AttentionOptions::new().with_alibi(slopes);
    let [a, b] = [alibi, bias]
        .map(|options| standard(query.clone(), key.clone(), value.clone(), &options).weights);
    println!(
        "\nALiBi and -m·|i - j| added to scores differ by {:.7}\n",
        difference(&a, &b)
    );
}
