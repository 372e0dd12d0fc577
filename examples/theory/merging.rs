//! Keys can be attended to a part at a time: the log-sum-exp says what each part weighs.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, Flashed, Pattern, flash_with_log_sum_exp, merge};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};

const KEYS: usize = 240;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let draw = |places: usize, deviation: f64| {
        let normal = Distribution::Normal(0.0, deviation);
        Tensor::<4>::random([1, 2, places, 16], normal, &opened.device)
    };
    // Large queries: some parts have far more to say to one than others have.
    let (query, key, value) = (draw(32, 4.0), draw(KEYS, 1.0), draw(KEYS, 1.0));
    let options = AttentionOptions::new();
    let whole = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &options);

    println!("         differ from all keys at once by");
    println!("parts    context, merged    log-sum-exp, merged    context, plain mean");
    for count in [2, 5, 24] {
        let size = KEYS / count;
        let parts: Vec<Flashed> = (0..count)
            .map(|part| {
                let own = part * size..(part + 1) * size;
                let [key, value] =
                    [&key, &value].map(|rows| rows.clone().slice_dim(2, own.clone()));
                flash_with_log_sum_exp(query.clone(), key, value, &options)
            })
            .collect();
        let merged = merge(&parts);
        let contexts = parts.into_iter().map(|part| part.context).collect();
        let mean = Tensor::cat(contexts, 0).mean_dim(0);
        println!(
            "{count:<9}{:<19.7}{:<23.7}{:.7}",
            difference(&merged.context, &whole.context),
            difference(&merged.log_sum_exp, &whole.log_sum_exp),
            difference(&mean, &whole.context),
        );
    }
    conditions(opened)
}

/// What merging asks for, and what it does not mind.
fn conditions(opened: &Opened) -> Outcome {
    let device = &opened.device.clone().autodiff();
    let [query, key, value] = [(); 3].map(|()| {
        let normal = Distribution::Normal(0.0, 1.0);
        Tensor::<4>::random([1, 1, 8, 16], normal, device).require_grad()
    });
    let part = |keys: std::ops::Range<usize>, options: &AttentionOptions| {
        let [key, value] = [&key, &value].map(|rows| rows.clone().slice_dim(2, keys.clone()));
        flash_with_log_sum_exp(query.clone(), key, value, options)
    };
    let all = AttentionOptions::new();
    let none = AttentionOptions::new().with_pattern(Pattern::key_lengths([0]));
    let whole = part(0..8, &all);
    let blind = part(0..8, &none);
    let largest: f32 = blind.log_sum_exp.clone().max().into_scalar();

    println!("\n                              differs from all keys at once by");
    for (name, parts) in [
        ("two parts", [part(0..5, &all), part(5..8, &all)]),
        ("a key in both", [part(0..5, &all), part(4..8, &all)]),
        ("a part that sees nothing", [part(0..8, &all), blind]),
    ] {
        let differs = difference(&merge(&parts).context, &whole.context);
        println!("{name:30}{differs:.7}");
    }
    let gradient = |context: Tensor<4>| key.grad(&context.square().sum().backward());
    let merged = merge(&[part(0..5, &all), part(5..8, &all)]).context;
    let by = [gradient(merged), gradient(whole.context)].map(|it| it.ok_or("keys have one"));
    let [merged, whole] = by;
    println!(
        "{:30}{:.7}",
        "gradient by keys, two parts",
        difference(&merged?, &whole?)
    );
    println!("log-sum-exp of a part that sees nothing: {largest:e}");
    Ok(())
}
