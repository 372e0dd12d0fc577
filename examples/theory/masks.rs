//! Masks, and fully masked queries.

use burn::tensor::{Bool, Tensor, activation};
use zoo_attention::{AttentionOptions, Pattern, flash, standard};
use zoo_backend::OpenDevice;
use zoo_examples::{Outcome, difference, normal, pattern_rows, query_key_value, shape};

/// Masked keys have no influence; alignment of queries and keys; tiles that a pattern skips.
pub(crate) fn masking(opened: &OpenDevice) -> Outcome {
    let device = &opened.device;
    let [query, key, value] = query_key_value([1, 1, 8, 16], device);
    let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([5]));
    let masked = flash(query.clone(), key.clone(), value.clone(), &options);
    let [five_keys, five_values] = [&key, &value].map(|rows| rows.clone().slice_dim(2, 0..5));
    let all = AttentionOptions::new();
    let fewer = flash(query.clone(), five_keys, five_values, &all);
    let differ = difference(&masked, &fewer);
    println!("8 keys, 3 of them masked, and 5 keys differ by {differ:.7}");
    assert!(differ < 1e-6);

    let mask = [false, true, false, true, true, false, true, true];
    let mask = Tensor::<1, Bool>::from_bool(mask, device).reshape([1, 1, 1, 8]);
    let options = AttentionOptions::new().with_pattern(Pattern::Dense(mask.clone()));
    let weights = standard(query, key, value, &options).into_weights();
    let where_true = weights.mask_fill(mask.bool_not(), 0.0).sum_dim(3).max();
    let sum = where_true.into_scalar::<f32>();
    println!("weights where the mask is true sum to {sum} of 1\n");
    assert_eq!(sum, 0.0);

    println!("2 queries, 5 keys      first        last");
    let window = Pattern::Window { left: 1, right: 1 };
    let monotonic = Pattern::Monotonic { window: 1 };
    // The last query is aligned with the last key, except in local-m.
    for (name, pattern, expected) in [
        ("causal", Pattern::Causal, "█ █ █ █ ·    █ █ █ █ █"),
        ("window of 1", window, "· · █ █ █    · · · █ █"),
        ("local-m, 1", monotonic, "█ █ · · ·    █ █ █ · ·"),
    ] {
        let visible = pattern_rows(&pattern, [2, 5], device)?.join("    ");
        println!("{name:23}{visible}");
        assert_eq!(visible, expected);
    }

    println!("\nseq 4,096              tiles computed");
    let (left, right) = (64, 64);
    for (name, pattern, expected) in [
        ("full", Pattern::Full, 100.0..=100.0),
        ("causal", Pattern::Causal, 50.0..=51.0),
        ("window of 64", Pattern::Window { left, right }, 0.0..=5.0),
    ] {
        let percent = 100.0 * pattern.plan(&shape(4096, 4096), [64, 64]).density();
        println!("{name:23}{percent:.1}%");
        assert!(expected.contains(&percent));
    }
    Ok(())
}

