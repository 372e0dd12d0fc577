//! The line that says how a score was computed.

/// How many references lines have: the same for each of them, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum References {
    /// No line was seen.
    #[default]
    Unknown,
    /// Each has as many.
    Each(usize),
    /// Some have more than others.
    Varying,
}

impl References {
    /// One more line, with `count` references.
    pub(crate) fn add(&mut self, count: usize) {
        *self = match *self {
            Self::Unknown => Self::Each(count),
            Self::Each(others) if others == count => *self,
            _ => Self::Varying,
        };
    }

    /// Those of two parts of a test set.
    pub(crate) fn join(&mut self, other: Self) {
        match other {
            Self::Unknown => {}
            Self::Each(count) => self.add(count),
            Self::Varying => *self = Self::Varying,
        }
    }

    fn word(self) -> String {
        match self {
            Self::Unknown => "0".to_owned(),
            Self::Each(count) => count.to_string(),
            Self::Varying => "var".to_owned(),
        }
    }
}

/// `nrefs:1|case:mixed|...|version:zoo-data-0.1.0`: sacreBLEU's keys in its order. The
/// version is ours, so that nobody takes the number for one that sacreBLEU printed.
pub(crate) fn signature(references: References, settings: &[(&str, String)]) -> String {
    let mut parts = vec![format!("nrefs:{}", references.word())];
    parts.extend(settings.iter().map(|(key, value)| format!("{key}:{value}")));
    parts.push(concat!("version:zoo-data-", env!("CARGO_PKG_VERSION")).to_owned());
    parts.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_counted_or_vary() {
        let mut references = References::default();
        references.add(2);
        references.add(2);
        assert_eq!(references, References::Each(2));
        references.join(References::Unknown);
        assert_eq!(references, References::Each(2));
        references.join(References::Each(1));
        assert_eq!(references.word(), "var");
    }
}
