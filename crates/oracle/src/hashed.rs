//! Attention to the keys that hash as the query does, by its definition, in `f64`:
//!
//! ```text
//! k_j   = q_j / |q_j|
//! seen  = in any round, the places of the own chunk and of the one before, but not the
//!         own place, unless there is no other
//! dq_j += (dk_j - k_j (k_j·dk_j)) / |q_j|
//! ```
//!
//! and softmax attention of these keys. Which hash a query has is told, and judged: it
//! must be nearest to the query but for what `f32` rounds.

use crate::oracle::{Answer, dot, vector};
use crate::problem::{Inputs, Problem};
use crate::scores::solve_by_scores;

/// How queries are hashed, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hashing {
    /// Places in a chunk.
    pub bucket: usize,
    /// How often they are sorted.
    pub rounds: usize,
    /// `[rounds, hashes, each, d_head]`: the directions, where a hash is a pair those of
    /// one and then of the other.
    pub directions: Vec<f32>,
    /// `[batch, heads, seq, rounds]`: the hash of each query.
    pub hashes: Vec<f32>,
}

/// How many hashes make one, and how many directions each of them has, as many opposites
/// not counted: as many in all as there are chunks, or the next even number; more than
/// 256 are a pair.
pub(crate) fn directions(seq: usize, bucket: usize) -> [usize; 2] {
    let chunks = seq.div_ceil(bucket);
    let even = chunks + chunks % 2;
    if even <= 256 {
        return [1, even / 2];
    }
    let each = (1..).find(|each| (2 * each) * (2 * each) >= even);
    [2, each.expect("numbers go on")]
}

pub(crate) fn solve_by_hashing(
    problem: &Problem,
    hashing: &Hashing,
    inputs: &Inputs,
    queries: &[usize],
) -> Answer {
    let (d_head, seq) = (problem.d_head, problem.seq_k);
    let of_row = |row: usize| vector(&inputs.query, row, d_head);
    let length = |query: &[f64]| match dot(query, query).sqrt() {
        // A query of zeros is a key of zeros.
        0.0 => 1.0,
        length => length,
    };
    let unit = |row: usize| -> Vec<f64> {
        let query = of_row(row);
        let length = length(&query);
        query.into_iter().map(|x| x / length).collect()
    };
    let rows = problem.queries();
    let keys: Vec<f64> = (0..rows).flat_map(unit).collect();
    for row in 0..rows {
        hashing.judge(row, &of_row(row), seq);
    }
    let chunks: Vec<Vec<Vec<usize>>> = (0..rows / seq)
        .map(|head| {
            let rounds = 0..hashing.rounds;
            rounds
                .map(|round| hashing.chunks(head, round, seq))
                .collect()
        })
        .collect();

    let mut answer = solve_by_scores(problem, inputs, queries, Some(&keys), &|row, seen| {
        let own = row % seq;
        let sees_own = seen.contains(&own);
        let count = seq.div_ceil(hashing.bucket);
        let is_near = |chunk_of: &Vec<usize>, j: usize| {
            let before = (chunk_of[own] + count - 1) % count;
            chunk_of[j] == chunk_of[own] || chunk_of[j] == before
        };
        let rounds = &chunks[row / seq];
        seen.retain(|&j| j != own && rounds.iter().any(|chunk_of| is_near(chunk_of, j)));
        if seen.is_empty() && sees_own {
            seen.push(own);
        }
    });

    // The keys given are not looked at; those that are have a length of 1.
    answer.terms.d_query = answer.terms.d_bias * problem.scale().abs();
    let by_unit = std::mem::replace(&mut answer.d_key, vec![0.0; inputs.key.len()]);
    answer.d_query_as_key = by_unit
        .chunks(d_head)
        .enumerate()
        .flat_map(|(row, d_unit)| {
            let (length, unit) = (length(&of_row(row)), unit(row));
            let along = dot(&unit, d_unit);
            let d = unit.into_iter().zip(d_unit);
            let d = d.map(move |(unit, d)| (d - unit * along) / length);
            d.collect::<Vec<_>>()
        })
        .collect();
    answer
}

