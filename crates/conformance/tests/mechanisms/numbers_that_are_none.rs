//! NaN and infinity going in: what comes out, and where.
//!
//! A query that is not finite makes its own row non-finite. A key or value that is not finite
//! makes the rows non-finite that see it. That it reaches no others is tested in `hidden.rs`.

use burn::tensor::Device;
use libtest_mimic::{Failed, Trial};
use zoo_attention::Mechanism;
use zoo_conformance::{Tensors, numbers};
use zoo_oracle::{Inputs, Problem, find};

use crate::hidden::same;

/// What is spoilt, and by what.
const SPOILS: [(&str, f32); 2] = [("nan", f32::NAN), ("infinity", f32::INFINITY)];

pub(crate) fn trials(mechanism: Mechanism, device: &Device) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, number) in SPOILS {
        let on = device.clone();
        trials.push(Trial::test(
            format!("{mechanism}/{name}/in-a-query-stays-in-its-row"),
            move || in_a_query(mechanism, &on, number),
        ));
        let on = device.clone();
        trials.push(Trial::test(
            format!("{mechanism}/{name}/in-a-value-stays-in-its-head"),
            move || in_a_value(mechanism, &on, number),
        ));
    }
    trials
}

fn in_a_query(mechanism: Mechanism, device: &Device, number: f32) -> Result<(), Failed> {
    let problem = problem("several-tiles");
    // The 71st query of the second head, which sees 131 keys.
    let spoilt = problem.seq_q + 70;
    let clean = problem.inputs();
    let mut inputs = clean.clone();
    inputs.query[spoilt * problem.d_head + 3] = number;
    for (row, same) in rows_that_stayed(mechanism, device, &problem, &clean, &inputs) {
        match (row == spoilt, same) {
            (true, true) => return Err(format!("row {row} does not show it").into()),
            (false, false) => return Err(format!("row {row} is touched").into()),
            _ => {}
        }
    }
    Ok(())
}

fn in_a_value(mechanism: Mechanism, device: &Device, number: f32) -> Result<(), Failed> {
    let problem = problem("causal");
    // The last key of the second head of the first example.
    let (spoilt, head) = (2 * problem.seq_k - 1, problem.seq_q..2 * problem.seq_q);
    let clean = problem.inputs();
    let mut inputs = clean.clone();
    inputs.value[spoilt * problem.d_value] = number;
    for (row, same) in rows_that_stayed(mechanism, device, &problem, &clean, &inputs) {
        if row == head.end - 1 && same {
            return Err(format!("row {row} sees it and does not show it").into());
        }
        if !head.contains(&row) && !same {
            return Err(format!("row {row} is of another head, and touched").into());
        }
    }
    Ok(())
}

/// For each row of the result, whether it is the same but for rounding.
fn rows_that_stayed(
    mechanism: Mechanism,
    device: &Device,
    problem: &Problem,
    a: &Inputs,
    b: &Inputs,
) -> impl Iterator<Item = (usize, bool)> {
    let [a, b] = [a, b].map(|inputs| {
        let context = Tensors::new(problem, inputs, device).attend(&mechanism.into());
        let rows = numbers(context);
        rows.chunks(problem.d_value)
            .map(<[f32]>::to_vec)
            .collect::<Vec<_>>()
    });
    a.into_iter()
        .zip(b)
        .map(|(a, b)| same(&a, &b))
        .enumerate()
        .collect::<Vec<_>>()
        .into_iter()
}

fn problem(name: &str) -> Problem {
    find(name).expect("a problem of the catalogue")
}
