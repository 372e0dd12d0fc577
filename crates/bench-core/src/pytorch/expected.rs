//! Inputs of PyTorch's mechanisms besides query, key and value, and the results to compare with.

use std::cell::RefCell;

use serde_json::{Map, Value, json};
use zoo_oracle::{Formula, Inputs, Mask, Parameter, Problem, nearest_hashes, normals, solve_for};
use zoo_spec::{Mechanism, MechanismConfig, SplitMix64};

use super::support::needs_dense_mask;
use crate::case::queries_to_check;

/// Parameters of a mechanism, and what the oracle computes with them.
pub(super) struct Expected {
    mechanism: Mechanism,
    /// The problem with the formula and the mask of the mechanism.
    problem: Problem,
    /// Name, shape and values.
    pub(super) parameters: Vec<(&'static str, Vec<usize>, Vec<f32>)>,
    /// Noise of the queries that are checked; empty if the mechanism does not sample.
    pub(super) noise: Vec<f32>,
    /// Name, rows of the tensor and their values.
    pub(super) results: [(&'static str, Vec<usize>, Vec<f64>); 4],
}

impl Expected {
    /// `None` if the mechanism does not support the problem.
    pub(super) fn new(mechanism: Mechanism, problem: &Problem, inputs: &Inputs) -> Option<Self> {
        let parameters = RefCell::new(Vec::new());
        let resolved = problem.with_mechanism(&mechanism.into(), |parameter| {
            let (name, values) = parameter_values(parameter, problem, inputs);
            let new = (name, parameter.shape(), values.clone());
            parameters.borrow_mut().push(new);
            values
        })?;
        let queries = queries_to_check(problem);
        let mut solution = solve_for(&resolved, inputs, &queries);
        let (d_head, d_value) = (problem.d_head, problem.d_value);
        // Queries that are not checked have a gradient only as keys.
        let mut d_query = std::mem::take(&mut solution.d_query_as_key);
        d_query.resize(inputs.query.len(), 0.0);
        for (row, gradient) in queries.iter().zip(solution.d_query.chunks(d_head)) {
            let own = &mut d_query[row * d_head..][..d_head];
            own.iter_mut().zip(gradient).for_each(|(sum, d)| *sum += d);
        }
        let query_rows = sample_rows(d_query.len() / d_head, &queries);
        let key_rows = sample_rows(inputs.key.len() / d_head, &[]);
        let select = |values: &[f64], rows: &[usize], width: usize| -> Vec<f64> {
            let rows = rows.iter().flat_map(|row| &values[row * width..][..width]);
            rows.copied().collect()
        };
        let d_query = select(&d_query, &query_rows, d_head);
        let d_key = select(&solution.d_key, &key_rows, d_head);
        let values = select(&solution.d_value, &key_rows, d_value);
        let noise = queries.iter().flat_map(|&row| resolved.noise_row(row));
        Some(Self {
            mechanism,
            noise: noise.collect(),
            parameters: parameters.into_inner(),
            results: [
                ("context", queries, solution.context),
                ("d_query", query_rows, d_query),
                ("d_key", key_rows.clone(), d_key),
                ("d_value", key_rows, values),
            ],
            problem: resolved,
        })
    }

    pub(super) fn describe(&self, problem: &Problem) -> Value {
        let parameters = self.parameters.iter();
        let parameters = parameters.filter(|(name, ..)| *name != HASHES);
        let shapes: Map<_, _> = parameters
            .map(|(name, shape, _)| ((*name).to_owned(), json!(shape)))
            .collect();
        let results = self.results.iter();
        let rows: Map<_, _> = results
            .map(|(name, rows, _)| ((*name).to_owned(), json!(rows)))
            .collect();
        let mut description = json!({
            "mechanism": MechanismConfig::from(self.mechanism),
            "query": problem.query_shape(),
            "key": problem.key_shape(),
            "value": problem.value_shape(),
            "scale": problem.scale,
            "causal": problem.mask == Mask::Causal && problem.seq_q == problem.seq_k,
            "dense_mask": needs_dense_mask(problem),
            "parameters": shapes,
            "noise": !self.noise.is_empty(),
            "hashes": self.mechanism == Mechanism::Lsh,
            "rows": rows,
        });
        if let Formula::Retention(decays) = &self.problem.formula {
            let group = problem.heads / problem.kv_heads;
            let decays = (0..problem.heads).map(|head| decays[head / group]);
            description["decays"] = decays.collect();
        }
        if let Some(blocks) = visible_blocks(&self.problem.mask) {
            description["blocks"] = json!(blocks);
        }
        description
    }
}

const HASHES: &str = "hashes";

/// Name and values of a parameter, normal with the variance of its initial values in zoo-attention.
fn parameter_values(
    parameter: Parameter,
    problem: &Problem,
    inputs: &Inputs,
) -> (&'static str, Vec<f32>) {
    let normals = |name, std| (name, normals(name, parameter.num_elements(), std));
    match parameter {
        Parameter::Sinks { .. } => normals("sink", 1.0),
        Parameter::Table { num_buckets, .. } => normals("table", (num_buckets as f64).powf(-0.5)),
        Parameter::LogDecays { .. } => {
            let (name, values) = normals("log_decay", 2.0);
            let log_sigmoid = |x: &f32| -(-1.0 - x).exp().ln_1p() / 8.0;
            (name, values.iter().map(log_sigmoid).collect())
        }
        Parameter::Strengths { .. } => {
            let (name, values) = normals("strength", 1.0);
            let sigmoid = |x: &f32| 1.0 / (1.0 + (-x).exp());
            (name, values.iter().map(sigmoid).collect())
        }
        Parameter::BranchGates { .. } => {
            let (name, values) = normals("branch_gates", 1.0);
            let sigmoid = |x: &f32| 1.0 / (1.0 + (-x).exp());
            (name, values.iter().map(sigmoid).collect())
        }
        Parameter::Differential { .. } => normals("differential", 0.1),
        Parameter::Projections { length, .. } => normals("projection", (length as f64).powf(-0.5)),
        Parameter::Vector { d_head, .. } => normals("vector", (d_head as f64).powf(-0.5)),
        Parameter::Matrix { d_head, .. } => normals("matrix", 1.0 / d_head as f64),
        Parameter::Directions { .. } | Parameter::HashDirections { .. } => {
            normals("directions", 1.0)
        }
        Parameter::Hashes { hashing, .. } => {
            let directions = Parameter::HashDirections {
                hashing,
                seq: problem.seq_k,
                d_head: problem.d_head,
            };
            let (_, values) = parameter_values(directions, problem, inputs);
            let hashes = nearest_hashes(&inputs.query, &values, &directions.shape());
            (HASHES, hashes)
        }
    }
}

/// Sorted rows of a tensor with `count` rows, including those of `always`: all, or about 4,096.
fn sample_rows(count: usize, always: &[usize]) -> Vec<usize> {
    const SAMPLE: usize = 4096;
    if count <= SAMPLE {
        return (0..count).collect();
    }
    let mut rng = SplitMix64::named("rows");
    let mut rows: Vec<usize> = (0..SAMPLE).map(|_| rng.below(count)).collect();
    rows.extend(always);
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Whether a block of queries attends to a block of keys, in a mask of blocks.
fn visible_blocks(mask: &Mask) -> Option<Vec<Vec<bool>>> {
    match mask {
        Mask::All(parts) => parts.iter().find_map(visible_blocks),
        Mask::BlockSparse { visible, .. } => {
            let row = |row: &Vec<usize>| (0..visible.len()).map(|j| row.contains(&j)).collect();
            Some(visible.iter().map(row).collect())
        }
        _ => None,
    }
}