/// Output and gradients of a fully masked query are zero.
pub(crate) fn fully_masked_rows(opened: &OpenDevice) -> Outcome {
    println!("four scores, all masked by      weights");
    let infinite = softmax([f32::NEG_INFINITY; 4]);
    println!("minus infinity, then softmax    {infinite:?}");
    assert!(infinite.iter().all(|weight| weight.is_nan()));
    let large = softmax([-1e4; 4]);
    println!("-10,000, then softmax           {large:?}");
    assert_eq!(large, [0.25; 4]);

    // Batch of two with four keys; those of the second are all padding.
    let device = &opened.device.clone().autodiff();
    let [query, key, value] = query_key_value([2, 1, 4, 8], device).map(Tensor::require_grad);
    let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([3, 0]));
    let output = standard(query.clone(), key.clone(), value.clone(), &options);
    let row = output.into_weights().inner().slice([1..2, 0..1, 0..1]);
    let row: Vec<f32> = row.try_into_vec_as()?;
    println!("a pattern                       {row:?}\n");
    assert_eq!(row, [0.0; 4]);

    let attend = |key: &Tensor<4>, value: &Tensor<4>| {
        flash(query.clone(), key.clone(), value.clone(), &options)
    };
    let context = attend(&key, &value);
    let gradients = context.clone().square().sum().backward();
    println!("largest value of           query with three keys         fully masked query");
    let mut rows = vec![print_line("context", context.clone().inner())];
    for (name, tensor) in [("query", &query), ("key", &key), ("value", &value)] {
        let gradient = tensor.grad(&gradients).ok_or("no gradient")?;
        rows.push(print_line(&format!("{name} gradient"), gradient));
    }
    assert!(rows.iter().all(|[some, none]| *some > 1e-3 && *none == 0.0));
    // The masked fourth key or value is multiplied by 1,000.
    let scale_masked = |rows: &Tensor<4>| {
        let fourth = rows.clone().slice_dim(2, 3..4).mul_scalar(1e3);
        Tensor::cat(vec![rows.clone().slice_dim(2, 0..3), fourth], 2)
    };
    for (name, changed) in [
        ("change by masked key", attend(&scale_masked(&key), &value)),
        (
            "change by masked value",
            attend(&key, &scale_masked(&value)),
        ),
    ] {
        let change = print_line(name, (changed - context.clone()).inner());
        assert_eq!(change, [0.0, 0.0]);
    }
    Ok(())
}

/// Textbook softmax of one row.
fn softmax(scores: [f32; 4]) -> [f32; 4] {
    let max = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let exponentials = scores.map(|score| (score - max).exp());
    let sum: f32 = exponentials.iter().sum();
    exponentials.map(|exponential| exponential / sum)
}

fn print_line(name: &str, tensor: Tensor<4>) -> [f32; 2] {
    let [some, none] = [0, 1].map(|row| {
        let row = tensor.clone().slice_dim(0, row..row + 1);
        row.abs().max().into_scalar::<f32>()
    });
    println!("{name:24}   {some:<27}   {none}");
    [some, none]
}

/// One row that is fully masked with minus infinity makes all weights NaN in one step.
pub(crate) fn nan_propagation(opened: &OpenDevice) -> Outcome {
    let device = &opened.device.clone().autodiff();
    // Batch of two with four positions; the keys of the second are all masked.
    let x: Tensor<4> = normal([2, 1, 4, 8], device);
    let infinite = |query: Tensor<4>| {
        let mask = Tensor::<2>::from_floats([[0.0; 4], [f32::NEG_INFINITY; 4]], device);
        let scores = query.matmul(x.clone().swap_dims(2, 3)) + mask.reshape([2, 1, 1, 4]);
        activation::softmax(scores, 3).matmul(x.clone())
    };
    let pattern = |query: Tensor<4>| {
        let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([4, 0]));
        flash(query, x.clone(), x.clone(), &options)
    };

    println!("masked by          NaN among 64 weights after one step");
    let attentions: [&dyn Fn(Tensor<4>) -> Tensor<4>; 2] = [&infinite, &pattern];
    let expected = [("minus infinity", 64), ("a pattern", 0)];
    for (attend, (name, expected)) in attentions.into_iter().zip(expected) {
        // Trained query projection.
        let matrix = normal([8, 8], device).require_grad();
        let query = x.clone().matmul(matrix.clone().unsqueeze());
        let gradients = attend(query).sum().backward();
        let gradient = matrix.grad(&gradients).ok_or("no gradient")?;
        let updated = matrix.inner() - gradient.mul_scalar(0.1);
        let nans = updated.is_nan().int().sum().into_scalar::<i32>();
        println!("{name:19}{nans}");
        assert_eq!(nans, expected);
    }
    Ok(())
}
