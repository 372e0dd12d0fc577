//! Splitting a suite between processes.

/// The trials of this process: all of them, or with `ZOO_SHARD=2/8` every eighth block of them, from
/// the second.
///
/// A GPU driver compiles the kernels of a process one after the other, and a suite has thousands:
/// several processes compile in parallel. Neighbouring trials use the same kernels, so that blocks
/// avoid compiling them in every process.
pub fn shard<T>(trials: Vec<T>) -> Vec<T> {
    assert!(
        std::env::var_os("ZOO_SHARE").is_none(),
        "ZOO_SHARE is not supported\n  help: use ZOO_SHARD"
    );
    match std::env::var("ZOO_SHARD") {
        Ok(text) => select(trials, &text),
        Err(_) => trials,
    }
}

/// Blocks of each process: few, so that a kernel is compiled in few processes, and several, so that
/// slow trials are in all of them.
const BLOCKS: usize = 4;

fn select<T>(trials: Vec<T>, text: &str) -> Vec<T> {
    let parsed = text
        .split_once('/')
        .and_then(|(index, count)| {
            Some((index.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
        })
        .filter(|(index, count)| (1..=*count).contains(index));
    let Some((index, count)) = parsed else {
        panic!("ZOO_SHARD must be INDEX/COUNT with 1 <= INDEX <= COUNT, such as 2/8, got {text:?}");
    };
    let block = trials.len().div_ceil(count * BLOCKS).max(1);
    let trials = trials.into_iter().enumerate();
    trials
        .filter(|(i, _)| i / block % count == index - 1)
        .map(|(_, trial)| trial)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::select;

    #[test]
    fn shards_are_disjoint_and_complete() {
        for len in [0, 1, 10, 12, 13, 100] {
            let trials: Vec<usize> = (0..len).collect();
            let mut all: Vec<usize> = (1..=3)
                .flat_map(|index| select(trials.clone(), &format!("{index}/3")))
                .collect();
            all.sort_unstable();
            assert_eq!(all, trials);
        }
        assert_eq!(select((0..10).collect(), "2/3"), [1, 4, 7]);
        // Blocks of two.
        let third = [4, 5, 10, 11, 16, 17, 22];
        assert_eq!(select((0..23).collect(), "3/3"), third);
    }

    #[test]
    #[should_panic(expected = r#"with 1 <= INDEX <= COUNT, such as 2/8, got "9/8""#)]
    fn invalid_shard_is_rejected() {
        select(vec![0], "9/8");
    }
}
