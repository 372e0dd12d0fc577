//! The variants of a sweep: one run for each combination of the values of `--sweep`.

use std::ffi::OsString;
use std::path::PathBuf;

use zoo_config::{Config, ConfigError, Override};
use zoo_spec::Printable;

use super::arguments::TrainArguments;

/// Maximum bytes of a name. Longer names, with the suffix of a temporary file, are not portable.
const MAX_NAME: usize = 200;

/// Checked configs with different values of some keys.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The folder of all runs.
    pub(crate) folder: PathBuf,
    pub(crate) variants: Vec<Variant>,
    /// Variants with a mechanism of `all` that the config does not support.
    pub(crate) skipped: Vec<Skipped>,
}

#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) name: String,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) struct Variant {
    /// The values that it has, such as `encoder_attention=flash,layers=4`; also the name of its run.
    pub(crate) name: String,
    pub(crate) config: Config,
    /// The arguments of `zoo` that train it.
    pub(crate) arguments: Vec<OsString>,
}

impl TrainArguments {
    /// The sweep of each config.
    pub(crate) fn sweeps(&self) -> Result<Vec<Sweep>, ConfigError> {
        let mut sweeps: Vec<Sweep> = vec![];
        for config in std::iter::once(&self.config).chain(&self.more) {
            let arguments = Self {
                config: config.clone(),
                ..self.clone()
            };
            let sweep = arguments.variants()?;
            if sweeps.iter().any(|other| other.folder == sweep.folder) {
                return Err(ConfigError::InvalidInput(format!(
                    "the runs of {} would be in {}, as those of another config\n  \
                     help: set another run.name in the config, and give each config once",
                    Printable(&config.display().to_string()),
                    Printable(&sweep.folder.display().to_string())
                )));
            }
            sweeps.push(sweep);
        }
        Ok(sweeps)
    }

    /// Reads the config of every variant. All errors of all variants are reported together, except
    /// those of mechanisms of `all` if the config supports others of them.
    fn variants(&self) -> Result<Sweep, ConfigError> {
        let swept = self.sweep.iter().map(|text| Override::sweep(text));
        let swept: Vec<Vec<Override>> = swept.collect::<Result<_, _>>()?;
        let (path, run) = self.config_file()?;
        let (set, flags) = (self.set_overrides()?, self.flag_overrides());
        check_keys(&swept, &[&set[..], &flags].concat())?;
        let mut sweep = Sweep {
            folder: PathBuf::new(),
            variants: vec![],
            skipped: vec![],
        };
        let mut errors = vec![];
        // The values of the variants without errors.
        let mut valid = vec![];
        let combinations = combinations(&swept);
        for values in &combinations {
            let name = name(values);
            let set = insert(&set, values);
            let overrides = [&run[..], &set, &flags].concat();
            let config = Config::read(&path, &overrides).and_then(|config| {
                config.check_files(&path, &overrides, self.resume)?;
                Ok(config)
            });
            let mut config = match config {
                Ok(config) => config,
                Err(error) => {
                    errors.push((values, name, error));
                    continue;
                }
            };
            if let Err(error) = check_name(&name, values, &sweep) {
                errors.push((values, name, error));
                continue;
            }
            valid.push(values);
            let base = config.run.name.take().unwrap_or_default();
            sweep.folder = config.run.output.join(format!("{base}-sweep"));
            config.run.output.clone_from(&sweep.folder);
            config.run.name = Some(name.clone());
            sweep.variants.push(Variant {
                arguments: self.arguments_of(&set, &config, &name),
                name,
                config,
            });
        }
        // An error that every mechanism has is not about the mechanism.
        let is_skipped = |values: &[Override]| {
            let is_from_all = values.iter().any(Override::is_from_all);
            is_from_all && valid.iter().any(|other| differ_in_all(values, other))
        };
        let (skipped, errors): (Vec<_>, Vec<_>) =
            errors.into_iter().partition(|it| is_skipped(it.0));
        sweep.skipped = skipped
            .into_iter()
            .map(|(_, name, error)| Skipped {
                name,
                reason: error.reasons().join("; "),
            })
            .collect();
        let errors = errors.into_iter().map(|(_, name, error)| (name, error));
        match ConfigError::merge(errors.collect(), combinations.len()) {
            Some(error) => Err(error),
            None => Ok(sweep),
        }
    }

