//! The number types tensors are stored in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownWord;

/// A number type by the word people write for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dtype {
    /// 32-bit IEEE float, the default.
    #[default]
    F32,
    /// 16-bit IEEE float.
    F16,
    /// 16-bit float with the exponent range of `f32`.
    Bf16,
}

impl Dtype {
    /// Every number type, in the order they are shown.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Dtype {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.word() == word)
            .ok_or_else(|| UnknownWord::new("dtype", word, Self::ALL.map(Self::word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.word().parse(), Ok(dtype));
            assert_eq!(serde_json::json!(dtype), dtype.word());
        }
    }

    #[test]
    fn a_wrong_word_gets_the_nearest() {
        let error = "bf61".parse::<Dtype>().unwrap_err();
        assert_eq!(error.nearest(), Some("bf16"));
    }
}
