//! What is in a run folder and was not written by zoo is neither removed nor in the way.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use zoo_backend::Opened;
use zoo_train::{Trained, Which, average, train};

use crate::shared::{copy_folder, has, lacks, starts};
use crate::support::{
    Folder, config, config_text, failed, overwrite, quiet, resume, resume_from, said, small,
    succeeded, trained, trials, unsuccessful, zoo,
};

trials! {
    trials:
    overwrite_spares_folders_that_zoo_did_not_create,
    overwrite_spares_foreign_files,
    overwrite_spares_files_of_the_config,
    overwrite_removes_what_zoo_wrote,
    stray_files_among_checkpoints_stay,
    #[cfg(unix)]
    unreadable_checkpoints_are_reported,
    #[cfg(target_os = "linux")]
    paths_need_not_be_utf_8,
}

/// Every file and symlink below a folder, with its content.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(tree(&path)),
            kind if kind.is_symlink() => {
                let target = std::fs::read_link(&path).unwrap();
                files.insert(path, target.into_os_string().into_encoded_bytes());
            }
            _ => {
                let bytes = std::fs::read(&path).unwrap();
                files.insert(path, bytes);
            }
        }
    }
    files
}

/// A folder of data and of a config that was written by hand, with any name that zoo uses, too.
fn overwrite_spares_folders_that_zoo_did_not_create(opened: &Opened) {
    let (folder, config) = small(opened, &["training.steps = 1"]);
    let by_hand = config_text(opened, &folder, &["# mine"]);
    let run = folder.join("runs/small");
    let files: [&[(&str, &str)]; 5] = [
        &[("config.toml", &by_hand), ("train.tsv", "a\tb\n")],
        &[("config.toml", &by_hand)],
        // Of another program.
        &[
            ("config.toml", &by_hand),
            ("run.json", "{\"versions\": {}}"),
        ],
        &[("run.json", "{\"name\": \"mine\"}")],
        &[("notes.txt", "mine")],
    ];
    for files in files {
        for (name, content) in files {
            folder.write(&format!("runs/small/{name}"), content);
        }
        let before = tree(&run);
        for options in [quiet(), overwrite()] {
            let error = failed(&config, &options);
            has(&error, "was not created by zoo");
            has(&error, "so it is not overwritten");
            has(&error, run.to_str().unwrap());
            lacks(&error, "--overwrite");
            assert_eq!(tree(&run), before);
        }
        let error = failed(&config, &resume());
        has(&error, "is no folder of a run");
        assert_eq!(tree(&run), before);
        std::fs::remove_dir_all(&run).unwrap();
    }
    // A file.
    folder.write("runs/small", "mine");
    let error = failed(&config, &overwrite());
    has(&error, "was not created by zoo");
    assert!(run.is_file());
}

fn overwrite_spares_foreign_files(opened: &Opened) {
    let (original, _) = trained(opened, &["training.steps = 1"]);
    // What is added to the run, and what the refusal names.
    let refuses = |named: &OsStr, add: &dyn Fn(&Folder)| {
        let (folder, config) = small(opened, &["training.steps = 1"]);
        copy_folder(&original.join("runs"), &folder.join("runs"));
        add(&folder);
        let run = folder.join("runs/small");
        let before = tree(&run);
        let error = failed(&config, &overwrite());
        let named = run.join(named);
        starts(
            &error,
            format!("{} was not written by zoo", named.display()),
        );
        assert_eq!(tree(&run), before);
        // Nor is it recommended.
        let choices = "is there already\n  do: --resume goes on with it, --set run.name=OTHER";
        has(&failed(&config, &quiet()), choices);
    };
    // Beside zoo's own, at every level, with names that are nearly its own. A folder of another
    // name is named as a whole.
    for (name, named) in [
        ("train.tsv", "train.tsv"),
        ("Config.toml", "Config.toml"),
        ("config.toml.bak", "config.toml.bak"),
        ("notes/log.txt", "notes"),
        ("bleurt.svg", "bleurt.svg"),
        ("checkpoints/notes.txt", "checkpoints/notes.txt"),
        (
            "checkpoints/weights.safetensors",
            "checkpoints/weights.safetensors",
        ),
        ("checkpoints/step-1/state.json", "checkpoints/step-1"),
        (
            "checkpoints/step-00000001/notes.txt",
            "checkpoints/step-00000001/notes.txt",
        ),
        (
            "checkpoints/step-00000001/config.toml",
            "checkpoints/step-00000001/config.toml",
        ),
    ] {
        let path = format!("runs/small/{name}");
        refuses(OsStr::new(named), &|folder| {
            drop(folder.write(&path, "mine"))
        });
    }
    // A symlink is not zoo's, whatever its name is and wherever it leads.
    #[cfg(unix)]
    for (name, target) in [
        ("average.safetensors", "outside/weights.safetensors"),
        ("checkpoints/step-00000007", "outside"),
    ] {
        refuses(OsStr::new(name), &|folder| {
            folder.write("outside/weights.safetensors", "mine");
            let target = folder.join(target);
            link(
                target.to_str().unwrap(),
                &folder.join("runs/small").join(name),
            );
        });
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let name = OsStr::from_bytes(b"caf\xe9.txt");
        refuses(name, &|folder| {
            std::fs::write(folder.join("runs/small").join(name), "mine").unwrap();
        });
    }
}

