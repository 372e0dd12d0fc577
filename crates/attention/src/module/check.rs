//! Validation of a [`MultiHeadAttentionConfig`].

use zoo_spec::Rotary;
use zoo_spec::keys::InvalidValue;

use super::MultiHeadAttentionConfig;
use crate::AttentionError;
use crate::positions::Positions;

impl MultiHeadAttentionConfig {
    /// Key and value heads and the head dimension of a valid configuration.
    pub(super) fn check(&self) -> Result<(usize, usize), AttentionError> {
        let n_heads = self.n_heads;
        let mechanism = self.mechanism.mechanism();
        let of_mechanism = self.mechanism.kv_heads(n_heads);
        let n_heads_kv = self.n_heads_kv.or(of_mechanism).unwrap_or(n_heads);
        let [d_key, d_value] = self.input_dims();
        for (name, size) in [
            ("d_model", self.d_model),
            ("n_heads", n_heads),
            ("n_heads_kv", n_heads_kv),
            ("d_context", d_key),
            ("d_value_input", d_value),
        ] {
            range(name, "at least 1", size as f64, size > 0)?;
        }
        let d_head = match self.d_head {
            Some(d_head) => d_head,
            None if self.d_model.is_multiple_of(n_heads) => self.d_model / n_heads,
            None => {
                let d_model = self.d_model;
                return Err(AttentionError::Heads { d_model, n_heads });
            }
        };
        range("d_head", "at least 1", d_head as f64, d_head > 0)?;
        if !n_heads.is_multiple_of(n_heads_kv) {
            return Err(AttentionError::KvHeads {
                n_heads,
                n_heads_kv,
            });
        }
        if let Some(expected) = of_mechanism.filter(|expected| *expected != n_heads_kv) {
            return Err(AttentionError::KvHeadsOfMechanism {
                mechanism,
                expected,
                n_heads_kv,
            });
        }
        let dropout = self.dropout;
        range(
            "dropout",
            "at least 0 and below 1",
            dropout,
            (0.0..1.0).contains(&dropout),
        )?;
        let temperature = self.temperature;
        let is_valid = (1e-6..=1e6).contains(&temperature);
        range("temperature", "from 1e-6 to 1e6", temperature, is_valid)?;
        let epsilon = self.norm_epsilon;
        let is_valid = !self.qk_norm || (epsilon > 0.0 && epsilon.is_finite());
        range("norm_epsilon", "above 0", epsilon, is_valid)?;
        if let Some(softcap) = self.softcap {
            let is_valid = (1e-30..=1e30).contains(&softcap);
            range("softcap", "from 1e-30 to 1e30", softcap, is_valid)?;
        }
        self.mechanism.check().map_err(out_of_range)?;
        let latent = self.latent_sizes(d_head);
        if let Positions::Rotary(rotary) = &self.positions {
            match &latent {
                Some(sizes) => check_rotary_of_latent(rotary, sizes.rope)?,
                None => check_rotary(rotary, d_head)?,
            }
        }
        if latent.is_some() && self.d_value_input.is_some() {
            return Err(AttentionError::ValuesFromKeys {
                mechanism,
                option: "d_value_input",
            });
        }
        if self.computes_keys_from_queries() {
            for (option, is_set) in [
                ("n_heads_kv", n_heads_kv != n_heads),
                ("d_context", self.d_context.is_some()),
            ] {
                if is_set {
                    return Err(AttentionError::KeysFromQueries { mechanism, option });
                }
            }
        }
        let capabilities = self.mechanism.capabilities();
        let (supported, odd_d_head) = (capabilities.options, capabilities.odd_d_head);
        for (option, is_set, support) in [
            ("dropout", dropout > 0.0, supported.dropout),
            ("ALiBi", self.positions == Positions::Alibi, supported.alibi),
            ("temperature", temperature != 1.0, supported.temperature),
            ("softcap", self.softcap.is_some(), supported.softcap),
            ("an odd d_head", !d_head.is_multiple_of(2), odd_d_head),
        ] {
            if let (true, Err(reason)) = (is_set, support) {
                return Err(AttentionError::Unsupported {
                    mechanism,
                    option,
                    reason,
                });
            }
        }
        Ok((n_heads_kv, d_head))
    }
}

fn check_rotary(rotary: &Rotary, d_head: usize) -> Result<(), AttentionError> {
    if rotary.fraction == 1.0 && !d_head.is_multiple_of(2) {
        return Err(AttentionError::OddHead { d_head });
    }
    rotary.check(d_head).map_err(out_of_range)
}

fn check_rotary_of_latent(rotary: &Rotary, rope: usize) -> Result<(), AttentionError> {
    let is_even = rope.is_multiple_of(2) || rotary.fraction < 1.0;
    range("rope", "even with rotary positions", rope as f64, is_even)?;
    rotary.check(rope).map_err(out_of_range)
}

fn out_of_range(invalid: InvalidValue) -> AttentionError {
    AttentionError::Range {
        name: invalid.key,
        allowed: invalid.allowed,
        got: invalid.got,
    }
}