    fn arguments_of(&self, set: &[Override], config: &Config, name: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["train".into(), self.config.clone().into()];
        let mut add = |flag: &str, value: String| {
            arguments.extend([flag.into(), value.into()]);
        };
        for one in set.iter().filter(|one| one.key() != "run.output") {
            add("--set", format!("{}={}", one.key(), one.value()));
        }
        add(
            "--set",
            format!("run.output={}", config.run.output.display()),
        );
        add("--name", name.to_owned());
        if let Some(steps) = self.steps {
            add("--steps", steps.to_string());
        }
        if let Some(backend) = self.backend {
            add("--backend", backend.to_string());
        }
        if self.plain {
            arguments.push("--plain".into());
        }
        arguments
    }
}

/// Checks that each key is swept once, and that no other flag sets it.
fn check_keys(swept: &[Vec<Override>], others: &[Override]) -> Result<(), ConfigError> {
    let keys: Vec<&Override> = swept.iter().filter_map(|values| values.first()).collect();
    for (i, one) in keys.iter().enumerate() {
        let key = one.key();
        let is_same = |other: &&Override| other.key() == key;
        if ["run.name", "run.output"].contains(&key.as_str()) {
            let message = format!("{key} cannot be swept: each variant has a folder of its own");
            let help = "--name NAME names the sweep: its runs are in NAME-sweep".to_owned();
            return Err(one.error(message, help));
        }
        if keys[..i].iter().any(|other| other.key() == key) {
            let help = format!("list all values once: --sweep {key}=A,B");
            return Err(one.error(format!("{key} is swept twice"), help));
        }
        if let Some(other) = others.iter().find(is_same) {
            let message = format!("{key} is also set by {}", other.flag_text());
            return Err(one.error(message, "remove one of them".to_owned()));
        }
    }
    Ok(())
}

/// Inserts values before the flags of --set, so that these can set keys of a swept table, but after
/// a flag that sets the table of a swept key.
fn insert(set: &[Override], values: &[Override]) -> Vec<Override> {
    let mut all = set.to_vec();
    // The last value first, so that values at the same place keep their order.
    for value in values.iter().rev() {
        let key = value.key();
        let is_table = |other: &Override| key.starts_with(&format!("{}.", other.key()));
        let at = all.iter().rposition(is_table).map_or(0, |at| at + 1);
        all.insert(at, value.clone());
    }
    all
}

/// Every combination of one value of each key. The last key varies fastest.
fn combinations(swept: &[Vec<Override>]) -> Vec<Vec<Override>> {
    let mut all = vec![vec![]];
    for values in swept {
        let extended = all.iter().flat_map(|start: &Vec<Override>| {
            let extend = |value: &Override| [&start[..], std::slice::from_ref(value)].concat();
            values.iter().map(extend)
        });
        all = extended.collect();
    }
    all
}

/// Whether two combinations differ only in mechanisms of `all`.
fn differ_in_all(values: &[Override], others: &[Override]) -> bool {
    values.iter().zip(others).all(|(value, other)| {
        let is_from_all = value.is_from_all() && other.is_from_all();
        is_from_all || value.value() == other.value()
    })
}

/// `encoder_attention=flash,layers=4`: the keys without their section. Other characters than letters,
/// digits and `._+` become one `-`.
fn name(values: &[Override]) -> String {
    let part = |value: &Override| {
        let key = value.key();
        let key = key.split_once('.').map_or(key.as_str(), |(_, key)| key);
        let is_plain = |c: char| c.is_alphanumeric() || "._+".contains(c);
        let words = value.value().split(|c| !is_plain(c));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        // The sign of a number.
        let sign = if value.value().starts_with('-') {
            "-"
        } else {
            ""
        };
        format!("{key}={sign}{}", words.join("-"))
    };
    values.iter().map(part).collect::<Vec<_>>().join(",")
}

fn check_name(name: &str, values: &[Override], sweep: &Sweep) -> Result<(), ConfigError> {
    let Some(last) = values.last() else {
        return Ok(());
    };
    if name.len() > MAX_NAME {
        let message = format!(
            "the name of a variant would have {} bytes, more than {MAX_NAME}: {name}",
            name.len()
        );
        let help = "sweep fewer keys at once, or set some in the config".to_owned();
        return Err(last.error(message, help));
    }
    if sweep.variants.iter().any(|variant| variant.name == name) {
        let message = format!("two variants have the name {name}");
        let help = "list each value once; names contain only letters, digits and . _ +".to_owned();
        return Err(last.error(message, help));
    }
    Ok(())
}