fn overwrite_spares_files_of_the_config(opened: &Opened) {
    let (folder, _) = trained(opened, &["training.steps = 1"]);
    let run = folder.join("runs/small");
    let mut names = vec![run.join("tokenizer.source.json")];
    assert!(names[0].is_file());
    #[cfg(unix)]
    {
        let link = folder.join("elsewhere.json");
        std::os::unix::fs::symlink(&names[0], &link).unwrap();
        names.push(link);
    }
    for name in names {
        let path = name.display().to_string();
        let load = format!("tokenizer.load = [{path:?}, {path:?}]");
        let config = config(opened, &folder, &["training.steps = 1", &load]);
        let before = tree(&run);
        let error = failed(&config, &overwrite());
        let expected = format!("tokenizer.load is {}, in the run folder", name.display());
        starts(&error, &expected);
        assert_eq!(tree(&run), before);
        let error = failed(&config, &quiet());
        lacks(&error, "--overwrite");
    }
}

/// Also what was left by a process that was killed, and by other commands.
fn overwrite_removes_what_zoo_wrote(opened: &Opened) {
    let (folder, config) = small(opened, &["training.steps = 1"]);
    let run = folder.join("runs/small");
    // There is nothing to resume yet.
    has(&failed(&config, &resume()), "there is no config.toml in it");
    // Killed before there was more.
    folder.write("runs/small/lock", "1\n");
    folder.write("runs/small/run.json.partial", "{");
    train(&config, &quiet()).unwrap();
    average(&folder.run(), &[1]).unwrap();
    folder.write("runs/small/attention.html", "<html>");
    let old = [
        "config.toml.partial",
        "average.safetensors.12-3.tmp",
        "bleu.svg",
        "macro-f1.svg",
        "checkpoints/partial-00000007/weights.safetensors",
        "checkpoints/step-00000009/weights.safetensors.12-3.tmp",
        "checkpoints/step-100000000/state.json",
    ]
    .map(|name| folder.write(&format!("runs/small/{name}"), "old"));
    let error = failed(&config, &quiet());
    has(&error, "--overwrite deletes it");
    train(&config, &overwrite()).unwrap();
    for path in old {
        assert!(!path.exists(), "{}", path.display());
    }
    assert!(!run.join("average.safetensors").exists());
    assert!(!run.join("attention.html").exists());
    let checkpoints = folder.run().checkpoints();
    assert_eq!(checkpoints.steps().unwrap(), [1]);
    // Without its config it is a folder of something else.
    std::fs::remove_file(run.join("config.toml")).unwrap();
    for options in [quiet(), overwrite()] {
        has(&failed(&config, &options), "so it is not overwritten");
    }
}

