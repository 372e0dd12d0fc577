//! Training sees a whole text at once, inference a token at a time; both compute the same.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::mechanisms::SlidingWindow;
use zoo_attention::{Mechanism, MechanismConfig, MultiHeadAttentionConfig, Pattern, Positions};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};

const PLACES: usize = 20;
const D_MODEL: usize = 16;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device;
    let x = Tensor::<3>::random([1, PLACES, D_MODEL], Distribution::Normal(0.0, 1.0), device);
    // The same text with another last place.
    let earlier = x.clone().slice_dim(1, 0..PLACES - 1);
    let last = x.clone().slice_dim(1, PLACES - 1..PLACES).add_scalar(1.0);
    let other = Tensor::cat(vec![earlier, last], 1);

    println!("what differs, at most:");
    println!("                  step by step         earlier places, when the last is another");
    println!("mechanism         and all at once      causal       full");
    let mechanisms: [MechanismConfig; 4] = [
        Mechanism::Flash.into(),
        MechanismConfig::SlidingWindow(SlidingWindow { window: 5 }),
        Mechanism::Linear.into(),
        Mechanism::Performer.into(),
    ];
    for mechanism in mechanisms {
        let word = mechanism.mechanism().word();
        let layer = MultiHeadAttentionConfig::new(D_MODEL, 2)
            .with_positions(Positions::Rotary { theta: 10_000.0 })
            .with_mechanism(mechanism)
            .init(device);
        let whole = |x: &Tensor<3>, pattern: Pattern| {
            layer.forward(x.clone(), x.clone(), x.clone(), pattern)
        };
        let at_once = whole(&x, Pattern::Causal);
        let mut cache = layer.decode_cache(PLACES)?;
        let steps = (0..PLACES).map(|at| {
            let place = x.clone().slice_dim(1, at..at + 1);
            layer.step(place, &mut cache) // [1, 1, d_model]
        });
        let steps = difference(&Tensor::cat(steps.collect(), 1), &at_once);
        let [causal, full] = [Pattern::Causal, Pattern::Full].map(|pattern| {
            let [a, b] = [&x, &other].map(|x| whole(x, pattern.clone()));
            let [a, b] = [a, b].map(|result| result.slice_dim(1, 0..PLACES - 1));
            difference(&a, &b)
        });
        println!("{word:<16}  {steps:<19.7}  {causal:<11.7}  {full:.7}");
    }
    Ok(())
}
