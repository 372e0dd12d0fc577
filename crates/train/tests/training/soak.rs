//! A run that is killed again and again ends as one that never was.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use zoo_backend::Opened;
use zoo_spec::Draw;

use crate::resume::same;
use crate::support::{PATIENCE, Running, silent};

/// `ZOO_SOAK=1` makes it long.
pub(crate) fn trial(opened: &Opened) -> Trial {
    let (steps, kills) = match std::env::var_os("ZOO_SOAK") {
        Some(_) => (1000, 20),
        None => (60, 3),
    };
    let opened = opened.clone();
    let name = format!("soak::{steps}_steps_survive_being_killed_{kills}_times");
    Trial::test(name, move || {
        survives(&opened, steps, kills);
        Ok(())
    })
}

fn survives(opened: &Opened, steps: usize, kills: usize) {
    let changes = [
        &format!("training.steps = {steps}"),
        "training.checkpoint_every = 3",
        &format!("validation.every = {}", steps / 4),
    ];
    let mut whole = Running::begin(opened, &changes, silent);
    assert_eq!(whole.exit_code(), Some(0));

    let mut draw = Draw::named("soak");
    // Over all of the run: its beginning, its middle and its end are other places to be killed at.
    let mut at: Vec<usize> = (0..kills).map(|_| 1 + draw.below(steps - 1)).collect();
    at.sort_unstable();
    let mut killed = vec![];
    let mut running = Running::begin(opened, &changes, silent);
    for step in at {
        let start = Instant::now();
        // A checkpoint from there on, and then any moment of the next few steps: also while one
        // is written. An earlier kill may have come as far: then it is while a run starts.
        while last_step(&running) < step && running.goes_on() {
            assert!(start.elapsed() < PATIENCE, "there is no checkpoint {step}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(draw.below(10_000) as u64));
        if running.goes_on() {
            running.kill();
            killed.push(last_step(&running));
        } else {
            // So near to the end that it was there first.
            assert_eq!(
                running.exit_code(),
                Some(0),
                "it ended by itself before {step}"
            );
        }
        let path = running.folder.join("small.toml");
        let mut again = silent(path.to_str().unwrap());
        running.child = again.arg("--resume").spawn().unwrap();
    }
    println!("killed after the checkpoints of steps {killed:?}");
    assert!(killed.len() > kills / 2, "it was too quick: {killed:?}");
    assert_eq!(running.exit_code(), Some(0));
    same(opened, &whole.folder, &running.folder);
}

/// The last step that a run has a checkpoint of.
fn last_step(running: &Running) -> usize {
    running.steps().last().copied().unwrap_or(0)
}
