//! Models and recurrent layers on the device that `ZOO_BACKEND` names (default: flex). A
//! device that cannot be opened fails the run.

mod cached;
mod classifier;
mod damaged;
mod drawn;
mod encoder;
mod fused;
mod generate;
mod golden;
mod gpt;
mod half;
mod han;
mod look;
mod mechanisms;
mod recurrent;
mod seq2seq;
mod support;
mod toy;
mod transformer;
mod weights;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use zoo_backend::{Opened, open_for_tests};
use zoo_conformance::share;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    libtest_mimic::run(&arguments, share(trials(&opened))).exit_code()
}

fn trials(opened: &Opened) -> Vec<Trial> {
    let device = &opened.device;
    let mut trials = gpt::trials(device);
    trials.extend(transformer::trials(device));
    trials.extend(classifier::trials(device));
    trials.extend(encoder::trials(device));
    trials.extend(seq2seq::trials(device));
    trials.extend(cached::trials(device));
    trials.extend(generate::trials(device));
    trials.extend(weights::trials(device));
    trials.extend(damaged::trials());
    trials.extend(golden::trials(device));
    trials.extend(fused::trials(device));
    trials.extend(recurrent::trials(device));
    trials.extend(half::trials(opened));
    trials.extend(han::trials(device));
    trials.extend(look::trials(device));
    trials
}
