//! `--backend NAME,...`: the backends of a command, and their system requirements.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use zoo_spec::{Backend, BackendId};

use crate::{libtorch, vulkan};

/// The flags of every command that builds backends.
#[derive(Args, Clone)]
pub(crate) struct Backends {
    /// Comma-separated backends: flex (or cpu), ndarray, wgpu, vulkan, tch, tch-cpu, tch-cuda,
    /// cuda, with an optional device index (wgpu:1); or all that need no GPU: all
    #[arg(long = "backend", value_name = "NAME,...", default_value = "flex", value_parser = parse)]
    ids: Ids,

    /// Install a software Vulkan driver if there is none (Debian, as root)
    #[arg(long)]
    install: bool,
}

/// An alias, because clap treats a plain `Vec` as a repeated flag.
type Ids = Vec<BackendId>;

fn parse(text: &str) -> Result<Ids, String> {
    if text == "all" {
        return Ok(Backend::WITHOUT_GPU.map(BackendId::from).to_vec());
    }
    let mut ids = Ids::new();
    for part in text.split(',') {
        let id = part.trim().parse();
        let id = id.map_err(|error| format!("{error} (or all)"))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

impl Backends {
    pub(crate) fn ids(&self) -> &[BackendId] {
        &self.ids
    }

    pub(crate) fn features(&self) -> Vec<&'static str> {
        self.features_with(vulkan::has_gpu())
    }

    fn features_with(&self, has_gpu: bool) -> Vec<&'static str> {
        let mut features: Vec<_> = self.ids.iter().map(|id| id.backend.feature()).collect();
        // Autotuning pays off on a GPU only: on a software adapter it takes minutes and selects the
        // same kernel for every shape.
        let is_tunable = |feature: &&str| ["wgpu", "vulkan", "cuda"].contains(feature);
        if has_gpu && features.iter().any(is_tunable) {
            features.push("autotune");
        }
        features.sort_unstable();
        features.dedup();
        features
    }

    pub(crate) fn new(ids: Vec<BackendId>, install: bool) -> Self {
        Self { ids, install }
    }

    pub(crate) fn only(&self, id: BackendId) -> Self {
        Self::new(vec![id], self.install)
    }

    /// Installs what they need to be built and run, and returns the environment variables.
    pub(crate) fn prepare(&self) -> Result<Environment> {
        let mut environment = Environment::default();
        let needs = |backend| self.ids().iter().any(|id| id.backend == backend);
        if needs(Backend::Wgpu) && needs(Backend::Vulkan) {
            anyhow::bail!(
                "wgpu and vulkan cannot share a build: with the feature `vulkan`, wgpu would use SPIR-V \
                 shaders, too\n  help: run the command once for each"
            );
        }
        if needs(Backend::Wgpu) || needs(Backend::Vulkan) {
            vulkan::provide(self.install)?;
        }
        if self.ids.iter().any(|id| id.backend.needs_libtorch()) {
            environment.extend(libtorch::provide()?.environment());
        }
        Ok(environment)
    }
}

pub(crate) type Environment = Vec<(&'static str, OsString)>;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let ids = parse(text).unwrap_or_else(|error| panic!("{error}"));
        ids.iter().map(BackendId::to_string).collect()
    }

    #[test]
    fn lists_are_parsed_and_deduplicated() {
        assert_eq!(names("wgpu:1, flex,cpu"), ["wgpu:1", "flex"]);
        assert_eq!(names("all"), ["flex", "ndarray", "wgpu", "tch-cpu"]);
    }

    #[test]
    fn features_depend_on_backends_and_gpu() {
        let features = |text: &str, has_gpu: bool| {
            let ids = parse(text).unwrap_or_else(|error| panic!("{error}"));
            let install = false;
            Backends { ids, install }.features_with(has_gpu)
        };
        assert_eq!(features("tch-cpu,flex,tch-cuda", true), ["flex", "tch"]);
        assert_eq!(features("wgpu", false), ["wgpu"]);
        assert_eq!(features("wgpu", true), ["autotune", "wgpu"]);
    }
}
