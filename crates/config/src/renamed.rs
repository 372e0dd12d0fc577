//! Keys that have been renamed.

use crate::keys::Key;

/// Old and new path of each renamed key; `*` is any one element. Only the last element differs.
const RENAMED_KEYS: &[(&str, &str)] = &[
    ("backend.word", "backend.name"),
    ("data.allowed_bad", "data.max_malformed"),
    ("data.decoys", "data.distractors"),
    ("data.test_share", "data.test_fraction"),
    ("data.valid_share", "data.valid_fraction"),
    ("model.*.block", "model.*.block_size"),
    ("model.*.bucket", "model.*.bucket_size"),
    ("model.*.features", "model.*.feature_map"),
    ("model.*.features", "model.*.n_features"),
    ("model.*.kv_heads", "model.*.n_heads_kv"),
    ("model.*.longest", "model.*.max_positions"),
    ("model.*.redraw", "model.*.resample"),
    ("model.*.rounds", "model.*.n_hashes"),
    ("model.*.size", "model.*.block_size"),
    ("model.feeding", "model.input_feeding"),
    ("model.heads", "model.n_heads"),
    ("model.kv_heads", "model.n_heads_kv"),
    ("model.tied", "model.tie_embeddings"),
    ("model.tying", "model.tie_embeddings"),
    ("optimizer.clipping.at", "optimizer.clipping.threshold"),
    ("schedule.final_share", "schedule.min_lr_ratio"),
    ("tokenizer.size", "tokenizer.vocab_size"),
    ("tokenizer.words", "tokenizer.pre_tokenizer"),
    ("training.accumulate", "training.gradient_accumulation"),
    ("training.keep", "training.keep_checkpoints"),
];

/// The new name of the last element of `path`, if that key has been renamed to one of `keys`.
pub(crate) fn new_name(path: &str, keys: &[Key]) -> Option<&'static str> {
    let matches = |pattern: &str| {
        let (pattern, path) = (pattern.split('.'), path.split('.'));
        pattern.clone().count() == path.clone().count()
            && pattern.zip(path).all(|(a, b)| a == "*" || a == b)
    };
    let renamed = RENAMED_KEYS.iter().filter(|(old, _)| matches(old));
    let mut names = renamed.filter_map(|(_, new)| new.rsplit('.').next());
    names.find(|name| keys.iter().any(|key| key.name == *name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::SECTIONS;

    #[test]
    fn new_names_are_keys() {
        for (_, new) in RENAMED_KEYS {
            let (table, name) = new.rsplit_once('.').expect("a path");
            let section = table.split('.').next();
            let section = SECTIONS.iter().find(|one| Some(one.name) == section);
            let tables = section.expect("a section").tables();
            let keys = tables.iter().flat_map(|(_, keys)| *keys);
            let mut keys: Vec<&Key> = keys.collect();
            if table.contains('.') {
                let choices = keys.iter().filter_map(|key| key.values.choice());
                let variants = choices.map(|choice| choice.variants);
                keys = variants
                    .flatten()
                    .flat_map(|variant| variant.keys)
                    .collect();
            }
            assert!(keys.iter().any(|key| key.name == name), "{new}");
        }
    }
}
