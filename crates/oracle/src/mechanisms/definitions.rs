//! Definitions of all mechanisms.

use zoo_spec::{BigBird, LinearFeatures, MechanismConfig};

use super::{Parameter, expected_kv_heads, is_causal, is_key_mask};
use crate::block_selection::BlockSelection;
use crate::dropout::splitmix;
use crate::formula::{FeatureMap, Formula, GatedRecurrence, RelativeTable};
use crate::linformer::Projections;
use crate::lsh::Hashing;
use crate::mask::Mask;
use crate::native_sparse::GatedBranches;
use crate::problem::Problem;

impl Problem {
    /// This problem as a mechanism solves it: with its mask, formula and `parameters`. `None` if
    /// the mechanism does not accept the problem.
    pub fn with_mechanism(
        &self,
        mechanism: &MechanismConfig,
        parameters: impl Fn(Parameter) -> Vec<f32>,
    ) -> Option<Self> {
        let (heads, d_head) = (self.heads, self.d_head);
        let vectors = || parameters(Parameter::Vector { heads, d_head });
        let matrices = || parameters(Parameter::Matrix { heads, d_head });
        let and_mask = |mask| Some(self.and_mask(mask));
        let with_formula = |formula| Some(self.clone().with_formula(formula));
        match mechanism {
            MechanismConfig::Standard(_) | MechanismConfig::Flash(_) => Some(self.clone()),
            MechanismConfig::MultiQuery(_)
            | MechanismConfig::GroupedQuery(_)
            | MechanismConfig::Mla(_) => {
                let has_own_heads = expected_kv_heads(mechanism, heads) == Some(self.kv_heads);
                has_own_heads.then(|| self.clone())
            }
            MechanismConfig::Dot(_) => Some(self.clone().with_scale(self.scale.unwrap_or(1.0))),
            MechanismConfig::Multiplicative(_) => with_formula(Formula::Multiplicative(matrices())),
            MechanismConfig::Additive(_) => with_formula(Formula::Additive(vectors())),
            MechanismConfig::Hard(hard) => with_formula(Formula::Sampled {
                temperature: hard.temperature,
                seed: hard.seed,
            }),
            MechanismConfig::Sink(config) => {
                let sinks = Formula::Sink(parameters(Parameter::Sinks { heads }));
                let problem = match config.window {
                    Some(window) => {
                        let first = (0..config.first.min(self.seq_k)).collect();
                        let window = symmetric_window(window);
                        self.and_mask(Mask::Any(vec![window, Mask::Global(first)]))
                    }
                    None => self.clone(),
                };
                Some(problem.with_formula(sinks))
            }
            MechanismConfig::Sigmoid(config) => {
                with_formula(Formula::Sigmoid(config.length.unwrap_or(self.seq_k)))
            }
            MechanismConfig::Differential(config) => {
                if d_head % 2 == 1 {
                    return None;
                }
                let half = d_head / 2;
                with_formula(Formula::Differential {
                    vectors: parameters(Parameter::Differential { half }),
                    lambda_init: config.lambda_init,
                })
            }
            MechanismConfig::Relative(config) => {
                let num_buckets = config.num_buckets;
                with_formula(Formula::Relative(RelativeTable {
                    values: parameters(Parameter::Table { heads, num_buckets }),
                    num_buckets,
                    max_distance: config.max_distance,
                    bidirectional: config.bidirectional,
                }))
            }
            MechanismConfig::Forgetting(_) => {
                let (batch, seq, width) = (self.batch, self.seq_k, 1);
                let gates = || {
                    parameters(Parameter::LogDecays {
                        batch,
                        heads,
                        seq,
                        width,
                    })
                };
                is_causal(&self.mask)
                    .then(|| self.clone().with_formula(Formula::Forgetting(gates())))
            }
            MechanismConfig::SlidingWindow(config) => and_mask(symmetric_window(config.window)),
            MechanismConfig::LocalM(config) => and_mask(Mask::Monotonic(config.window)),
            MechanismConfig::LocalP(config) => with_formula(Formula::LocalPredictive {
                vectors: vectors(),
                matrices: matrices(),
                window: config.window,
            }),
            MechanismConfig::Block(config) => and_mask(Mask::Block(config.block_size)),
            MechanismConfig::Strided(config) => {
                let stride = config.stride.unwrap_or_else(|| rounded_sqrt(self.seq_k));
                let window = symmetric_window(stride - 1);
                and_mask(Mask::Any(vec![window, Mask::Strided(stride)]))
            }
            MechanismConfig::Fixed(config) => {
                let block = config
                    .block_size
                    .unwrap_or_else(|| rounded_sqrt(self.seq_k));
                let summary = config.summary;
                let summary_columns = Mask::SummaryColumns { block, summary };
                and_mask(Mask::Any(vec![Mask::Block(block), summary_columns]))
            }
            MechanismConfig::Longformer(config) => {
                let global = (0..config.global.min(self.seq_k)).collect();
                let window = symmetric_window(config.window);
                and_mask(Mask::Any(vec![window, Mask::Global(global)]))
            }
            MechanismConfig::BigBird(config) => {
                let blocks = self.seq_k.div_ceil(config.block_size);
                let visible = (0..blocks).map(|own| visible_blocks(config, own, blocks));
                and_mask(Mask::BlockSparse {
                    size: config.block_size,
                    visible: visible.collect(),
                })
            }
            MechanismConfig::Lsh(config) => {
                let is_self_attention = self.seq_q == self.seq_k && self.kv_heads == heads;
                // These depend on positions and would have to be sorted with the keys.
                let has_unsorted = self.alibi || self.bias.is_some() || self.dropout.is_some();
                if !is_self_attention || has_unsorted {
                    return None;
                }
                let hashing = *config;
                with_formula(Formula::Lsh(Hashing {
                    bucket_size: hashing.bucket_size,
                    n_hashes: hashing.n_hashes,
                    directions: parameters(Parameter::HashDirections {
                        hashing,
                        seq: self.seq_k,
                        d_head,
                    }),
                    hashes: parameters(Parameter::Hashes {
                        hashing,
                        queries: self.queries(),
                    }),
                }))
            }
            MechanismConfig::Moba(config) => {
                let has_options = self.alibi || self.bias.is_some() || self.dropout.is_some();
                if has_options || !is_key_mask(&self.mask) {
                    return None;
                }
                with_formula(Formula::BlockSelection(BlockSelection {
                    block_size: config.block_size,
                    top_k: config.top_k,
                }))
            }
            MechanismConfig::NativeSparse(config) => {
                let has_options = self.alibi || self.bias.is_some() || self.dropout.is_some();
                if has_options || !is_key_mask(&self.mask) {
                    return None;
                }
                let (batch, seq) = (self.batch, self.seq_k);
                with_formula(Formula::NativeSparse(GatedBranches {
                    block_size: config.block_size,
                    top_k: config.top_k,
                    window: config.window,
                    gates: parameters(Parameter::BranchGates { batch, heads, seq }),
                }))
            }
            MechanismConfig::Nystrom(config) => {
                if is_causal(&self.mask) {
                    return None;
                }
                self.with_linear_formula(Formula::Nystrom {
                    landmarks: config.landmarks,
                    iterations: config.iterations,
                })
            }
            MechanismConfig::Linformer(config) => {
                let (rank, length) = (config.rank, config.length);
                if is_causal(&self.mask) || self.seq_k > length {
                    return None;
                }
                let values = parameters(Parameter::Projections { rank, length });
                self.with_linear_formula(Formula::Linformer(Projections {
                    rank,
                    length,
                    values,
                }))
            }
            MechanismConfig::Linear(config) => {
                self.with_linear_formula(Formula::Linear(match config.feature_map {
                    LinearFeatures::Elu1 => FeatureMap::Elu1,
                    LinearFeatures::Relu => FeatureMap::Relu,
                }))
            }
            MechanismConfig::Performer(config) => {
                let directions = parameters(Parameter::Directions {
                    count: config.n_features,
                    seed: config.seed,
                    d_head,
                });
                self.with_linear_formula(Formula::Linear(FeatureMap::Random { directions }))
            }
            MechanismConfig::Cosformer(config) => {
                let longest = self.seq_q.max(self.seq_k);
                let length = config.length.unwrap_or(longest);
                let cosine = Formula::Linear(FeatureMap::Cosine(length));
                let problem = self.with_linear_formula(cosine);
                problem.filter(|_| longest <= length)
            }
            MechanismConfig::Based(_) => {
                self.with_linear_formula(Formula::Linear(FeatureMap::Taylor))
            }
            MechanismConfig::Retention(_) => {
                if !is_causal(&self.mask) {
                    return None;
                }
                // The distance of the decay from 1 halves with each head.
                let decays = (0..self.kv_heads).map(|head| 1.0 - 0.5f64.powi(5 + head as i32));
                self.with_linear_formula(Formula::Retention(decays.collect()))
            }
            MechanismConfig::Lightning(config) => {
                if !is_causal(&self.mask) {
                    return None;
                }
                let slope = |head: usize| 8.0 * (1.0 - config.depth) * head as f64;
                let decays = (0..self.kv_heads).map(|h| (-slope(h) / self.kv_heads as f64).exp());
                self.with_linear_formula(Formula::Retention(decays.collect()))
            }
            MechanismConfig::Mamba2(_) => {
                let unscaled = self.clone().with_scale(self.scale.unwrap_or(1.0));
                unscaled.with_recurrence(parameters, Some(1), true, false)
            }
            MechanismConfig::Gla(_) => self.with_recurrence(parameters, Some(d_head), false, false),
            MechanismConfig::Delta(_) => self.with_recurrence(parameters, None, true, true),
            MechanismConfig::GatedDelta(_) => self.with_recurrence(parameters, Some(1), true, true),
            MechanismConfig::Kda(_) => self.with_recurrence(parameters, Some(d_head), true, true),
        }
    }

