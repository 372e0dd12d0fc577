//! Several processes for one suite.

/// The trials that are this process's to run: all of them, or with `ZOO_SHARE=2/8` every eighth
/// from the second on.
///
/// A GPU's driver compiles the kernels of a process one after the other, and a suite has
/// thousands: several processes have them compiled side by side.
pub fn share<T>(trials: Vec<T>) -> Vec<T> {
    match std::env::var("ZOO_SHARE") {
        Ok(text) => of(trials, &text),
        Err(_) => trials,
    }
}

fn of<T>(trials: Vec<T>, text: &str) -> Vec<T> {
    let numbers = text
        .split_once('/')
        .and_then(|(own, all)| Some((own.parse::<usize>().ok()?, all.parse::<usize>().ok()?)))
        .filter(|(own, all)| (1..=*all).contains(own));
    let Some((own, all)) = numbers else {
        panic!("ZOO_SHARE: expected a share as 2/8, the second of eight, got {text:?}");
    };
    trials.into_iter().skip(own - 1).step_by(all).collect()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn shares_are_apart_and_all_together() {
        let trials: Vec<usize> = (0..10).collect();
        let mut all: Vec<usize> = (1..=3)
            .flat_map(|own| of(trials.clone(), &format!("{own}/3")))
            .collect();
        all.sort_unstable();
        assert_eq!(all, trials);
        assert_eq!(of(trials, "2/3"), [1, 4, 7]);
    }

    #[test]
    #[should_panic(expected = r#"expected a share as 2/8, the second of eight, got "9/8""#)]
    fn what_is_no_share_says_so() {
        of(vec![0], "9/8");
    }
}