fn stray_files_among_checkpoints_stay(opened: &Opened) {
    let folder = Folder::new();
    let changes = [
        "training.checkpoint_every = 1",
        "training.keep = 1",
        "validation.every = 100",
    ];
    let of = |steps: &'static str| config(opened, &folder, &[&[steps], &changes[..]].concat());
    train(&of("training.steps = 2"), &quiet()).unwrap();
    let stray = [
        "step-1",
        "step-3",
        "step-x",
        "step-+0000001",
        "step-00000000/notes.txt",
        "step-00000001",
        "partial-00000003",
        "partial-x/notes.txt",
        "notes.txt",
    ]
    .map(|name| folder.write(&format!("runs/small/checkpoints/{name}"), name));
    // In the way of checkpoints that are to be written.
    let in_way =
        [("step-00000003", "file"), ("partial-00000004", "file")].map(|(name, content)| {
            let path = folder.join(&format!("runs/small/checkpoints/{name}"));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::write(&path, content).unwrap();
            path
        });
    train(&of("training.steps = 4"), &resume()).unwrap();
    for path in stray
        .iter()
        .filter(|path| !path.ends_with("partial-00000003"))
    {
        let content = std::fs::read_to_string(path).unwrap();
        assert!(path.to_str().unwrap().ends_with(&content), "{content}");
    }
    for path in in_way.iter().chain(&stray[6..7]) {
        let aside = format!("{}.aside-1", path.display());
        assert!(Path::new(&aside).is_file(), "{aside}");
    }
    let checkpoints = folder.run().checkpoints();
    // The folder with notes in it is left alone; it is no checkpoint that can be read.
    let steps = checkpoints.steps().unwrap();
    assert!(steps.ends_with(&[4]) && steps.len() <= 3, "{steps:?}");
    checkpoints.read(4).unwrap();
    // Nor are notes removed with a checkpoint that is to be written again.
    let notes = folder.write("runs/small/checkpoints/step-00000004/notes.txt", "mine");
    train(&of("training.steps = 5"), &resume()).unwrap();
    assert!(notes.is_file());
    let later = folder.write("runs/small/checkpoints/step-00000005/notes.txt", "mine");
    let error = failed(&of("training.steps = 5"), &resume_from(4));
    starts(&error, later.to_str().unwrap());
    checkpoints.read(5).unwrap();
}

#[cfg(unix)]
fn unreadable_checkpoints_are_reported(opened: &Opened) {
    let (folder, config) = trained(opened, &["training.steps = 1"]);
    let run = folder.join("runs/small");
    let [checkpoints, hidden] = [run.join("checkpoints"), folder.join("hidden")];
    std::fs::rename(&checkpoints, &hidden).unwrap();
    let kinds: [fn(&Path); 3] = [
        |path| std::fs::write(path, "").unwrap(),
        |path| link("checkpoints", path),
        // A disk that is not mounted.
        |path| link("/nowhere/checkpoints", path),
    ];
    for make in kinds {
        make(&checkpoints);
        let opened_run = folder.run();
        let open = |which: Which| Trained::open(&run, which, Some(opened.word), &[]);
        let errors = [
            train(&config, &resume()).unwrap_err(),
            train(&config, &resume_from(1)).unwrap_err(),
            open(Which::Best).unwrap_err(),
            open(Which::Step(1)).unwrap_err(),
            average(&opened_run, &[1]).unwrap_err(),
            opened_run.checkpoints().steps().unwrap_err(),
        ];
        let expected = format!("{} cannot be read: ", checkpoints.display());
        for error in errors.map(|error| error.to_string()) {
            starts(&error, &expected);
            lacks(&error, "--overwrite");
        }
        for command in ["inspect", "average"] {
            let output = zoo(&[command, run.to_str().unwrap()]).output().unwrap();
            unsuccessful(&output);
            has(&said(&output), &expected);
        }
        std::fs::remove_file(&checkpoints).unwrap();
    }
    // Without any, there is none.
    let error = failed(&config, &resume());
    has(&error, "has no checkpoint yet");
    std::fs::rename(&hidden, &checkpoints).unwrap();
    train(&config, &resume()).unwrap();
}

#[cfg(unix)]
fn link(target: &str, path: &Path) {
    std::os::unix::fs::symlink(target, path).unwrap();
}

#[cfg(target_os = "linux")]
fn paths_need_not_be_utf_8(opened: &Opened) {
    use std::os::unix::ffi::OsStrExt;

    let folder = Folder::new();
    let path = folder.join("").join(OsStr::from_bytes(b"caf\xe9.toml"));
    let text = config_text(opened, &folder, &["training.steps = 1"]);
    std::fs::write(&path, text).unwrap();
    let output = zoo(&["train", "--plain"]).arg(&path).output().unwrap();
    succeeded(&output);
    let run = folder.join("runs/small");
    let about = std::fs::read_to_string(run.join("run.json")).unwrap();
    has(&about, "caf\u{fffd}.toml");
    let to = folder.join("").join(OsStr::from_bytes(b"\xff.html"));
    let run = run.to_str().unwrap();
    let attend = zoo(&["attend", run, "--text", "a b", "--to"])
        .arg(&to)
        .output();
    succeeded(&attend.unwrap());
    assert!(to.is_file());
    // What must be text is refused.
    for words in [
        &["train", "small.toml", "--set"][..],
        &["attend", run, "--text"],
        &["translate", run, "--checkpoint"],
        &[],
    ] {
        let output = zoo(words).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        lacks(&said, "panicked");
    }
}
