use super::*;

fn extent(width: usize, other: usize, rows: usize) -> Extent {
    Extent { width, other, rows }
}

fn extents(count: usize) -> Vec<Extent> {
    let mut rng = SplitMix64::new(11, "lengths", 0);
    let random = |_| extent(rng.within(1, 40), rng.within(1, 40), 1);
    (0..count).map(random).collect()
}

fn plan(size: BatchSize, seed: u64, extents: Vec<Extent>) -> BatchPlan {
    Batching::new(size, seed).plan(extents).unwrap()
}

#[test]
fn batches_are_full() {
    let batches = plan(BatchSize::Examples(7), 1, extents(333)).epoch(0);
    assert_eq!(batches.len(), 333_usize.div_ceil(7));
    let mut rng = SplitMix64::new(12, "documents", 0);
    let document = |_| extent(rng.within(0, 30), 0, rng.within(0, 12));
    for sizes in [extents(333), (0..333).map(document).collect()] {
        let plan = plan(BatchSize::Tokens(400), 1, sizes.clone());
        let mut fullest = 0;
        for batch in plan.epoch(0) {
            let width = batch.iter().map(|i| sizes[*i].width).max().unwrap();
            let rows: usize = batch.iter().map(|i| sizes[*i].rows).sum();
            assert_eq!(plan.padded_tokens(&batch), width * rows);
            fullest = fullest.max(width * rows);
        }
        assert!((361..=400).contains(&fullest), "largest batch: {fullest}");
    }
}

#[test]
fn sorting_by_length_reduces_padding() {
    // More than two pools.
    let extents = extents(20_000);
    let tokens: usize = extents.iter().map(|it| it.width).sum();
    let plan = plan(BatchSize::Examples(32), 1, extents);
    let padding = |batches: &[Vec<usize>]| {
        let padded = batches.iter().map(|batch| plan.padded_tokens(batch));
        padded.sum::<usize>() as f64 / tokens as f64
    };
    let sorted = plan.epoch(0);
    let mut all = sorted.concat();
    all.sort_unstable();
    let all: Vec<Vec<usize>> = all.chunks(32).map(<[usize]>::to_vec).collect();
    assert_eq!(all.concat(), (0..20_000).collect::<Vec<_>>());
    assert!(padding(&sorted) < 1.1, "{}", padding(&sorted));
    assert!(padding(&all) > 1.7, "unsorted: {}", padding(&all));
}

#[test]
fn order_is_a_function_of_seed_and_epoch() {
    let plan = |seed| plan(BatchSize::Tokens(400), seed, extents(333));
    assert_eq!(plan(1).epoch(3), plan(1).epoch(3));
    assert_ne!(plan(1).epoch(3), plan(1).epoch(4));
    assert_ne!(plan(1).epoch(3), plan(2).epoch(3));
    // Epochs differ in the composition of batches, not only in their order.
    let composition = |epoch| {
        let mut batches = plan(1).epoch(epoch);
        batches.iter_mut().for_each(|batch| batch.sort_unstable());
        batches.sort();
        batches
    };
    assert_ne!(composition(0), composition(1));
    // Lengths do not increase monotonically through an epoch.
    let sizes: Vec<usize> = plan(1).epoch(0).iter().map(Vec::len).collect();
    assert!(!sizes.is_sorted() && !sizes.is_sorted_by(|a, b| a >= b));
}

#[test]
fn batches_of_a_fixed_seed() {
    let plan = plan(BatchSize::Examples(3), 1, extents(8));
    assert_eq!(plan.epoch(0), [vec![7, 1, 2], vec![6, 4], vec![5, 3, 0]]);
}

#[test]
fn invalid_batches_are_rejected() {
    let tokens = Batching::new(BatchSize::Tokens(30), 0);
    let none = Batching::new(BatchSize::Examples(0), 0);
    let long = extent(8, 0, 4);
    for (batching, extents, reason) in [
        (tokens, vec![], "the data to batch has no examples"),
        (
            tokens,
            vec![long],
            "example 0 has 32 tokens, more than a batch of 30\n  help: truncate or drop long \
             examples, or use larger batches",
        ),
        (none, vec![long], "batch size must be at least 1, got 0"),
    ] {
        assert_eq!(batching.plan(extents).unwrap_err().to_string(), reason);
    }
}

#[test]
fn batches_of_many_epochs_are_counted_fast() {
    let extents: Vec<Extent> = (0..1000).map(|i| extent(1 + i % 17, 0, 1)).collect();
    for size in [BatchSize::Examples(30), BatchSize::Tokens(100)] {
        let plan = plan(size, 3, extents.clone());
        let start = std::time::Instant::now();
        for epochs in [0, 1, 2, 100] {
            let each: usize = (0..epochs).map(|epoch| plan.epoch(epoch).len()).sum();
            assert_eq!(plan.num_batches(epochs), each, "{epochs} of {size:?}");
        }
        let many = plan.num_batches(100_000_000);
        let per_epoch = plan.num_batches(100) as f64 / 100.0;
        assert!((many as f64 / 1e8 - per_epoch).abs() < 0.01, "{many}");
        assert_eq!(plan.num_batches(usize::MAX), usize::MAX);
        let took = start.elapsed();
        assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    }
}
