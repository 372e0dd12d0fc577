//! Training on the device that `ZOO_BACKEND` names (default: flex): interrupted, killed, resumed,
//! damaged and rejected runs. A device that cannot be opened fails the test run.

#![allow(clippy::unwrap_used)]

mod checkpoints;
mod data;
mod faults;
mod folder;
mod learning;
mod numerics;
mod refusals;
mod resume;
#[path = "../shared/mod.rs"]
mod shared;
#[cfg(unix)]
mod signals;
mod support;
mod sweep;
mod sweep_all;
#[cfg(unix)]
mod terminal;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use zoo_backend::{Backend, OpenDevice, open_for_tests};

fn main() -> ExitCode {
    let arguments = Arguments {
        // A device has one random number stream, which concurrent runs would share.
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    libtest_mimic::run(&arguments, trials(&opened)).exit_code()
}

fn trials(opened: &OpenDevice) -> Vec<Trial> {
    let mut trials = learning::trials(opened);
    trials.extend(resume::on_devices(opened));
    trials.extend(numerics::trials(opened));
    trials.extend(checkpoints::on_devices(opened));
    // The rest tests files, processes and messages and does not depend on the device, so it runs
    // only on flex, which starts fastest and is bitwise deterministic.
    if opened.id.backend == Backend::Flex {
        trials.extend(resume::trials(opened));
        trials.push(resume::soak(opened));
        #[cfg(unix)]
        trials.extend(signals::trials(opened));
        #[cfg(unix)]
        trials.extend(terminal::trials(opened));
        trials.extend(sweep::trials(opened));
        trials.extend(sweep_all::trials(opened));
        trials.extend(data::trials(opened));
        trials.extend(checkpoints::trials(opened));
        trials.extend(refusals::trials(opened));
        trials.extend(folder::trials(opened));
        trials.extend(faults::trials(opened));
    }
    trials
}
