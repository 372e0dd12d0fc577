//! What holds whatever the numbers are.

use burn::tensor::{Bool, Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Pattern, standard};
use zoo_conformance::Tensors;
use zoo_testkit::{Problem, Tolerance, find};

type Promise = fn(&Device) -> Result<(), Failed>;

pub(crate) fn trials(device: &Device) -> impl Iterator<Item = Trial> {
    PROMISES.iter().map(|(name, test)| {
        let device = device.clone();
        Trial::test(format!("promise/{name}"), move || test(&device))
    })
}

const PROMISES: &[(&str, Promise)] = &[
    ("blind-rows-are-exactly-zero", |device| {
        let problem = named("dense-mask");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let context = attend(&tensors, &tensors.options);
        for (row, hidden) in problem.hidden().chunks(problem.seq_k).enumerate() {
            let got = &context[row * problem.d_value..][..problem.d_value];
            if hidden.iter().all(|&h| h) && got.iter().any(|&x| x != 0.0) {
                return Err(format!("row {row} sees nothing and is {got:?}").into());
            }
        }
        Ok(())
    }),
    ("padding-mask-equals-key-lengths", |device| {
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
            &attend(&tensors, &tensors.options),
            &attend(&tensors, &by_mask),
        )
    }),
    ("padded-keys-do-not-matter", |device| {
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
            &attend(&clean, &clean.options),
            &attend(&spoilt, &spoilt.options),
        )
    }),
    ("one-mask-row-stands-for-all", |device| {
        let problem = named("one-query");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let row = [false, true, false, false, true];
        let short = Tensor::<1, Bool>::from_data(row, device).reshape([1, 1, 1, 5]);
        let long = short.clone().expand(problem.scores_shape());
        let attend_with = |mask| {
            attend(
                &tensors,
                &AttentionOptions::new().with_pattern(Pattern::Dense(mask)),
            )
        };
        same(&attend_with(short), &attend_with(long))
    }),
    ("a-plain-mask-serves-a-training-tensor", |device| {
        let problem = named("dense-mask");
        let inputs = problem.inputs();
        let plain = Tensors::new(&problem, &inputs, device);
        let training = Tensors::new(&problem, &inputs, &device.clone().autodiff());
        same(
            &attend(&plain, &plain.options),
            &attend(&training, &plain.options),
        )
    }),
];

fn named(problem: &str) -> Problem {
    find(problem).expect("a problem of the catalogue")
}

fn attend(tensors: &Tensors, options: &AttentionOptions) -> Vec<f32> {
    let Tensors {
        query, key, value, ..
    } = tensors.clone();
    standard(query, key, value, options)
        .context
        .try_into_vec_as()
        .expect("a float tensor can be read as f32")
}

fn same(a: &[f32], b: &[f32]) -> Result<(), Failed> {
    let want: Vec<f64> = b.iter().map(|&x| f64::from(x)).collect();
    Tolerance::F32_FORWARD.check("context", a, &want)?;
    Ok(())
}
