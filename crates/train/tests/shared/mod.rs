//! Helpers shared by the integration tests.

mod temp_dir;

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use zoo_backend::BackendId;
use zoo_config::Config;

pub(crate) use self::temp_dir::TempDir;

/// Generous, because a machine may be loaded, and a software GPU compiles its kernels first.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// Declares a function that returns the tests of a module, named after their functions, which take
/// a reference to a context.
macro_rules! trials {
    ($function:ident($context:ty): $($(#[$meta:meta])* $test:ident),* $(,)?) => {
        pub(crate) fn $function(context: &$context) -> Vec<libtest_mimic::Trial> {
            vec![$(
                $(#[$meta])*
                $crate::shared::trial(context, module_path!(), stringify!($test), $test)
            ),*]
        }
    };
}
pub(crate) use trials;

pub(crate) fn trial<C>(context: &C, module: &str, name: &str, test: fn(&C)) -> Trial
where
    C: Clone + Send + 'static,
{
    let context = context.clone();
    let module = module.rsplit("::").next().unwrap_or_default();
    Trial::test(format!("{module}::{name}"), move || {
        test(&context);
        Ok(())
    })
}

/// The config of a run in `folder` with these sections.
pub(crate) fn parse_config(id: BackendId, folder: &TempDir, name: &str, sections: &str) -> Config {
    let text = format!(
        "run.output = {:?}\nrun.name = {name:?}\nbackend.name = \"{id}\"\n{sections}\n",
        folder.join("runs").display().to_string()
    );
    let config = Config::parse("small.toml", &text, &[]);
    config.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[track_caller]
pub(crate) fn has(text: &str, part: impl AsRef<str>) {
    let part = part.as_ref();
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

#[track_caller]
pub(crate) fn lacks(text: &str, part: impl AsRef<str>) {
    let part = part.as_ref();
    assert!(!text.contains(part), "{part:?} is in: {text}");
}

#[track_caller]
pub(crate) fn starts(text: &str, start: impl AsRef<str>) {
    let start = start.as_ref();
    assert!(
        text.starts_with(start),
        "no {start:?} at the start of: {text}"
    );
}

#[track_caller]
pub(crate) fn ends(text: &str, end: impl AsRef<str>) {
    let end = end.as_ref();
    assert!(text.ends_with(end), "no {end:?} at the end of: {text}");
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
