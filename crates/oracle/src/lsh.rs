//! LSH attention by definition, in `f64`: softmax attention with
//!
//! ```text
//! k_j     = q_j / |q_j|
//! visible = in any round, the positions of the query's own chunk and of the previous one, except its own
//!           position, unless it is the only one
//! dq_j   += (dk_j - k_j (k_j·dk_j)) / |q_j|
//! ```
//!
//! Hashes are inputs, since `f32` decides between directions that are almost equally near. They are
//! checked: a hash must be that of the nearest direction up to rounding.

use crate::problem::{Inputs, Problem};
use crate::scores::solve_scores;
use crate::solution::{Solution, dot, vector};

/// Hash directions and hashes of the queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Hashing {
    /// Positions in a chunk.
    pub bucket_size: usize,
    /// Number of hash rounds.
    pub n_hashes: usize,
    /// `[rounds, hashes, each, d_head]`: the directions. If a hash is a pair, the directions of its
    /// first part precede those of the second.
    pub directions: Vec<f32>,
    /// `[batch, heads, seq, rounds]`: the hash of each query.
    pub hashes: Vec<f32>,
}

/// Number of parts of a hash, and number of directions of each part without their opposites. There
/// are as many hashes as chunks, rounded up to an even number; more than 256 are pairs.
pub(crate) fn directions(seq: usize, bucket: usize) -> [usize; 2] {
    let chunks = seq.div_ceil(bucket);
    let even = chunks + chunks % 2;
    if even <= 256 {
        return [1, even / 2];
    }
    let each = (1..).find(|each| (2 * each) * (2 * each) >= even);
    [2, each.expect("the range is unbounded")]
}

/// The hashes of queries with `d_head` elements, `[queries, rounds]`, by directions of this
/// [shape](crate::Parameter::shape): in each round, the nearest direction or opposite of one.
pub fn nearest_hashes(query: &[f32], directions: &[f32], shape: &[usize]) -> Vec<f32> {
    let &[rounds, hashes, each, d_head] = shape else {
        panic!("hash directions have four dimensions, got {shape:?}");
    };
    let directions: Vec<f64> = directions.iter().map(|&x| f64::from(x)).collect();
    let hash = |query: &[f64], round: usize| {
        let mut hash = 0;
        for part in 0..hashes {
            let first = (round * hashes + part) * each;
            let products: Vec<f64> = directions[first * d_head..][..each * d_head]
                .chunks(d_head)
                .map(|direction| dot(direction, query))
                .collect();
            let opposites = products.iter().map(|x| -x);
            let all = products.iter().copied().chain(opposites).enumerate();
            let nearest = all.reduce(|best, other| if other.1 > best.1 { other } else { best });
            hash = hash * 2 * each + nearest.map_or(0, |(index, _)| index);
        }
        hash as f32
    };
    (0..query.len() / d_head)
        .map(|row| vector(query, row, d_head))
        .flat_map(|query| {
            (0..rounds)
                .map(move |round| hash(&query, round))
                .collect::<Vec<_>>()
        })
        .collect()
}

pub(crate) fn solve_lsh(
    problem: &Problem,
    hashing: &Hashing,
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let (d_head, seq) = (problem.d_head, problem.seq_k);
    let query_at = |row: usize| vector(&inputs.query, row, d_head);
    let norm = |query: &[f64]| match dot(query, query).sqrt() {
        // The key of a zero query is zero.
        0.0 => 1.0,
        norm => norm,
    };
    let key_at = |row: usize| -> Vec<f64> {
        let query = query_at(row);
        let norm = norm(&query);
        query.into_iter().map(|x| x / norm).collect()
    };
    let rows = problem.queries();
    let keys: Vec<f64> = (0..rows).flat_map(key_at).collect();
    for row in 0..rows {
        hashing.check(row, &query_at(row), seq);
    }
    let chunks: Vec<Vec<Vec<usize>>> = (0..rows / seq)
        .map(|head| {
            let rounds = 0..hashing.n_hashes;
            rounds
                .map(|round| hashing.chunks(head, round, seq))
                .collect()
        })
        .collect();

    let mut solution = solve_scores(problem, inputs, queries, Some(&keys), &|row, visible| {
        let own = row % seq;
        let own_visible = visible.contains(&own);
        let count = seq.div_ceil(hashing.bucket_size);
        let is_near = |chunk_of: &Vec<usize>, j: usize| {
            let before = (chunk_of[own] + count - 1) % count;
            chunk_of[j] == chunk_of[own] || chunk_of[j] == before
        };
        let rounds = &chunks[row / seq];
        visible.retain(|&j| j != own && rounds.iter().any(|chunk_of| is_near(chunk_of, j)));
        if visible.is_empty() && own_visible {
            visible.push(own);
        }
    });

    // The key inputs are unused; the actual keys have norm 1.
    solution.terms.d_query = solution.terms.d_bias * problem.scale().abs();
    let d_keys = std::mem::replace(&mut solution.d_key, vec![0.0; inputs.key.len()]);
    solution.d_query_as_key = d_keys
        .chunks(d_head)
        .enumerate()
        .flat_map(|(row, d_key)| {
            let (norm, key) = (norm(&query_at(row)), key_at(row));
            let product = dot(&key, d_key);
            let d = key.into_iter().zip(d_key);
            let d = d.map(move |(k, d)| (d - k * product) / norm);
            d.collect::<Vec<_>>()
        })
        .collect();
    solution
}

