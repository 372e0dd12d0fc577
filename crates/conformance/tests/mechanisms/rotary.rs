//! Rotary position embedding against transformers' functions, which `golden/rotary.py` called, and its
//! properties.

use zoo_attention::{PairLayout, Rotary, RotaryScaling, rotate};
use zoo_kernels::matmul::matmul;

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    let file = include_bytes!("../../golden/rotary.safetensors");
    let golden = must(Golden::from_bytes(file));
    for name in golden.metadata["cases"].split(' ') {
        let (name, golden) = (name.to_owned(), golden.clone());
        suite.add(format!("golden/rotary/{name}"), move |device| {
            check_golden(&golden, &name, device);
        });
    }
    suite.add("golden/rotary/file-matches-its-script", move |_| {
        let script = include_str!("../../golden/rotary.py");
        let [torch, seed] = ["torch", "seed"].map(|key| &golden.metadata[key]);
        let head = format!("PyTorch {torch}, seed {seed}.");
        assert!(script.contains(&head), "{head:?} is not in the script");
    });
    for (name, rotary) in variants() {
        let trial = format!("rotary/{name}/scores-depend-only-on-the-distance");
        suite.add(trial, move |device| check_distance(&rotary, device));
        let trial = format!("rotary/{name}/gradient-rotates-back");
        suite.add_training(trial, move |device| check_gradient(&rotary, device));
    }
    suite.add(
        "rotary/elements-after-the-rotated-are-unchanged",
        |device| {
            let query = random_normal([1, 2, 6, 7], device);
            let rest = |x: Tensor<4>| to_vec(x.slice_dim(3, 4..7));
            let rotary = Rotary::default().with_fraction(0.6);
            assert_eq!(rest(rotate(query.clone(), 3, &rotary)), rest(query));
        },
    );
    suite.add("rotary/odd-number-of-elements", |device| {
        let query = random_normal([1, 2, 6, 8], device);
        assert_panics_containing(
            || rotate(query, 0, &Rotary::default().with_fraction(0.4)),
            "the number of rotated elements must be even and at least 2, got 3 of d_head = 8",
        );
    });
}

fn check_golden(golden: &Golden, name: &str, device: &Device) {
    let rotary: Rotary = must(toml::from_str(&golden.metadata[name]));
    let first = must(golden.metadata["first"].parse());
    let query: Tensor<4> = golden.tensor("query", device).expect("query");
    let rotated = to_vec(rotate(query, first, &rotary));
    // Angles up to 28 are rounded to f32 by the script.
    let tolerance = Precision::F32.backward(0.0);
    must(tolerance.check(name, &rotated, &golden.values(name)));
}

/// Every scaling with both layouts, of whole heads and of a part.
fn variants() -> Vec<(String, Rotary)> {
    // With 16 elements and a context of 500, the ramps of YaRN and Llama 3 cover several pairs.
    let scalings = [
        RotaryScaling::None,
        RotaryScaling::linear(4.0),
        RotaryScaling::ntk(4.0),
        RotaryScaling::yarn(4.0, 500),
        RotaryScaling::llama3(8.0, 500),
    ];
    let mut variants = vec![];
    for scaling in scalings {
        for layout in PairLayout::ALL {
            for (part, fraction) in [("", 1.0), ("-partial", 0.5)] {
                let rotary = Rotary::new(1e4).with_layout(layout).with_fraction(fraction);
                let name = format!("{}-{layout}{part}", scaling.name());
                variants.push((name, rotary.with_scaling(scaling)));
            }
        }
    }
    variants
}

fn check_distance(rotary: &Rotary, device: &Device) {
    let [query, key] = [(); 2].map(|()| random_normal([1, 2, 6, 16], device));
    let scores = |first: [i64; 2]| {
        let query = rotate(query.clone(), first[0], rotary);
        let key = rotate(key.clone(), first[1], rotary);
        matmul(query, key.swap_dims(2, 3))
    };
    assert_close(scores([0, 0]), scores([1000, 1000]));
    assert_close(scores([7, 0]), scores([0, -7]));
    let is_constant = is_close(scores([0, 0]), scores([7, 0]));
    assert!(!is_constant, "rotation has no effect");
    let plain = rotate(
        query.clone(),
        900,
        &Rotary {
            scaling: RotaryScaling::None,
            ..*rotary
        },
    );
    let is_plain = is_close(rotate(query.clone(), 900, rotary), plain);
    assert_eq!(is_plain, rotary.scaling == RotaryScaling::None);
}

/// The transpose of a rotation by an angle is the rotation by its negative.
fn check_gradient(rotary: &Rotary, device: &Device) {
    const FIRST: i64 = 3;
    const SEQ: i64 = 6;
    let dims = [1, 2, SEQ as usize, 16];
    let query = random_normal::<4>(dims, device).require_grad();
    let upstream: Tensor<4> = random_normal(dims, device);
    let loss = (rotate(query.clone(), FIRST, rotary) * upstream.clone()).sum();
    let gradient = query.grad(&loss.backward()).expect("a gradient");
    // Position i of the reversed rows is -(FIRST + SEQ - 1) + i.
    let back = rotate(upstream.flip([2]), -(FIRST + SEQ - 1), rotary).flip([2]);
    assert_close(gradient, back.inner());
}
