//! Commands on trained runs, on the device that `ZOO_BACKEND` names (default: flex). A device that
//! cannot be opened fails the test run.

// Clippy does not recognise a test without the standard harness.
#![allow(clippy::unwrap_used)]

mod attend;
mod browser;
mod evaluation;
mod generation;
mod hostile;
mod inspect;
mod listing;
mod outputs;
mod pretrained;
mod program;
mod refusals;
mod runs;
mod serve;
mod server;
#[path = "../shared/mod.rs"]
mod shared;

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
    let mut trials = generation::trials(runs);
    trials.extend(evaluation::trials(runs));
    trials.extend(attend::on_devices(runs));
    trials.extend(pretrained::on_devices(runs));
    // The rest tests files, processes and messages and does not depend on the device.
    if runs.backend() == Backend::Flex {
        trials.extend(inspect::trials(runs));
        trials.extend(listing::trials(runs));
        trials.extend(attend::trials(runs));
        trials.push(attend::in_browser(runs));
        trials.extend(outputs::trials(runs));
        trials.extend(pretrained::trials(runs));
        trials.extend(refusals::trials(runs));
        trials.extend(program::trials(runs));
        trials.extend(hostile::trials(runs));
        trials.extend(serve::trials(runs));
        trials.extend(browser::trials(runs));
    }
    trials
}
