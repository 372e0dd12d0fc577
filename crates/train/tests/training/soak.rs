//! A run that is killed and resumed many times equals an uninterrupted run.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use zoo_backend::OpenDevice;
use zoo_spec::SplitMix64;

use crate::resume::assert_same_run;
use crate::support::{Running, TIMEOUT, silent};

/// Longer with `ZOO_SOAK=1`.
pub(crate) fn trial(opened: &OpenDevice) -> Trial {
    let (steps, kills) = match std::env::var_os("ZOO_SOAK") {
        Some(_) => (1000, 20),
        None => (60, 3),
    };
    let opened = opened.clone();
    let name = format!("soak::{steps}_steps_with_{kills}_kills");
    Trial::test(name, move || {
        kill_and_resume(&opened, steps, kills);
        Ok(())
    })
}

fn kill_and_resume(opened: &OpenDevice, steps: usize, kills: usize) {
    let changes = [
        &format!("training.steps = {steps}"),
        "training.checkpoint_every = 3",
        &format!("validation.every = {}", steps / 4),
    ];
    let mut reference = Running::start(opened, &changes, silent);
    assert_eq!(reference.exit_code(), Some(0));

    let mut rng = SplitMix64::named("soak");
    let mut kill_steps: Vec<usize> = (0..kills).map(|_| 1 + rng.below(steps - 1)).collect();
    kill_steps.sort_unstable();
    let mut killed = vec![];
    let mut running = Running::start(opened, &changes, silent);
    for step in kill_steps {
        let start = Instant::now();
        // Waits for a checkpoint, then for a random time, so that some kills hit a checkpoint being
        // written. If the run is already past `step`, it is killed while it starts.
        while last_step(&running) < step && running.is_running() {
            assert!(start.elapsed() < TIMEOUT, "no checkpoint of step {step}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(rng.below(10_000) as u64));
        if running.is_running() {
            running.kill();
            killed.push(last_step(&running));
        } else {
            // The run was faster.
            assert_eq!(
                running.exit_code(),
                Some(0),
                "the run failed before step {step}"
            );
        }
        let path = running.folder.join("small.toml");
        let mut again = silent(path.to_str().unwrap());
        running.child = again.arg("--resume").spawn().unwrap();
    }
    println!("killed after the checkpoints of steps {killed:?}");
    assert!(killed.len() > kills / 2, "the run was too fast: {killed:?}");
    assert_eq!(running.exit_code(), Some(0));
    assert_same_run(opened, &reference.folder, &running.folder);
}

/// The step of the last checkpoint.
fn last_step(running: &Running) -> usize {
    running.steps().last().copied().unwrap_or(0)
}
