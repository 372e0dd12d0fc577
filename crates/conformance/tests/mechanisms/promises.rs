//! What holds whatever the numbers are.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use libtest_mimic::Failed;
use zoo_attention::{AttentionOptions, Mechanism, Pattern};
use zoo_conformance::{Suite, Tensors, numbers};
use zoo_oracle::{Precision, Problem, find};

type Promise = fn(Mechanism, &Device) -> Result<(), Failed>;

pub(crate) fn trials(mechanism: Mechanism, suite: &mut Suite) {
    for (name, test) in PROMISES {
        suite.add(format!("{mechanism}/promise/{name}"), move |device| {
            test(mechanism, device)
        });
    }
}

const PROMISES: &[(&str, Promise)] = &[
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
    ("one-of-a-mask-stands-for-all", |mechanism, device| {
        let problem = named("dense-mask");
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        let [batch, heads, seq_q, seq_k] = problem.scores_shape();
        for dims in [
            [1, 1, 1, seq_k],
            [batch, 1, seq_q, 1],
            [1, heads, seq_q, seq_k],
            [1, 1, 1, 1],
        ] {
            let hidden: Vec<bool> = (0..dims.iter().product()).map(|at| at % 3 == 1).collect();
            let short = Tensor::<4, Bool>::from_data(TensorData::new(hidden, dims), device);
            let long = short.clone().expand(problem.scores_shape());
            let attend_with = |mask| {
                let options = AttentionOptions::new().with_pattern(Pattern::Dense(mask));
                attend(mechanism, &tensors, &options)
            };
            same(&attend_with(short), &attend_with(long))?;
        }
        Ok(())
    }),
    ("minus-infinity-in-a-bias-hides", |mechanism, device| {
        // Longer than the tiles of any body: whole tiles of it come first.
        let problem = Problem::new("minus-infinity", [1, 1, 3, 300, 4]);
        let tensors = Tensors::new(&problem, &problem.inputs(), device);
        // The first query sees the last ten keys, the second all, the third none.
        let is_hidden = |at: usize| match at / 300 {
            0 => at % 300 < 290,
            row => row == 2,
        };
        let dims = problem.scores_shape();
        let bias: Vec<f32> = (0..900)
            .map(|at| {
                if is_hidden(at) {
                    f32::NEG_INFINITY
                } else {
                    0.0
                }
            })
            .collect();
        let bias = Tensor::from_data(TensorData::new(bias, dims), device);
        let hidden: Vec<bool> = (0..900).map(is_hidden).collect();
        let hidden = Tensor::<4, Bool>::from_data(TensorData::new(hidden, dims), device);
        let by_mask = AttentionOptions::new().with_pattern(Pattern::Dense(hidden));
        same(
            &attend(
                mechanism,
                &tensors,
                &AttentionOptions::new().with_bias(bias),
            ),
            &attend(mechanism, &tensors, &by_mask),
        )
    }),
    ("layout-does-not-matter", |mechanism, device| {
        let problem = named("several-tiles");
        let device = device.clone().autodiff();
        let plain = Tensors::new(&problem, &problem.inputs(), &device);
        let (context, gradients) = train(mechanism, &plain);
        // As projections give them: by place first. A key by its numbers first, a value
        // out of the middle of something wider.
        let [query, key, value] =
            [&plain.query, &plain.key, &plain.value].map(|tensor| tensor.clone().inner());
        let copied = |tensor: Tensor<4>| tensor.clone().mul_scalar(1.0) + tensor.zeros_like();
        let query = copied(query.swap_dims(1, 2)).swap_dims(1, 2);
        let key = copied(key.swap_dims(2, 3)).swap_dims(2, 3);
        let [.., d_value] = value.dims();
        let value = Tensor::cat(vec![value.clone(), value.clone(), value], 3);
        let value = value.slice_dim(3, d_value..2 * d_value);
        let laid_out = Tensors {
            query: Tensor::from_inner(query),
            key: Tensor::from_inner(key),
            value: Tensor::from_inner(value),
            ..plain.clone()
        };
        let (other_context, other_gradients) = train(mechanism, &laid_out);
        same(&other_context, &context)?;
        for (other, gradient) in other_gradients.iter().zip(&gradients) {
            let tolerance = Precision::F32.backward(0.0);
            tolerance.compare("gradient", other, gradient)?;
        }
        Ok(())
    }),
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
        .attend(&mechanism.into()),
    )
}

/// Result and gradients by query, key and value.
fn train(mechanism: Mechanism, tensors: &Tensors) -> (Vec<f32>, [Vec<f32>; 3]) {
    let tensors = tensors.clone().require_grad();
    let (context, gradients) = tensors.train(&mechanism.into());
    (numbers(context), tensors.gradients_by_inputs(&gradients))
}

fn same(a: &[f32], b: &[f32]) -> Result<(), Failed> {
    Precision::F32.forward(0.0).compare("context", a, b)?;
    Ok(())
}
