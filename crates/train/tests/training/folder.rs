//! Run folders with files that were not written by zoo.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use zoo_backend::OpenDevice;
use zoo_train::{CheckpointChoice, TrainedRun, average, train};

use crate::support::*;

trials! {
    trials(OpenDevice):
    overwrite_keeps_folders_that_zoo_did_not_create,
    overwrite_keeps_foreign_files,
    overwrite_keeps_files_of_the_config,
    overwrite_removes_files_written_by_zoo,
    stray_files_among_checkpoints_are_kept,
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

/// Such as a folder with data and a handwritten config, even if it has a name that zoo uses.
fn overwrite_keeps_folders_that_zoo_did_not_create(opened: &OpenDevice) {
    let (folder, config) = small_run(opened, &["training.steps = 1"]);
    let by_hand = config_text(opened, &folder, &["# mine"]);
    let run = folder.join("runs/small");
    let files: [&[(&str, &str)]; 5] = [
        &[("config.toml", &by_hand), ("train.tsv", "a\tb\n")],
        &[("config.toml", &by_hand)],
        // Written by another program.
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
            let error = train_error(&config, &options);
            has(&error, "was not created by zoo");
            has(&error, "so it is not overwritten");
            has(&error, run.to_str().unwrap());
            lacks(&error, "--overwrite");
            assert_eq!(tree(&run), before);
        }
        let error = train_error(&config, &resume());
        has(&error, "no run at ");
        assert_eq!(tree(&run), before);
        std::fs::remove_dir_all(&run).unwrap();
    }
    folder.write("runs/small", "mine");
    let error = train_error(&config, &overwrite());
    has(&error, "was not created by zoo");
    assert!(run.is_file());
}

fn overwrite_keeps_foreign_files(opened: &OpenDevice) {
    let (original, _) = trained_run(opened, &["training.steps = 1"]);
    // `add` adds a file to a run; the error names `named`.
    let check = |named: &OsStr, add: &dyn Fn(&TempDir)| {
        let (folder, config) = small_run(opened, &["training.steps = 1"]);
        copy_folder(&original.join("runs"), &folder.join("runs"));
        add(&folder);
        let run = folder.join("runs/small");
        let before = tree(&run);
        let error = train_error(&config, &overwrite());
        let named = run.join(named);
        let expected = format!("{} was not written by zoo", named.display());
        starts(&error, expected);
        assert_eq!(tree(&run), before);
        // `--overwrite` is not suggested either.
        let choices = "already exists\n  help: --resume continues it, --name OTHER";
        has(&train_error(&config, &quiet()), choices);
    };
    // Names similar to zoo's, at every level. For files in a foreign folder, the folder is named.
    let files = [
        "train.tsv",
        "Config.toml",
        "config.toml.bak",
        "bleurt.svg",
        "checkpoints/notes.txt",
        "checkpoints/weights.safetensors",
        "checkpoints/step-00000001/notes.txt",
        "checkpoints/step-00000001/config.toml",
        "tensorboard/events.out.tfevents.mine",
    ];
    let in_folders = [
        ("notes/log.txt", "notes"),
        ("checkpoints/step-1/state.json", "checkpoints/step-1"),
    ];
    for (name, named) in files.map(|name| (name, name)).into_iter().chain(in_folders) {
        let path = format!("runs/small/{name}");
        check(OsStr::new(named), &|folder| {
            drop(folder.write(&path, "mine"))
        });
    }
    // Symlinks are foreign, whatever their name and target.
    #[cfg(unix)]
    for (name, target) in [
        ("average.safetensors", "outside/weights.safetensors"),
        ("checkpoints/step-00000007", "outside"),
    ] {
        check(OsStr::new(name), &|folder| {
            folder.write("outside/weights.safetensors", "mine");
            let target = folder.join(target);
            let path = folder.join("runs/small").join(name);
            link(target.to_str().unwrap(), &path);
        });
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let name = OsStr::from_bytes(b"caf\xe9.txt");
        check(name, &|folder| {
            std::fs::write(folder.join("runs/small").join(name), "mine").unwrap();
        });
    }
}

fn overwrite_keeps_files_of_the_config(opened: &OpenDevice) {
    let (folder, _) = trained_run(opened, &["training.steps = 1"]);
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
        let error = train_error(&config, &overwrite());
        let expected = format!("tokenizer.load = {} is in the run folder", name.display());
        starts(&error, &expected);
        assert_eq!(tree(&run), before);
        let error = train_error(&config, &quiet());
        lacks(&error, "--overwrite");
    }
}

/// Including files left by a killed process or written by other commands.
fn overwrite_removes_files_written_by_zoo(opened: &OpenDevice) {
    let changes = ["training.steps = 1", "run.tensorboard = true"];
    let (folder, config) = small_run(opened, &changes);
    let run = folder.join("runs/small");
    has(&train_error(&config, &resume()), "(no config.toml)");
    // Left by a process that was killed early.
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
        "tensorboard/events.out.tfevents.00001",
    ]
    .map(|name| folder.write(&format!("runs/small/{name}"), "old"));
    let error = train_error(&config, &quiet());
    has(&error, "--overwrite deletes it");
    train(&config, &overwrite()).unwrap();
    for path in old {
        assert!(!path.exists(), "{}", path.display());
    }
    assert!(!run.join("average.safetensors").exists());
    assert!(!run.join("attention.html").exists());
    assert!(run.join("tensorboard/events.out.tfevents.00000").is_file());
    let checkpoints = folder.run().checkpoints();
    assert_eq!(checkpoints.steps().unwrap(), [1]);
    // Without a config it is not a run folder.
    std::fs::remove_file(run.join("config.toml")).unwrap();
    for options in [quiet(), overwrite()] {
        has(&train_error(&config, &options), "so it is not overwritten");
    }
}

