//! A run that is killed again and again ends as one that never was.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use zoo_backend::Opened;
use zoo_train::RunFolder;

use crate::resume::{PATIENCE, same};
use crate::support::{Folder, config_text, succeeded, zoo, zoo_train};

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
    let whole = Folder::new();
    let path = whole.write("small.toml", config_text(opened, &whole, &changes));
    succeeded(&zoo_train(&path, &[]));

    let folder = Folder::new();
    let path = folder.write("small.toml", config_text(opened, &folder, &changes));
    let path = path.to_str().unwrap();
    let run = folder.join("runs/small");
    let mut draw = Draw(0x9E37_79B9);
    // Over all of the run: its beginning, its middle and its end are other places to be killed at.
    let mut at: Vec<usize> = (0..kills).map(|_| 1 + draw.below(steps - 1)).collect();
    at.sort_unstable();
    let mut killed = vec![];
    for (kill, step) in at.iter().enumerate() {
        let mut arguments = vec!["train", path, "--plain"];
        arguments.extend((kill > 0).then_some("--resume"));
        let mut child = zoo(&arguments).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        // A checkpoint from there on, and then any moment of the next few steps: also while one
        // is written. An earlier kill may have come as far: then it is while a run starts.
        while last_step(&run).is_none_or(|last| last < *step) {
            assert!(start.elapsed() < PATIENCE, "there is no checkpoint {step}");
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(draw.below(10_000) as u64));
        match child.try_wait().unwrap() {
            // So near to the end that it was there first.
            Some(status) => assert!(status.success(), "it ended by itself before {step}"),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                killed.push(last_step(&run).unwrap_or(0));
            }
        }
    }
    println!("killed after the checkpoints of steps {killed:?}");
    assert!(killed.len() > kills / 2, "it was too quick: {killed:?}");
    succeeded(&zoo_train(Path::new(path), &["--resume"]));
    same(opened, &whole, &folder);
}

/// Numbers that are drawn, the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}

/// The last step that a run has a checkpoint of.
fn last_step(run: &Path) -> Option<usize> {
    let folder = RunFolder::existing(run).ok()?;
    folder.checkpoints().steps().ok()?.last().copied()
}
