//! `cargo xtask config-docs`: writes the document of all keys of a config file.

use anyhow::Result;
use clap::Args;
use zoo_config::{DOCS_PATH, docs};

use crate::readme;

#[derive(Args)]
pub(crate) struct ConfigDocs {}

impl ConfigDocs {
    pub(crate) fn run(self) -> Result<()> {
        readme::write(DOCS_PATH, &docs())
    }
}