fn stray_files_among_checkpoints_are_kept(opened: &OpenDevice) {
    let folder = TempDir::new();
    let changes = [
        "training.checkpoint_every = 1",
        "training.keep_checkpoints = 1",
        "validation.every = 100",
    ];
    let with_steps =
        |steps: &'static str| config(opened, &folder, &[&[steps], &changes[..]].concat());
    train(&with_steps("training.steps = 2"), &quiet()).unwrap();
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
    // At the paths of checkpoints to be written.
    let conflicting = ["step-00000003", "partial-00000004"]
        .map(|name| folder.write(&format!("runs/small/checkpoints/{name}"), "file"));
    train(&with_steps("training.steps = 4"), &resume()).unwrap();
    let [kept, partial, kept_too] = [&stray[..6], &stray[6..7], &stray[7..]];
    for path in kept.iter().chain(kept_too) {
        let content = std::fs::read_to_string(path).unwrap();
        assert!(path.to_str().unwrap().ends_with(&content), "{content}");
    }
    for path in conflicting.iter().chain(partial) {
        let aside = format!("{}.aside-1", path.display());
        assert!(Path::new(&aside).is_file(), "{aside}");
    }
    let checkpoints = folder.run().checkpoints();
    // The folder with notes is kept, but it is not a valid checkpoint.
    let steps = checkpoints.steps().unwrap();
    assert!(steps.ends_with(&[4]) && steps.len() <= 3, "{steps:?}");
    checkpoints.read(4).unwrap();
    // Foreign files in a checkpoint that is written again are kept.
    let notes = folder.write("runs/small/checkpoints/step-00000004/notes.txt", "mine");
    train(&with_steps("training.steps = 5"), &resume()).unwrap();
    assert!(notes.is_file());
    let later = folder.write("runs/small/checkpoints/step-00000005/notes.txt", "mine");
    let error = train_error(&with_steps("training.steps = 5"), &resume_from(4));
    starts(&error, later.to_str().unwrap());
    checkpoints.read(5).unwrap();
}

#[cfg(unix)]
fn unreadable_checkpoints_are_reported(opened: &OpenDevice) {
    let (folder, config) = trained_run(opened, &["training.steps = 1"]);
    let run = folder.join("runs/small");
    let [checkpoints, hidden] = [run.join("checkpoints"), folder.join("hidden")];
    std::fs::rename(&checkpoints, &hidden).unwrap();
    let kinds: [fn(&Path); 3] = [
        |path| std::fs::write(path, "").unwrap(),
        |path| link("checkpoints", path),
        // Such as an unmounted disk.
        |path| link("/nowhere/checkpoints", path),
    ];
    for make in kinds {
        make(&checkpoints);
        let opened_run = folder.run();
        let open = |which: CheckpointChoice| TrainedRun::open(&run, which, Some(opened.id), &[]);
        let errors = [
            train(&config, &resume()).unwrap_err(),
            train(&config, &resume_from(1)).unwrap_err(),
            open(CheckpointChoice::Best).unwrap_err(),
            open(CheckpointChoice::Step(1)).unwrap_err(),
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
            has(&failure_text(&output), &expected);
        }
        std::fs::remove_file(&checkpoints).unwrap();
    }
    let error = train_error(&config, &resume());
    has(&error, "has no checkpoint yet");
    std::fs::rename(&hidden, &checkpoints).unwrap();
    train(&config, &resume()).unwrap();
}

#[cfg(unix)]
fn link(target: &str, path: &Path) {
    std::os::unix::fs::symlink(target, path).unwrap();
}

#[cfg(target_os = "linux")]
fn paths_need_not_be_utf_8(opened: &OpenDevice) {
    use std::os::unix::ffi::OsStrExt;

    let folder = TempDir::new();
    let path = folder.join("").join(OsStr::from_bytes(b"caf\xe9.toml"));
    let text = config_text(opened, &folder, &["training.steps = 1"]);
    std::fs::write(&path, text).unwrap();
    let output = zoo(&["train", "--plain"]).arg(&path).output().unwrap();
    assert_success(&output);
    let run = folder.join("runs/small");
    let about = std::fs::read_to_string(run.join("run.json")).unwrap();
    has(&about, "caf\u{fffd}.toml");
    let to = folder.join("").join(OsStr::from_bytes(b"\xff.html"));
    let run = run.to_str().unwrap();
    let mut attend = zoo(&["attend", run, "--text", "a b", "--to"]);
    assert_success(&attend.arg(&to).output().unwrap());
    assert!(to.is_file());
    // Arguments other than paths must be UTF-8.
    for args in [
        &["train", "small.toml", "--set"][..],
        &["attend", run, "--text"],
        &["translate", run, "--checkpoint"],
        &[],
    ] {
        let output = zoo(args).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
        let message = output_text(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        lacks(&message, "panicked");
    }
}
