//! `cargo xtask config-docs`: writes the document of all keys of a config file.

use anyhow::{Context, Result};
use clap::Args;
use zoo_config::{DOCS_PATH, docs};

use crate::places::workspace;

#[derive(Args)]
pub(crate) struct ConfigDocs {}

impl ConfigDocs {
    pub(crate) fn run(self) -> Result<()> {
        let path = workspace().join(DOCS_PATH);
        let written = docs();
        if std::fs::read_to_string(&path).is_ok_and(|text| text == written) {
            println!("{DOCS_PATH} is up to date");
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("{} cannot be made", folder.display()))?;
        }
        std::fs::write(&path, written).with_context(|| format!("{DOCS_PATH} cannot be written"))?;
        println!("{DOCS_PATH} was written anew");
        Ok(())
    }
}
