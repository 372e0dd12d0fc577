//! `[run]` and `[backend]`.

use std::path::PathBuf;

use zoo_spec::{BackendWord, Dtype};

use crate::keys::{Presence, SEED, Values, keys};

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
        dtype: Dtype = Dtype::F32, Values::Words(Dtype::WORDS);
        /// Several devices of the backend that learn together; none is the one that `word` says.
        devices: Vec<usize> = vec![], Values::Devices;
    }
}
