//! `[run]` and `[backend]`.

use std::path::PathBuf;

use zoo_spec::{BackendWord, Dtype};

use crate::keys::{Presence, SEED, Values, Variant, keys};

keys! {
    /// What the run is called, and where it is written.
    pub struct Run {
        /// What the run is called, and its folder.
        name: Option<String> = None, Values::Text, Presence::Optional("the name of the config file");
        /// Where every random choice comes from: the same seed, the same run.
        seed: u64 = 1, SEED;
        /// The folder that the run's own folder is put in.
        output: PathBuf = "runs".into(), Values::Path;
    }
}

keys! {
    /// What computes.
    pub struct Backend {
        /// The backend, and which of its devices: `flex`, `wgpu:1`, `tch-cuda:0`.
        word: BackendWord = BackendWord::default(), Values::Backend;
        /// The numbers that weights are kept in.
        dtype: Dtype = Dtype::F32, Values::Words(DTYPES);
        /// Several devices of the backend that learn together; none is the one that `word` says.
        devices: Vec<usize> = vec![], Values::Devices;
    }
}

/// The words of [`Dtype`].
pub(crate) const DTYPES: &[Variant] = &[
    dtype("f32", "32 bits."),
    dtype(
        "f16",
        "16 bits; small gradients vanish without a loss scale.",
    ),
    dtype("bf16", "16 bits with the range of `f32`."),
];

const fn dtype(word: &'static str, about: &'static str) -> Variant {
    Variant {
        word,
        others: &[],
        about,
        keys: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_those_of_zoo_spec() {
        let words: Vec<_> = DTYPES.iter().map(|dtype| dtype.word).collect();
        assert_eq!(words, Dtype::ALL.map(Dtype::word));
    }
}