    /// The problem with a second mask: visible keys are visible in both.
    pub(crate) fn and_mask(&self, other: Mask) -> Self {
        self.clone().with_mask(match &self.mask {
            Mask::Full => other,
            mask => Mask::All(vec![mask.clone(), other]),
        })
    }

    /// The problem as a gated recurrence, with this many decays of a head and position.
    fn with_recurrence(
        &self,
        parameters: impl Fn(Parameter) -> Vec<f32>,
        width: Option<usize>,
        has_strength: bool,
        is_delta: bool,
    ) -> Option<Self> {
        if !is_causal(&self.mask) {
            return None;
        }
        let (batch, heads, seq) = (self.batch, self.kv_heads, self.seq_k);
        let log_decays = width.map(|width| {
            parameters(Parameter::LogDecays {
                batch,
                heads,
                seq,
                width,
            })
        });
        let strengths = || parameters(Parameter::Strengths { batch, heads, seq });
        self.with_linear_formula(Formula::Gated(GatedRecurrence {
            log_decays: log_decays.unwrap_or_default(),
            strengths: if has_strength {
                strengths()
            } else {
                Vec::new()
            },
            is_delta,
        }))
    }

    /// The problem with a linear-attention formula, which computes no scores. `None` if the problem
    /// modifies scores or masks single pairs.
    fn with_linear_formula(&self, formula: Formula) -> Option<Self> {
        let has_plain_scores =
            self.softcap.is_none() && !self.alibi && self.bias.is_none() && self.dropout.is_none();
        (has_plain_scores && is_key_mask(&self.mask)).then(|| self.clone().with_formula(formula))
    }
}