impl Hashing {
    /// What rounding may do to a product of up to a hundred numbers, as a share of the
    /// lengths of both.
    const ROUNDED: f64 = 1e-5;

    fn hash(&self, row: usize, round: usize) -> usize {
        self.hashes[row * self.rounds + round] as usize
    }

    /// Sees to it that a query has the hash of what it is nearest to, in every round.
    fn judge(&self, row: usize, query: &[f64], seq: usize) {
        let [hashes, each] = directions(seq, self.bucket);
        for round in 0..self.rounds {
            let mut hash = self.hash(row, round);
            for own in (0..hashes).rev() {
                let first = (round * hashes + own) * each;
                let directions = (first..first + each)
                    .map(|at| vector(&self.directions, at, query.len()))
                    .collect::<Vec<_>>();
                let products: Vec<f64> = directions.iter().map(|d| dot(d, query)).collect();
                let nearest = products.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                let chosen = hash % (2 * each);
                let product = match chosen < each {
                    true => products[chosen],
                    false => -products[chosen - each],
                };
                let longest = directions
                    .iter()
                    .fold(0.0, |most: f64, d| most.max(dot(d, d)));
                let rounded = Self::ROUNDED * (longest * dot(query, query)).sqrt();
                assert!(
                    product >= nearest - rounded,
                    "query {row} in round {round} has hash {chosen} at a product of {product}, \
                     where the largest is {nearest}"
                );
                hash /= 2 * each;
            }
            assert!(
                hash == 0,
                "query {row} in round {round} has a hash beyond the last"
            );
        }
    }

    /// For each place of a head, the chunk it is in.
    fn chunks(&self, head: usize, round: usize, seq: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..seq).collect();
        // A stable sort: those of one hash stay in order.
        places.sort_by_key(|place| self.hash(head * seq + place, round));
        let mut chunk_of = vec![0; seq];
        for (at, place) in places.into_iter().enumerate() {
            chunk_of[place] = at / self.bucket;
        }
        chunk_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Formula, Mask, solve};

    /// Six places on a line, in chunks of two: hashes are told, so the sight follows.
    fn problem(hashes: [f32; 6], directions: Vec<f32>) -> Problem {
        Problem::new("line", [1, 1, 6, 6, 1])
            .with_mask(Mask::Causal)
            .with_formula(Formula::Hashed(Hashing {
                bucket: 2,
                rounds: 1,
                directions,
                hashes: hashes.to_vec(),
            }))
    }

    #[test]
    fn places_see_their_chunk_and_the_one_before() {
        // Sorted: 1 3 | 0 2 | 4 5. Directions of zeros are as near as any.
        let problem = problem([1.0, 0.0, 1.0, 0.0, 2.0, 2.0], vec![0.0; 2]);
        let answer = solve(&problem, &problem.inputs());
        let seen: Vec<Vec<usize>> = answer
            .weights
            .chunks(6)
            .map(|weights| (0..6).filter(|&j| weights[j] > 0.0).collect())
            .collect();
        let wanted: [&[usize]; 6] = [&[0], &[1], &[0, 1], &[1], &[0, 2], &[0, 2, 4]];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn more_than_256_hashes_are_pairs() {
        assert_eq!(directions(1, 64), [1, 1]);
        assert_eq!(directions(512, 2), [1, 128]);
        assert_eq!(directions(514, 2), [2, 9]);
    }

    #[test]
    #[should_panic = "query 0 in round 0 has hash"]
    fn a_hash_that_is_not_the_nearest_is_found() {
        let problem = problem([0.0; 6], vec![1.0, 2.0]);
        let mut inputs = problem.inputs();
        inputs.query[0] = 1.0;
        solve(&problem, &inputs);
    }
}
