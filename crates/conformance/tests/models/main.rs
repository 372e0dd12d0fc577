//! Models and recurrent layers on the device that `ZOO_BACKEND` names (default: flex). A
//! device that cannot be opened fails the run.

mod classifier;
mod damaged;
mod encoder;
mod fused;
mod generate;
mod golden;
mod gpt;
mod half;
mod han;
mod look;
mod recurrent;
mod seq2seq;
mod support;
mod toy;
mod transformer;
mod uncached;
mod weights;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use zoo_backend::{Opened, open_for_tests};
use zoo_conformance::{Suite, share};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    libtest_mimic::run(&arguments, share(trials(&opened))).exit_code()
}

fn trials(opened: &Opened) -> Vec<Trial> {
    let mut suite = Suite::new(&opened.device);
    gpt::trials(&mut suite);
    transformer::trials(&mut suite);
    classifier::trials(&mut suite);
    suite.add_table("encoder/", encoder::TESTS);
    seq2seq::trials(&mut suite);
    suite.add_table("generate/", generate::TESTS);
    weights::trials(&mut suite);
    damaged::trials(&mut suite);
    golden::trials(&mut suite);
    for (name, test) in fused::TESTS {
        suite.add_training(format!("fused/{name}"), *test);
    }
    recurrent::trials(&mut suite);
    half::trials(&mut suite, opened);
    han::trials(&mut suite);
    look::trials(&mut suite);
    suite.trials
}