/// The square root of `n` rounded to the nearest integer, at least 1. `r` is nearest while
/// `n <= (r + 1/2)²`, whose integer part is `r² + r`.
fn rounded_sqrt(n: usize) -> usize {
    let is_below = |root: &usize| root * root + root < n;
    1 + (1..n).take_while(is_below).count()
}

fn symmetric_window(window: usize) -> Mask {
    Mask::Window {
        left: window,
        right: window,
    }
}

/// Key blocks that a query block attends to: its neighbours, the global blocks at both ends, and
/// `random` of the others, those with the smallest hashes.
fn visible_blocks(config: &BigBird, own: usize, blocks: usize) -> Vec<usize> {
    let is_global = |block: usize| block < config.global || blocks - block <= config.global;
    let mut others: Vec<(u64, usize)> = Vec::new();
    let mut visible = Vec::new();
    for block in 0..blocks {
        if is_global(own) || is_global(block) || own.abs_diff(block) <= config.neighbours {
            visible.push(block);
        } else {
            let row = splitmix(config.seed.wrapping_add(own as u64));
            others.push((splitmix(row.wrapping_add(block as u64)), block));
        }
    }
    others.sort_unstable();
    let random = others.into_iter().take(config.random);
    visible.extend(random.map(|(_, block)| block));
    visible
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_spec::SlidingWindow;

    #[test]
    fn square_roots_are_rounded_to_nearest() {
        // 2.5² is 6.25, 3.5² is 12.25.
        let roots = [1, 2, 3, 6, 7, 12, 13, 256].map(rounded_sqrt);
        assert_eq!(roots, [1, 1, 2, 2, 3, 3, 4, 16]);
    }

    #[test]
    fn sliding_window_reduces_density() {
        let problem = Problem::new("full", [1, 1, 9, 9, 2]);
        let window = SlidingWindow { window: 1 }.into();
        let problem = problem.with_mechanism(&window, |_| Vec::new());
        assert_eq!(problem.expect("accepted").density(), 25.0 / 81.0);
    }
}
