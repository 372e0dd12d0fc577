//! Sections of a config file, and the keys of `zoo-spec` that they consist of.

#[cfg(test)]
mod tests;

pub(crate) use zoo_spec::keys::*;
pub(crate) use zoo_spec::{keys, kinds, words};

pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Keys(&'static [Key]),
    /// A `kind`, and the keys of that kind.
    Kinds(&'static [Variant], UsualKind),
}

/// What a `kind` is when it is left out.
pub(crate) enum UsualKind {
    /// A mistake.
    Required,
    /// This one.
    Word(&'static str),
    /// One that fits the kind of data.
    OfData(fn(&str) -> &'static str),
}

impl Section {
    /// Keys by the kinds that have them; one nameless kind where there are none.
    pub(crate) fn tables(&self) -> Vec<(Option<&'static Variant>, &'static [Key])> {
        match self.body {
            Body::Keys(keys) => vec![(None, keys)],
            Body::Kinds(kinds, _) => kinds.iter().map(|kind| (Some(kind), kind.keys)).collect(),
        }
    }
}
