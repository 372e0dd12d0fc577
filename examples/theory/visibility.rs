//! Hidden is as if it were not there, and where a query stands among the keys.

use std::error::Error;

use burn::tensor::{Bool, Distribution, Tensor};
use zoo_attention::{AttentionOptions, AttentionShape, Pattern, flash, standard};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device;
    let [query, key, value] = [(); 3]
        .map(|()| Tensor::<4>::random([1, 1, 8, 16], Distribution::Normal(0.0, 1.0), device));
    let hidden = AttentionOptions::new().with_pattern(Pattern::key_lengths([5]));
    let hidden = flash(query.clone(), key.clone(), value.clone(), &hidden);
    let [five_keys, five_values] = [&key, &value].map(|rows| rows.clone().slice_dim(2, 0..5));
    let fewer = flash(
        query.clone(),
        five_keys,
        five_values,
        &AttentionOptions::new(),
    );
    let differ = difference(&hidden, &fewer);
    println!("8 keys, 3 of them hidden, and 5 keys differ by {differ:.7}");

    let mask = [false, true, false, true, true, false, true, true];
    let mask = Tensor::<1, Bool>::from_bool(mask, device).reshape([1, 1, 1, 8]);
    let options = AttentionOptions::new().with_pattern(Pattern::Dense(mask.clone()));
    let weights = standard(query, key, value, &options).weights;
    let where_true = weights.mask_fill(mask.bool_not(), 0.0).sum_dim(3).max();
    let sum = where_true.into_scalar::<f32>();
    println!("weights where a mask is true sum up to {sum} of 1\n");

    println!("2 queries, 5 keys      the first    the last");
    for (name, pattern) in [
        ("causal", Pattern::Causal),
        ("a window of 1", Pattern::Window { left: 1, right: 1 }),
        ("local-m, 1", Pattern::Monotonic { window: 1 }),
    ] {
        let [first, last] = seen_by(&pattern, opened)?;
        println!("{name:23}{first}    {last}");
    }

    println!("\n4,096 places           tiles computed");
    for (name, pattern) in [
        ("full", Pattern::Full),
        ("causal", Pattern::Causal),
        (
            "a window of 64",
            Pattern::Window {
                left: 64,
                right: 64,
            },
        ),
    ] {
        let plan = pattern.plan(&shape(4096, 4096), [64, 64]);
        println!("{name:23}{:.1}%", 100.0 * plan.density());
    }
    Ok(())
}

fn shape(seq_q: usize, seq_k: usize) -> AttentionShape {
    AttentionShape {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        seq_q,
        seq_k,
        d_head: 16,
        d_value: 16,
    }
}

/// What each of two queries sees of five keys.
fn seen_by(pattern: &Pattern, opened: &Opened) -> Result<[String; 2], Box<dyn Error>> {
    let hidden = pattern.hidden("example", &shape(2, 5), &opened.device);
    let hidden = hidden.ok_or("it hides something")?.into_data();
    let hidden: Vec<bool> = hidden.iter::<bool>().collect();
    Ok([0, 1].map(|query| {
        let keys = hidden[5 * query..][..5].iter();
        let keys: Vec<&str> = keys
            .map(|is_hidden| if *is_hidden { "·" } else { "█" })
            .collect();
        keys.join(" ")
    }))
}
