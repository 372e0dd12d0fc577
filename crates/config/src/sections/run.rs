//! `[run]` and `[backend]`.

use std::path::PathBuf;

use zoo_spec::{BackendId, Dtype};

use crate::keys::{Presence, SEED, Values, keys};

keys! {
    /// Name, seed and output folder of the run.
    pub struct Run {
        /// Name of the run and of its folder.
        name: Option<String> = None, Values::Text, Presence::Optional("the name of the config file");
        /// Random seed for data, initialisation and dropout.
        seed: u64 = 1, SEED;
        /// Parent folder of the run's folder.
        output: PathBuf = "runs".into(), Values::Path;
        /// Also write the metrics as TensorBoard event files.
        tensorboard: bool = false, Values::Bool;
    }
}

keys! {
    /// Compute backend.
    pub struct Backend {
        /// Backend, optionally with a device index: `flex`, `wgpu:1`, `tch-cuda:0`.
        name: BackendId = BackendId::default(), Values::Backend;
        /// Data type of the weights.
        dtype: Dtype = Dtype::F32, Values::Names(Dtype::NAMES);
        /// Device indices for data-parallel training; if empty, the device of `name`. On `cuda` it requires NCCL.
        devices: Vec<usize> = vec![], Values::Devices;
    }
}
