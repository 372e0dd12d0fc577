//! What multi-head attention cannot be made, and why.

use super::{MultiHeadAttentionConfig, MultiHeadError};
use crate::positions::Positions;

impl MultiHeadAttentionConfig {
    /// Key and value heads and numbers in a head, if everything fits together.
    pub(super) fn check(&self) -> Result<(usize, usize), MultiHeadError> {
        let heads = self.heads;
        let sizes = [("d_model", self.d_model), ("heads", heads)];
        let own = self.mechanism.kv_heads(heads);
        let kv_heads = self.kv_heads.or(own).unwrap_or(heads);
        let others = [
            ("kv_heads", kv_heads),
            ("kdim", self.kdim.unwrap_or(self.d_model)),
            ("vdim", self.vdim.unwrap_or(self.d_model)),
        ];
        for (name, size) in sizes.into_iter().chain(others) {
            range(name, "at least 1", size as f64, size > 0)?;
        }
        let d_head = match self.d_head {
            Some(d_head) => d_head,
            None if self.d_model.is_multiple_of(heads) => self.d_model / heads,
            None => {
                return Err(MultiHeadError::Heads {
                    d_model: self.d_model,
                    heads,
                });
            }
        };
        range("d_head", "at least 1", d_head as f64, d_head > 0)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(MultiHeadError::KvHeads { heads, kv_heads });
        }
        if let Some(own) = own.filter(|own| *own != kv_heads) {
            let mechanism = self.mechanism.mechanism();
            return Err(MultiHeadError::KvHeadsOfMechanism {
                kv_heads,
                mechanism,
                own,
            });
        }
        if matches!(self.positions, Positions::Rotary { .. }) && !d_head.is_multiple_of(2) {
            return Err(MultiHeadError::OddHead { d_head });
        }
        let dropout = self.dropout;
        range(
            "dropout",
            "at least 0 and below 1",
            dropout,
            (0.0..1.0).contains(&dropout),
        )?;
        let temperature = self.temperature;
        let is_fine = (1e-6..=1e6).contains(&temperature);
        range("temperature", "from 1e-6 to 1e6", temperature, is_fine)?;
        if let Some(softcap) = self.softcap {
            let is_fine = (1e-30..=1e30).contains(&softcap);
            range("softcap", "from 1e-30 to 1e30", softcap, is_fine)?;
        }
        if let Positions::Rotary { theta } = self.positions {
            let is_fine = theta > 0.0 && theta.is_finite();
            range("theta", "a number above 0", theta, is_fine)?;
        }
        self.mechanism
            .check()
            .map_err(|wrong| MultiHeadError::Range {
                name: wrong.key,
                allowed: wrong.allowed,
                got: wrong.got,
            })?;

        let mechanism = self.mechanism.mechanism();
        if self.makes_keys_of_queries() && kv_heads != heads {
            return Err(MultiHeadError::OwnKeys {
                mechanism,
                heads,
                kv_heads,
            });
        }
        if let Some(kdim) = self.kdim.filter(|_| self.makes_keys_of_queries()) {
            return Err(MultiHeadError::NoKeySize { mechanism, kdim });
        }
        let supported = self.mechanism.capabilities().options;
        for (option, is_asked_for, support) in [
            ("dropout", dropout > 0.0, supported.dropout),
            ("ALiBi", self.positions == Positions::Alibi, supported.alibi),
            ("temperature", temperature != 1.0, supported.temperature),
            ("softcap", self.softcap.is_some(), supported.softcap),
        ] {
            match support {
                Err(reason) if is_asked_for => {
                    return Err(MultiHeadError::Unsupported {
                        mechanism,
                        option,
                        reason,
                    });
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok((kv_heads, d_head))
    }
}

fn range(
    name: &'static str,
    allowed: &'static str,
    got: f64,
    is_fine: bool,
) -> Result<(), MultiHeadError> {
    if is_fine {
        Ok(())
    } else {
        Err(MultiHeadError::Range {
            name: name.to_owned(),
            allowed: allowed.to_owned(),
            got: got.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use zoo_spec::{Block, Fixed, LocalP, Lsh, Mechanism, MechanismConfig};

    use super::*;

    #[test]
    fn what_does_not_fit_is_named_with_both_values() {
        let new = MultiHeadAttentionConfig::new;
        let of = |mechanism: Mechanism| new(8, 2).with_mechanism(mechanism.into());
        let with = |mechanism: MechanismConfig| new(8, 2).with_mechanism(mechanism);
        let no_blocks = Fixed {
            block: Some(0),
            summary: 1,
        };
        let rotary = |theta| Positions::Rotary { theta };
        let (linear, lsh) = (of(Mechanism::Linear), of(Mechanism::Lsh));
        for (config, message) in [
            (
                new(10, 3),
                "d_model = 10 must be a multiple of heads = 3, or d_head must be given",
            ),
            (
                new(16, 8).with_kv_heads(Some(3)),
                "heads = 8 must be a multiple of kv_heads = 3",
            ),
            (
                new(12, 4).with_positions(rotary(1e4)),
                "rotary positions turn pairs of numbers: d_head = 3 must be even",
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
                new(8, 2).with_softcap(Some(0.0)),
                "softcap must be from 1e-30 to 1e30, got 0",
            ),
            (
                linear.with_softcap(Some(30.0)),
                "mechanism linear does not support softcap: it computes no scores or weights",
            ),
            (
                new(8, 2).with_positions(rotary(-1.0)),
                "theta must be a number above 0, got -1",
            ),
            (
                with(Block { size: 0 }.into()),
                "size must be at least 1, got 0",
            ),
            (
                with(LocalP { window: 0 }.into()),
                "window must be at least 1, got 0",
            ),
            (with(no_blocks.into()), "block must be at least 1, got 0"),
            (
                with(Lsh::new(8, 0, 0).into()),
                "rounds must be at least 1, got 0",
            ),
            (
                of(Mechanism::Retention).with_temperature(2.0),
                "mechanism retention does not support temperature: it computes no scores or weights",
            ),
            (
                of(Mechanism::MultiQuery).with_kv_heads(Some(2)),
                "kv_heads = 2 was given to mechanism multi-query, which has 1 of them",
            ),
            (
                lsh.clone().with_kdim(Some(4)),
                "mechanism lsh makes its keys of its queries: kdim = 4 has no use",
            ),
            (new(8, 0), "heads must be at least 1, got 0"),
            (
                lsh.clone().with_kv_heads(Some(1)),
                "mechanism lsh makes a key of each query: kv_heads = 1 must be heads = 2",
            ),
            (
                lsh.clone().with_positions(Positions::Alibi),
                "mechanism lsh does not support ALiBi: it sorts positions by their hashes",
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
    fn heads_follow_from_the_mechanism_or_a_size_of_their_own() {
        let of = |mechanism: Mechanism| {
            let config = MultiHeadAttentionConfig::new(16, 8).with_mechanism(mechanism.into());
            config.check()
        };
        assert_eq!(of(Mechanism::MultiQuery), Ok((1, 2)));
        assert_eq!(of(Mechanism::GroupedQuery), Ok((2, 2)));
        let config = MultiHeadAttentionConfig::new(10, 3).with_d_head(Some(4));
        assert_eq!(config.check(), Ok((3, 4)));
    }
}
