//! Attention does not know the order of things, unless it is told.

use burn::tensor::{Distribution, Int, Tensor};
use zoo_attention::{MultiHeadAttention, MultiHeadAttentionConfig, Pattern, Positions, rotate};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};

const PLACES: usize = 24;
const D_MODEL: usize = 32;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device;
    let layer = |positions: Positions| {
        let config = MultiHeadAttentionConfig::new(D_MODEL, 4).with_positions(positions);
        config.init(device)
    };
    let draw = || Tensor::random([1, PLACES, D_MODEL], Distribution::Normal(0.0, 1.0), device);
    let (x, other): (Tensor<3>, Tensor<3>) = (draw(), draw());
    // 7 and 24 have no common divisor: every place is met once.
    let order: Vec<i32> = (0..PLACES as i32)
        .map(|at| at * 7 % PLACES as i32)
        .collect();
    let order = Tensor::<1, Int>::from_ints(order.as_slice(), device);
    let shuffled = |x: &Tensor<3>| x.clone().select(1, order.clone());

    println!("                                  shuffled before and after differ by");
    let rotary = Positions::Rotary { theta: 10_000.0 };
    let window = Pattern::Window { left: 3, right: 3 };
    for (name, positions, pattern) in [
        ("self, no positions", Positions::None, Pattern::Full),
        ("self, rotary positions", rotary, Pattern::Full),
        ("self, ALiBi", Positions::Alibi, Pattern::Full),
        ("self, causal", Positions::None, Pattern::Causal),
        ("self, a window", Positions::None, window),
        ("self, blocks", Positions::None, Pattern::Block { size: 6 }),
    ] {
        let layer = layer(positions);
        let before = myself(&layer, shuffled(&x), &pattern);
        let after = shuffled(&myself(&layer, x.clone(), &pattern));
        println!("{name:34}{:.7}", difference(&before, &after));
    }
    // Of what is attended to elsewhere, the order is not even seen in the result.
    let layer = layer(Positions::None);
    let cross = |memory: Tensor<3>| layer.forward(x.clone(), memory.clone(), memory, Pattern::Full);
    let differ = difference(&cross(other.clone()), &cross(shuffled(&other)));
    println!("{:34}{differ:.7}", "cross, its memory shuffled");

    // Rotary scores of a query and a key that stand further on.
    println!("\n                                  scores 10 places on differ by");
    let scores = |query: i64, key: i64| {
        let turned = |x: &Tensor<3>, first| rotate(x.clone().unsqueeze_dim(1), first, 10_000.0);
        let products = turned(&x, query).matmul(turned(&other, key).swap_dims(2, 3));
        products.squeeze_dim::<3>(1)
    };
    for (name, query, key) in [("query and key", 10, 10), ("the key alone", 0, 10)] {
        println!(
            "{name:34}{:.7}",
            difference(&scores(0, 0), &scores(query, key))
        );
    }
    Ok(())
}

fn myself(layer: &MultiHeadAttention, x: Tensor<3>, pattern: &Pattern) -> Tensor<3> {
    layer.forward(x.clone(), x.clone(), x, pattern.clone())
}
