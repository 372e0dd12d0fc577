use super::*;

fn extent(width: usize, other: usize, rows: usize) -> Extent {
    Extent { width, other, rows }
}

fn extents(count: usize) -> Vec<Extent> {
    let mut draw = Draw::new(11, "lengths", 0);
    let drawn = |_| extent(draw.within(1, 40), draw.within(1, 40), 1);
    (0..count).map(drawn).collect()
}

fn documents(count: usize) -> Vec<Extent> {
    let mut draw = Draw::new(12, "documents", 0);
    let drawn = |_| extent(draw.within(0, 30), 0, draw.within(0, 12));
    (0..count).map(drawn).collect()
}

fn plan(size: BatchSize, seed: u64, extents: Vec<Extent>) -> BatchPlan {
    Batching::new(size, seed).plan(extents).unwrap()
}

#[test]
fn sizes_hold() {
    let batches = plan(BatchSize::Examples(7), 1, extents(333)).epoch(0);
    assert_eq!(batches.len(), 333_usize.div_ceil(7));
    assert!(batches.iter().all(|batch| (1..=7).contains(&batch.len())));
    for extents in [extents(333), documents(333)] {
        let by_hand = extents.clone();
        let plan = plan(BatchSize::Tokens(400), 1, extents);
        let mut fullest = 0;
        for batch in plan.epoch(0) {
            let width = batch.iter().map(|at| by_hand[*at].width).max().unwrap();
            let rows: usize = batch.iter().map(|at| by_hand[*at].rows).sum();
            assert_eq!(plan.padded(&batch), width * rows);
            assert!(width * rows <= 400);
            fullest = fullest.max(width * rows);
        }
        assert!(fullest > 360, "batches are filled, {fullest}");
    }
}

#[test]
fn sorting_by_length_spares_padding() {
    // More than two pools.
    let extents = extents(20_000);
    let tokens: usize = extents.iter().map(|it| it.width).sum();
    let plan = plan(BatchSize::Examples(32), 1, extents);
    let share = |batches: &[Vec<usize>]| {
        let padded = batches.iter().map(|batch| plan.padded(batch));
        padded.sum::<usize>() as f64 / tokens as f64
    };
    let sorted = plan.epoch(0);
    let mut all = sorted.concat();
    all.sort_unstable();
    let all: Vec<Vec<usize>> = all.chunks(32).map(<[usize]>::to_vec).collect();
    assert_eq!(all.concat(), (0..20_000).collect::<Vec<_>>());
    assert!(share(&sorted) < 1.1, "{}", share(&sorted));
    assert!(share(&all) > 1.7, "as they come: {}", share(&all));
}

#[test]
fn the_order_is_a_function_of_seed_and_epoch() {
    let plan = |seed| plan(BatchSize::Tokens(400), seed, extents(333));
    assert_eq!(plan(1).epoch(3), plan(1).epoch(3));
    assert_ne!(plan(1).epoch(3), plan(1).epoch(4));
    assert_ne!(plan(1).epoch(3), plan(2).epoch(3));
    // Batches are made of other examples each time, not only in another order.
    let made = |epoch| {
        let mut batches = plan(1).epoch(epoch);
        batches.iter_mut().for_each(|batch| batch.sort_unstable());
        batches.sort();
        batches
    };
    assert_ne!(made(0), made(1));
    // And lengths do not rise through an epoch.
    let widths = plan(1).epoch(0);
    let first: Vec<usize> = widths.iter().map(|batch| batch.len()).collect();
    assert!(!first.is_sorted() && !first.is_sorted_by(|a, b| a >= b));
}

#[test]
fn the_first_batches_of_a_seed() {
    let plan = plan(BatchSize::Examples(3), 1, extents(8));
    assert_eq!(plan.epoch(0), [vec![7, 1, 2], vec![6, 4], vec![5, 3, 0]]);
}

#[test]
fn what_cannot_be_batched_is_explained() {
    let tokens = Batching::new(BatchSize::Tokens(30), 0);
    let none = Batching::new(BatchSize::Examples(0), 0);
    let long = extent(8, 0, 4);
    for (batching, extents, why) in [
        (tokens, vec![], "what batches are made of has no examples"),
        (
            tokens,
            vec![long],
            "example 0 has 32 tokens, and at most 30 are allowed: shorten it, leave it out, or \
             allow more",
        ),
        (none, vec![long], "batch size must be at least 1, got 0"),
    ] {
        assert_eq!(batching.plan(extents).unwrap_err().to_string(), why);
    }
}

#[test]
fn batches_of_any_number_of_epochs_are_counted_at_once() {
    let extents: Vec<Extent> = (0..1000).map(|at| extent(1 + at % 17, 0, 1)).collect();
    for size in [BatchSize::Examples(30), BatchSize::Tokens(100)] {
        let plan = plan(size, 3, extents.clone());
        let start = std::time::Instant::now();
        for epochs in [0, 1, 2, 100] {
            let each: usize = (0..epochs).map(|epoch| plan.epoch(epoch).len()).sum();
            assert_eq!(plan.batches_of(epochs), each, "{epochs} of {size:?}");
        }
        let many = plan.batches_of(100_000_000);
        let of_one = plan.batches_of(100) as f64 / 100.0;
        assert!((many as f64 / 1e8 - of_one).abs() < 0.01, "{many}");
        assert_eq!(plan.batches_of(usize::MAX), usize::MAX);
        let took = start.elapsed();
        assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    }
}
