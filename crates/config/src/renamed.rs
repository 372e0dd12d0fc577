//! Keys that have been renamed.

/// Old and new path of each renamed key; `*` is any one element. Only the last element differs.
const RENAMED_KEYS: &[(&str, &str)] = &[
    ("backend.word", "backend.name"),
    ("model.*.longest", "model.*.max_positions"),
    ("model.*.redraw", "model.*.resample"),
    ("model.heads", "model.n_heads"),
    ("model.kv_heads", "model.n_heads_kv"),
    ("model.*.kv_heads", "model.*.n_heads_kv"),
];

/// The new name of the last element of `path`, if that key has been renamed.
pub(crate) fn new_name(path: &str) -> Option<&'static str> {
    let matches = |pattern: &str| {
        let (pattern, path) = (pattern.split('.'), path.split('.'));
        pattern.clone().count() == path.clone().count()
            && pattern.zip(path).all(|(a, b)| a == "*" || a == b)
    };
    let (_, new) = RENAMED_KEYS.iter().find(|(old, _)| matches(old))?;
    new.rsplit('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_element_by_element() {
        assert_eq!(new_name("backend.word"), Some("name"));
        assert_eq!(new_name("model.cross_attention.redraw"), Some("resample"));
        for path in ["model.redraw", "backend.name", "backend.word.a", "backend"] {
            assert_eq!(new_name(path), None, "{path}");
        }
    }

    #[test]
    fn new_keys_are_documented() {
        for (old, new) in RENAMED_KEYS {
            let name = new_name(old).expect("a renamed key");
            assert!(new.ends_with(name) && crate::docs().contains(&format!("`{name}`")));
        }
    }
}
