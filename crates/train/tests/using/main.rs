//! Runs that were trained, used on the device that `ZOO_BACKEND` names (default: flex). A device
//! that cannot be opened fails the run.

// A test without the usual harness is a program to clippy; here, too, a panic is an answer.
#![allow(clippy::unwrap_used)]

mod attend;
mod hostile;
mod judging;
mod looking_inside;
mod outputs;
mod program;
mod refusals;
mod runs;
#[path = "../shared/mod.rs"]
mod shared;
mod writing;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use zoo_backend::{Backend, open_for_tests};

use crate::runs::Runs;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    let runs = Runs::new(opened);
    libtest_mimic::run(&arguments, trials(&runs)).exit_code()
}

fn trials(runs: &Runs) -> Vec<Trial> {
    let mut trials = writing::trials(runs);
    trials.extend(judging::trials(runs));
    trials.extend(attend::on_devices(runs));
    // What follows is about files, processes and messages, in which the device has no part.
    if runs.backend() == Backend::Flex {
        trials.extend(looking_inside::trials(runs));
        trials.extend(attend::trials(runs));
        trials.extend(outputs::trials(runs));
        trials.extend(refusals::trials(runs));
        trials.extend(program::trials(runs));
        trials.extend(hostile::trials(runs));
    }
    trials
}
