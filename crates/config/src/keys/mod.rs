//! Sections of a config file.

#[cfg(test)]
mod tests;

pub(crate) use zoo_spec::keys::*;
pub(crate) use zoo_spec::{keys, kinds, names};

pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Keys(&'static [Key]),
    /// A `kind`, and the keys of each kind.
    Kinds(&'static [Variant], DefaultKind),
}

/// The default of `kind`.
pub(crate) enum DefaultKind {
    /// None: it is required.
    Required,
    Named(&'static str),
    /// A function of `data.kind`.
    FromData(fn(&str) -> &'static str),
}

impl Section {
    /// The keys of each kind; `None` for a section without kinds.
    pub(crate) fn tables(&self) -> Vec<(Option<&'static Variant>, &'static [Key])> {
        match self.body {
            Body::Keys(keys) => vec![(None, keys)],
            Body::Kinds(kinds, _) => kinds.iter().map(|kind| (Some(kind), kind.keys)).collect(),
        }
    }
}