impl Hashing {
    /// Rounding error of a dot product of up to a hundred elements, relative to the norms of both
    /// vectors.
    const ROUNDING: f64 = 1e-5;

    fn hash(&self, row: usize, round: usize) -> usize {
        self.hashes[row * self.n_hashes + round] as usize
    }

    /// Checks that a query has the hash of its nearest direction in every round.
    fn check(&self, row: usize, query: &[f64], seq: usize) {
        let [hashes, each] = directions(seq, self.bucket_size);
        for round in 0..self.n_hashes {
            let mut hash = self.hash(row, round);
            for part in (0..hashes).rev() {
                let first = (round * hashes + part) * each;
                let directions = (first..first + each)
                    .map(|row| vector(&self.directions, row, query.len()))
                    .collect::<Vec<_>>();
                let products: Vec<f64> = directions.iter().map(|d| dot(d, query)).collect();
                let nearest = products.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
                let chosen = hash % (2 * each);
                let product = if chosen < each {
                    products[chosen]
                } else {
                    -products[chosen - each]
                };
                let squares = directions.iter().map(|d| dot(d, d));
                let longest = squares.fold(0.0, f64::max);
                let rounding = Self::ROUNDING * (longest * dot(query, query)).sqrt();
                assert!(
                    product >= nearest - rounding,
                    "query {row} in round {round} has hash {chosen} with dot product {product}, \
                     but the largest is {nearest}"
                );
                hash /= 2 * each;
            }
            assert!(hash == 0, "query {row}, round {round}: invalid hash");
        }
    }

    /// The chunk of each position of a head.
    fn chunks(&self, head: usize, round: usize, seq: usize) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..seq).collect();
        // A stable sort: positions with equal hashes stay in order.
        positions.sort_by_key(|position| self.hash(head * seq + position, round));
        let mut chunk_of = vec![0; seq];
        for (slot, position) in positions.into_iter().enumerate() {
            chunk_of[position] = slot / self.bucket_size;
        }
        chunk_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Formula, Mask, solve};

    /// Six positions with one-dimensional queries, in chunks of two.
    fn problem(hashes: [f32; 6], directions: Vec<f32>) -> Problem {
        Problem::new("line", [1, 1, 6, 6, 1])
            .with_mask(Mask::Causal)
            .with_formula(Formula::Lsh(Hashing {
                bucket_size: 2,
                n_hashes: 1,
                directions,
                hashes: hashes.to_vec(),
            }))
    }

    #[test]
    fn own_and_previous_chunk_are_visible() {
        // Sorted: 1 3 | 0 2 | 4 5. Zero directions are all equally near.
        let problem = problem([1.0, 0.0, 1.0, 0.0, 2.0, 2.0], vec![0.0; 2]);
        let solution = solve(&problem, &problem.inputs());
        let visible: Vec<Vec<usize>> = solution
            .weights
            .chunks(6)
            .map(|weights| (0..6).filter(|&j| weights[j] > 0.0).collect())
            .collect();
        let expected: [&[usize]; 6] = [&[0], &[1], &[0, 1], &[1], &[0, 2], &[0, 2, 4]];
        assert_eq!(visible, expected);
    }

    #[test]
    fn more_than_256_hashes_are_pairs() {
        assert_eq!(directions(1, 64), [1, 1]);
        assert_eq!(directions(512, 2), [1, 128]);
        assert_eq!(directions(514, 2), [2, 9]);
    }

    /// The oracle checks the hashes that it is given.
    #[test]
    fn nearest_hashes_are_accepted() {
        for (seq, parts) in [(64, 1), (520, 2)] {
            let plain = Problem::new("hashes", [1, 2, seq, seq, 8]).with_mask(Mask::Causal);
            let inputs = plain.inputs();
            let config = zoo_spec::Lsh {
                bucket_size: 2,
                n_hashes: 3,
                seed: 0,
            };
            let of_directions = crate::Parameter::HashDirections {
                hashing: config,
                seq,
                d_head: 8,
            };
            let shape = of_directions.shape();
            assert_eq!(shape[1], parts);
            let normals = crate::normals("directions", of_directions.num_elements(), 1.0);
            let hashes = nearest_hashes(&inputs.query, &normals, &shape);
            let distinct: std::collections::BTreeSet<u32> =
                hashes.iter().map(|&x| x as u32).collect();
            assert!(distinct.len() > 8, "{distinct:?}");
            let problem = plain.with_mechanism(&config.into(), |parameter| match parameter {
                crate::Parameter::Hashes { .. } => hashes.clone(),
                _ => normals.clone(),
            });
            crate::solve_for(&problem.expect("accepted"), &inputs, &[seq - 1]);
        }
    }

    #[test]
    #[should_panic = "query 0 in round 0 has hash"]
    fn wrong_hash_is_rejected() {
        let problem = problem([0.0; 6], vec![1.0, 2.0]);
        let mut inputs = problem.inputs();
        inputs.query[0] = 1.0;
        solve(&problem, &inputs);
    }
}
