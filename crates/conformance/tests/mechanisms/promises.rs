//! What holds whatever the numbers are.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Mechanism, Pattern};
use zoo_conformance::{Tensors, numbers};
use zoo_testkit::{Precision, Problem, find};

type Promise = fn(Mechanism, &Device) -> Result<(), Failed>;

pub(crate) fn trials(mechanism: Mechanism, device: &Device) -> impl Iterator<Item = Trial> {
    PROMISES.iter().map(move |(name, test)| {
        let device = device.clone();
        Trial::test(format!("{mechanism}/promise/{name}"), move || {
            test(mechanism, &device)
        })
    })
}

const PROMISES: &[(&str, Promise)] = &[
    ("blind-rows-are-exactly-zero", |mechanism, device| {
        let problem = named("dense-mask");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let context = attend(mechanism, &tensors, &tensors.options);
        for (row, hidden) in problem.hidden().chunks(problem.seq_k).enumerate() {
            let got = &context[row * problem.d_value..][..problem.d_value];
            if hidden.iter().all(|&h| h) && got.iter().any(|&x| x != 0.0) {
                return Err(format!("row {row} sees nothing and is {got:?}").into());
            }
        }
        Ok(())
    }),
    ("padding-mask-equals-key-lengths", |mechanism, device| {
        let problem = named("key-lengths");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let padding = Tensor::<2, Bool>::from_data(
            [
                [false, false, false, false, false],
                [true, true, true, true, true],
                [false, false, true, true, true],
            ],
            device,
        );
        let by_mask = AttentionOptions::new().with_pattern(Pattern::KeyPadding(padding));
        same(
            &attend(mechanism, &tensors, &tensors.options),
            &attend(mechanism, &tensors, &by_mask),
        )
    }),
    ("padded-keys-do-not-matter", |mechanism, device| {
        let problem = named("bert-base");
        let mut inputs = problem.inputs();
        let clean = Tensors::new(&problem, &inputs, device);
        // The second example has 77 of 128 keys: spoil every key and value after them.
        let width = problem.d_head;
        for head in problem.heads..2 * problem.heads {
            for key in 77..problem.seq_k {
                let at = (head * problem.seq_k + key) * width;
                inputs.key[at..at + width].fill(1e4);
                inputs.value[at..at + width].fill(-1e4);
            }
        }
        let spoilt = Tensors::new(&problem, &inputs, device);
        same(
            &attend(mechanism, &clean, &clean.options),
            &attend(mechanism, &spoilt, &spoilt.options),
        )
    }),
    ("one-mask-row-stands-for-all", |mechanism, device| {
        let problem = named("one-query");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let row = [false, true, false, false, true];
        let short = Tensor::<1, Bool>::from_data(row, device).reshape([1, 1, 1, 5]);
        let long = short.clone().expand(problem.scores_shape());
        let attend_with = |mask| {
            attend(
                mechanism,
                &tensors,
                &AttentionOptions::new().with_pattern(Pattern::Dense(mask)),
            )
        };
        same(&attend_with(short), &attend_with(long))
    }),
    (
        "a-plain-mask-serves-a-training-tensor",
        |mechanism, device| {
            let problem = named("dense-mask");
            let inputs = problem.inputs();
            let plain = Tensors::new(&problem, &inputs, device);
            let training = Tensors::new(&problem, &inputs, &device.clone().autodiff());
            same(
                &attend(mechanism, &plain, &plain.options),
                &attend(mechanism, &training, &plain.options),
            )
        },
    ),
];

fn named(problem: &str) -> Problem {
    find(problem).expect("a problem of the catalogue")
}

fn attend(mechanism: Mechanism, tensors: &Tensors, options: &AttentionOptions) -> Vec<f32> {
    let options = options.clone();
    numbers(
        Tensors {
            options,
            ..tensors.clone()
        }
        .attend(mechanism),
    )
}

fn same(a: &[f32], b: &[f32]) -> Result<(), Failed> {
    let want: Vec<f64> = b.iter().map(|&x| f64::from(x)).collect();
    Precision::F32.forward(0.0).check("context", a, &want)?;
    Ok(())
}
