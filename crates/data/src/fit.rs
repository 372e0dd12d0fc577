//! Examples that are longer than a model or a batch takes.

use std::fmt;

use crate::{DataError, Encoded};

/// What is done with an example that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthRule {
    /// It is cut.
    Shorten,
    /// It is left out.
    LeaveOut,
}

impl LengthRule {
    /// Applies the rule to examples of which none may have more than `longest` tokens a row.
    /// Returns how many were too long.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] if all are left out.
    pub fn apply<T: Encoded>(
        self,
        examples: &mut Vec<T>,
        longest: usize,
    ) -> Result<LengthReport, DataError> {
        let too_long = |example: &T| example.extent().width > longest;
        let count = examples.iter().filter(|example| too_long(example)).count();
        match self {
            Self::Shorten => examples.iter_mut().for_each(|it| it.shorten(longest)),
            Self::LeaveOut => {
                examples.retain(|example| !too_long(example));
                if examples.is_empty() {
                    let what = format!("what has at most {longest} tokens");
                    return Err(DataError::Empty { what });
                }
            }
        }
        Ok(LengthReport {
            rule: self,
            longest,
            count,
        })
    }
}

/// What became of examples that were too long. Print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthReport {
    /// What was done.
    pub rule: LengthRule,
    /// Tokens that were allowed.
    pub longest: usize,
    /// Examples that had more.
    pub count: usize,
}

impl fmt::Display for LengthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.rule {
            LengthRule::Shorten => "shortened",
            LengthRule::LeaveOut => "left out",
        };
        let Self { longest, count, .. } = self;
        write!(f, "{count} examples of more than {longest} tokens {done}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LabelledIds, PairIds};

    fn examples(lengths: &[usize]) -> Vec<LabelledIds> {
        let example = |length: &usize| LabelledIds {
            label: 0,
            ids: vec![5; *length],
        };
        lengths.iter().map(example).collect()
    }

    fn lengths(examples: &[LabelledIds]) -> Vec<usize> {
        examples.iter().map(|example| example.ids.len()).collect()
    }

    #[test]
    fn each_rule_does_what_it_says() {
        for (rule, left, said) in [
            (LengthRule::Shorten, &[3, 4, 4, 4][..], "shortened"),
            (LengthRule::LeaveOut, &[3, 4][..], "left out"),
        ] {
            let mut some = examples(&[3, 5, 4, 9]);
            let report = rule.apply(&mut some, 4).unwrap().to_string();
            assert_eq!(lengths(&some), left);
            assert_eq!(report, format!("2 examples of more than 4 tokens {said}"));
        }
        let mut some = examples(&[3, 5, 4, 9]);
        assert_eq!(LengthRule::LeaveOut.apply(&mut some, 9).unwrap().count, 0);
        let error = LengthRule::LeaveOut.apply(&mut some, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "what has at most 2 tokens has no examples"
        );
    }

    #[test]
    fn a_target_keeps_room_for_its_end() {
        let mut pairs = vec![PairIds {
            source: vec![4; 9],
            target: vec![4; 9],
        }];
        LengthRule::Shorten.apply(&mut pairs, 6).unwrap();
        assert_eq!(pairs[0].decoder_output().len(), 6);
        assert_eq!(pairs[0].source.len(), 6);
    }
}
