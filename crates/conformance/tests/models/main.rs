//! Models, recurrent layers and fused operations. The device is that of `ZOO_BACKEND` (default:
//! flex). If it cannot be opened, the run fails.

mod attention_weights;
mod classifier;
mod embedding;
mod encoder;
mod fused_ops;
mod generate;
mod golden;
mod gpt;
mod half_precision;
mod han;
mod hugging_face;
mod linear;
mod recurrent;
mod seq2seq;
mod support;
mod transformer;
mod uncached;
mod weights;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use zoo_backend::{OpenDevice, open_for_tests};
use zoo_conformance::{Suite, shard};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let opened = match open_for_tests() {
        Ok(opened) => opened,
        Err(failure) => return failure,
    };
    libtest_mimic::run(&arguments, shard(trials(&opened))).exit_code()
}

fn trials(opened: &OpenDevice) -> Vec<Trial> {
    let mut suite = Suite::new(&opened.device);
    gpt::trials(&mut suite);
    transformer::trials(&mut suite);
    classifier::trials(&mut suite);
    suite.add_table("encoder/", encoder::TESTS);
    seq2seq::trials(&mut suite);
    suite.add_table("generate/", generate::TESTS);
    weights::trials(&mut suite);
    golden::trials(&mut suite);
    hugging_face::trials(&mut suite);
    suite.add_training_table("fused-ops/", fused_ops::TESTS);
    suite.add_training_table("fused-ops/", linear::TESTS);
    suite.add_training_table("fused-ops/", embedding::TESTS);
    recurrent::trials(&mut suite);
    half_precision::trials(&mut suite, opened);
    han::trials(&mut suite);
    attention_weights::trials(&mut suite);
    suite.trials
}
