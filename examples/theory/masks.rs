//! What a query may attend to, and what becomes of one that attends to nothing.

use std::error::Error;

use burn::tensor::{Bool, Tensor, activation};
use zoo_attention::{AttentionOptions, Pattern, flash, standard};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference, normal, query_key_value, shape};

/// Hidden is as if it were not there, and where a query stands among the keys.
pub(crate) fn visibility(opened: &Opened) -> Outcome {
    let device = &opened.device;
    let [query, key, value] = query_key_value([1, 1, 8, 16], device);
    let hidden = AttentionOptions::new().with_pattern(Pattern::key_lengths([5]));
    let hidden = flash(query.clone(), key.clone(), value.clone(), &hidden);
    let [five_keys, five_values] = [&key, &value].map(|rows| rows.clone().slice_dim(2, 0..5));
    let all = AttentionOptions::new();
    let fewer = flash(query.clone(), five_keys, five_values, &all);
    let differ = difference(&hidden, &fewer);
    println!("8 keys, 3 of them hidden, and 5 keys differ by {differ:.7}");
    assert!(differ < 1e-6);

    let mask = [false, true, false, true, true, false, true, true];
    let mask = Tensor::<1, Bool>::from_bool(mask, device).reshape([1, 1, 1, 8]);
    let options = AttentionOptions::new().with_pattern(Pattern::Dense(mask.clone()));
    let weights = standard(query, key, value, &options).weights;
    let where_true = weights.mask_fill(mask.bool_not(), 0.0).sum_dim(3).max();
    let sum = where_true.into_scalar::<f32>();
    println!("weights where a mask is true sum up to {sum} of 1\n");
    assert_eq!(sum, 0.0);

    println!("2 queries, 5 keys      the first    the last");
    let window = Pattern::Window { left: 1, right: 1 };
    let monotonic = Pattern::Monotonic { window: 1 };
    // The last query is aligned with the last key, but for one.
    for (name, pattern, expected) in [
        ("causal", Pattern::Causal, "█ █ █ █ ·    █ █ █ █ █"),
        ("a window of 1", window, "· · █ █ █    · · · █ █"),
        ("local-m, 1", monotonic, "█ █ · · ·    █ █ █ · ·"),
    ] {
        let seen = seen_by(&pattern, opened)?.join("    ");
        println!("{name:23}{seen}");
        assert_eq!(seen, expected);
    }

    println!("\n4,096 places           tiles computed");
    let (left, right) = (64, 64);
    for (name, pattern, expected) in [
        ("full", Pattern::Full, 100.0..=100.0),
        ("causal", Pattern::Causal, 50.0..=51.0),
        ("a window of 64", Pattern::Window { left, right }, 0.0..=5.0),
    ] {
        let percent = 100.0 * pattern.plan(&shape(4096, 4096), [64, 64]).density();
        println!("{name:23}{percent:.1}%");
        assert!(expected.contains(&percent));
    }
    Ok(())
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

/// A query that sees nothing gets nothing, and passes nothing back.
pub(crate) fn masks(opened: &Opened) -> Outcome {
    println!("four scores, all hidden by      weights");
    let infinite = softmax([f32::NEG_INFINITY; 4]);
    println!("minus infinity, then softmax    {infinite:?}");
    assert!(infinite.iter().all(|weight| weight.is_nan()));
    let large = softmax([-1e4; 4]);
    println!("-10,000, then softmax           {large:?}");
    assert_eq!(large, [0.25; 4]);

    // Two examples of four keys; all of the second are padding.
    let device = &opened.device.clone().autodiff();
    let [query, key, value] = query_key_value([2, 1, 4, 8], device).map(Tensor::require_grad);
    let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([3, 0]));
    let held = standard(query.clone(), key.clone(), value.clone(), &options);
    let row = held.weights.inner().slice([1..2, 0..1, 0..1]);
    let row: Vec<f32> = row.try_into_vec_as()?;
    println!("a pattern                       {row:?}\n");
    assert_eq!(row, [0.0; 4]);

    let attend = |key: &Tensor<4>, value: &Tensor<4>| {
        flash(query.clone(), key.clone(), value.clone(), &options)
    };
    let context = attend(&key, &value);
    let gradients = context.clone().square().sum().backward();
    println!("largest of                 of one that sees three keys   of one that sees none");
    let mut rows = vec![print_line("context", context.clone().inner())];
    for (name, tensor) in [("query", &query), ("key", &key), ("value", &value)] {
        let gradient = tensor.grad(&gradients).ok_or("it has a gradient")?;
        rows.push(print_line(&format!("gradient by {name}"), gradient));
    }
    assert!(rows.iter().all(|[some, none]| *some > 1e-3 && *none == 0.0));
    // What is hidden can be anything: here the fourth, a thousand times as large.
    let loud = |rows: &Tensor<4>| {
        let fourth = rows.clone().slice_dim(2, 3..4).mul_scalar(1e3);
        Tensor::cat(vec![rows.clone().slice_dim(2, 0..3), fourth], 2)
    };
    for (name, changed) in [
        ("change by a hidden key", attend(&loud(&key), &value)),
        ("change by a hidden value", attend(&key, &loud(&value))),
    ] {
        let change = print_line(name, (changed - context.clone()).inner());
        assert_eq!(change, [0.0, 0.0]);
    }
    Ok(())
}

/// As it is written in books, for one row.
fn softmax(scores: [f32; 4]) -> [f32; 4] {
    let largest = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let exponentials = scores.map(|score| (score - largest).exp());
    let sum: f32 = exponentials.iter().sum();
    exponentials.map(|exponential| exponential / sum)
}

fn print_line(name: &str, tensor: Tensor<4>) -> [f32; 2] {
    let [some, none] = [0, 1].map(|example| {
        let own = tensor.clone().slice_dim(0, example..example + 1);
        own.abs().max().into_scalar::<f32>()
    });
    println!("{name:24}   {some:<27}   {none}");
    [some, none]
}

/// One row that sees nothing, hidden by minus infinity, and a model is lost in one step.
pub(crate) fn one_nan(opened: &Opened) -> Outcome {
    let device = &opened.device.clone().autodiff();
    // Two examples of four places; the second one's keys are all hidden.
    let x: Tensor<4> = normal([2, 1, 4, 8], device);
    let infinite = |query: Tensor<4>| {
        let hidden = Tensor::<2>::from_floats([[0.0; 4], [f32::NEG_INFINITY; 4]], device);
        let scores = query.matmul(x.clone().swap_dims(2, 3)) + hidden.reshape([2, 1, 1, 4]);
        activation::softmax(scores, 3).matmul(x.clone())
    };
    let pattern = |query: Tensor<4>| {
        let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([4, 0]));
        flash(query, x.clone(), x.clone(), &options)
    };

    println!("hidden by          of 64 numbers, not numbers after one step");
    let attentions: [&dyn Fn(Tensor<4>) -> Tensor<4>; 2] = [&infinite, &pattern];
    let expected = [("minus infinity", 64), ("a pattern", 0)];
    for (attend, (name, expected)) in attentions.into_iter().zip(expected) {
        // What makes queries of places, and learns.
        let matrix = normal([8, 8], device).require_grad();
        let query = x.clone().matmul(matrix.clone().unsqueeze());
        let gradients = attend(query).sum().backward();
        let gradient = matrix.grad(&gradients).ok_or("it has a gradient")?;
        let learned = matrix.inner() - gradient.mul_scalar(0.1);
        let lost = learned.is_nan().int().sum().into_scalar::<i32>();
        println!("{name:19}{lost}");
        assert_eq!(lost, expected);
    }
    Ok(())
}
