//! `--backend WORD,...`: which backends a command is about, and what they need
//! from this machine before they can be built and run.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use zoo_spec::{Backend, BackendWord};

use crate::{libtorch, vulkan};

/// The flags of every command that builds for backends.
#[derive(Args, Clone)]
pub(crate) struct Backends {
    /// flex (or cpu), ndarray, wgpu, vulkan, tch, tch-cpu, tch-cuda, cuda; several
    /// with commas; an index may follow (wgpu:1); all: every one that needs no GPU
    #[arg(long = "backend", value_name = "WORD,...", default_value = "flex", value_parser = parse)]
    words: Words,

    /// Install a missing software Vulkan driver (as root on Debian and its kin)
    #[arg(long)]
    install: bool,
}

/// One value of the flag is all of them, which clap does not expect of a plain `Vec`.
type Words = Vec<BackendWord>;

fn parse(text: &str) -> Result<Words, String> {
    if text == "all" {
        return Ok(Backend::WITHOUT_GPU.map(BackendWord::from).to_vec());
    }
    let mut words = Words::new();
    for part in text.split(',') {
        let word = part
            .trim()
            .parse()
            .map_err(|error| format!("{error} (or all)"))?;
        if !words.contains(&word) {
            words.push(word);
        }
    }
    Ok(words)
}

impl Backends {
    pub(crate) fn words(&self) -> &[BackendWord] {
        &self.words
    }

    /// The cargo features that compile them in.
    pub(crate) fn features(&self) -> Vec<&'static str> {
        self.features_with(vulkan::has_gpu())
    }

    fn features_with(&self, gpu: bool) -> Vec<&'static str> {
        let words = self.words().iter();
        let mut features: Vec<_> = words.map(|word| word.backend.feature()).collect();
        // Trying kernels out pays on a GPU. A software adapter takes minutes for
        // it, and would find the same kernel for every shape.
        let tunes = |feature: &&str| ["wgpu", "vulkan", "cuda"].contains(feature);
        if gpu && features.iter().any(tunes) {
            features.push("autotune");
        }
        features.sort_unstable();
        features.dedup();
        features
    }

    /// A single one.
    pub(crate) fn one(word: BackendWord, install: bool) -> Self {
        Self {
            words: vec![word],
            install,
        }
    }

    /// One of them, alone.
    pub(crate) fn only(&self, word: BackendWord) -> Self {
        Self::one(word, self.install)
    }

    /// Sees to it that they can be built and run here, and returns the
    /// environment to do so in.
    pub(crate) fn prepare(&self) -> Result<Environment> {
        let mut environment = Environment::default();
        let needs = |backend| self.words().iter().any(|word| word.backend == backend);
        if needs(Backend::Wgpu) && needs(Backend::Vulkan) {
            anyhow::bail!(
                "wgpu and vulkan cannot share a build: with the feature `vulkan` compiled in, \
                 wgpu would run its SPIR-V shaders too\n  do: run the command once for each"
            );
        }
        if needs(Backend::Wgpu) || needs(Backend::Vulkan) {
            vulkan::provide(self.install)?;
        }
        let mut words = self.words.iter();
        if words.any(|word| word.backend.needs_libtorch()) {
            environment.extend(libtorch::provide()?.environment());
        }
        Ok(environment)
    }
}

/// Environment variables for a child process.
pub(crate) type Environment = Vec<(&'static str, OsString)>;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words = parse(text).unwrap_or_else(|error| panic!("{error}"));
        words.iter().map(BackendWord::to_string).collect()
    }

    #[test]
    fn lists_are_read_and_repeats_dropped() {
        assert_eq!(words("wgpu:1, flex,cpu"), ["wgpu:1", "flex"]);
        assert_eq!(words("all"), ["flex", "ndarray", "wgpu", "tch-cpu"]);
    }

    #[test]
    fn features_follow_from_words_and_machine() {
        let features = |text: &str, gpu: bool| {
            let words = parse(text).unwrap_or_else(|error| panic!("{error}"));
            let install = false;
            Backends { words, install }.features_with(gpu)
        };
        assert_eq!(features("tch-cpu,flex,tch-cuda", true), ["flex", "tch"]);
        assert_eq!(features("wgpu", false), ["wgpu"]);
        assert_eq!(features("wgpu", true), ["autotune", "wgpu"]);
    }
}