fn range(
    name: &'static str,
    allowed: &'static str,
    got: f64,
    is_valid: bool,
) -> Result<(), AttentionError> {
    if is_valid {
        Ok(())
    } else {
        Err(AttentionError::Range {
            name: name.to_owned(),
            allowed: allowed.to_owned(),
            got: got.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use zoo_spec::{Block, Fixed, LocalP, Lsh, Mechanism, MechanismConfig, Mla, RotaryScaling};

    use super::*;

    #[test]
    fn invalid_configurations_are_rejected_with_the_value() {
        let new = MultiHeadAttentionConfig::new;
        let of = |mechanism: Mechanism| new(8, 2).with_mechanism(mechanism);
        let with = |mechanism: MechanismConfig| new(8, 2).with_mechanism(mechanism);
        let no_blocks = Fixed {
            block_size: Some(0),
            summary: 1,
        };
        let odd_rope = Mla {
            latent: None,
            rope: Some(3),
        };
        let rotary = Positions::rotary;
        let (linear, lsh) = (of(Mechanism::Linear), of(Mechanism::Lsh));
        for (config, message) in [
            (
                new(10, 3),
                "d_model = 10 must be a multiple of n_heads = 3, or d_head must be set",
            ),
            (
                new(16, 8).with_n_heads_kv(3),
                "n_heads = 8 must be a multiple of n_heads_kv = 3",
            ),
            (
                new(12, 4).with_positions(rotary(1e4)),
                "rotary position embedding needs an even d_head, got 3",
            ),
            (
                linear.clone().with_dropout(0.1),
                "mechanism linear does not support dropout: it computes no scores or weights",
            ),
            (
                new(8, 2).with_dropout(1.0),
                "dropout must be at least 0 and below 1, got 1",
            ),
            (
                new(8, 2).with_temperature(0.0),
                "temperature must be from 1e-6 to 1e6, got 0",
            ),
            (
                new(8, 2).with_qk_norm(true).with_norm_epsilon(0.0),
                "norm_epsilon must be above 0, got 0",
            ),
            (
                new(8, 2).with_softcap(0.0),
                "softcap must be from 1e-30 to 1e30, got 0",
            ),
            (
                linear.with_softcap(30.0),
                "mechanism linear does not support softcap: it computes no scores or weights",
            ),
            (
                new(8, 2).with_positions(rotary(-1.0)),
                "theta must be above 0, got -1.0",
            ),
            (
                new(8, 2).with_positions(Rotary::new(1e4).with_fraction(0.8)),
                "fraction must be such that an even number of the d_head = 4 elements is rotated, at \
                 least 2; 0.5 rotates 2, got 0.8, which rotates 3",
            ),
            (
                new(8, 2).with_positions(Rotary::new(1e4).with_scaling(RotaryScaling::linear(0.5))),
                "scaling.factor must be at least 1, got 0.5",
            ),
            (
                new(8, 2)
                    .with_positions(Rotary::new(1.0).with_scaling(RotaryScaling::yarn(2.0, 64))),
                "theta must be above 1 with yarn, got 1",
            ),
            (
                with(Block { block_size: 0 }.into()),
                "block_size must be at least 1, got 0",
            ),
            (
                with(LocalP { window: 0 }.into()),
                "window must be at least 1, got 0",
            ),
            (
                with(no_blocks.into()),
                "block_size must be at least 1, got 0",
            ),
            (
                with(Lsh::new(8, 0, 0).into()),
                "n_hashes must be at least 1, got 0",
            ),
            (
                of(Mechanism::Retention).with_temperature(2.0),
                "mechanism retention does not support temperature: it computes no scores or weights",
            ),
            (
                of(Mechanism::MultiQuery).with_n_heads_kv(2),
                "mechanism multi-query has n_heads_kv = 1, got 2; leave n_heads_kv unset, or use \
                 grouped-query",
            ),
            (
                lsh.clone().with_d_context(4),
                "mechanism lsh computes its keys from its queries: d_context cannot be set",
            ),
            (new(8, 0), "n_heads must be at least 1, got 0"),
            (
                with(odd_rope.into()).with_positions(rotary(1e4)),
                "rope must be even with rotary positions, got 3",
            ),
            (
                of(Mechanism::Mla).with_d_value_input(4),
                "mechanism mla computes its values from its keys: d_value_input cannot be set",
            ),
            (
                lsh.clone().with_n_heads_kv(1),
                "mechanism lsh computes its keys from its queries: n_heads_kv cannot be set",
            ),
            (
                lsh.clone().with_positions(Positions::Alibi),
                "mechanism lsh does not support ALiBi: it sorts positions by their hashes",
            ),
            (
                new(12, 4).with_mechanism(Mechanism::Differential),
                "mechanism differential does not support an odd d_head: each half of a query or \
                 key has a score of its own",
            ),
            (
                lsh.with_dropout(0.1),
                "mechanism lsh does not support dropout: it sorts positions by their hashes",
            ),
        ] {
            let error = config.check().expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn head_sizes_follow_from_the_mechanism_or_d_head() {
        let of = |mechanism: Mechanism| {
            let config = MultiHeadAttentionConfig::new(16, 8).with_mechanism(mechanism);
            config.check()
        };
        assert_eq!(of(Mechanism::MultiQuery), Ok((1, 2)));
        assert_eq!(of(Mechanism::GroupedQuery), Ok((2, 2)));
        let config = MultiHeadAttentionConfig::new(10, 3).with_d_head(4);
        assert_eq!(config.check(), Ok((3, 4)));
    }
}
