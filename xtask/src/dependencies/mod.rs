//! What we depend on: nothing that no code names ([`unused`]), and nothing whose licence asks
//! for more than we agreed to ([`licences`]). Both are read from `cargo metadata`.

mod licences;
mod unused;

use anyhow::{Result, bail};

use crate::metadata::Metadata;

/// Both checks; the licences are shown as a table.
pub(crate) fn check(metadata: &Metadata) -> Result<()> {
    let unused = unused::check(metadata)?;
    let licences = licences::check(metadata);
    println!("{}", licences.table());
    let left_over = licences.left_over();
    let wrong = [unused, licences.wrong, left_over].concat();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}
