//! `zoo train --sweep`: every mechanism that a model supports, and several configs.

use zoo_backend::OpenDevice;

use crate::support::*;
use crate::sweep::{config_file, runs, sweep};

trials! {
    trials(OpenDevice):
    all_mechanisms_that_the_model_supports,
    several_configs_end_with_one_table,
}

fn all_mechanisms_that_the_model_supports(opened: &OpenDevice) {
    let folder = config_file(opened);
    let arguments = [
        "--sweep",
        "model.cross_attention=all,{ kind = \"local-p\", window = 2 }",
        "--steps",
        "1",
    ];
    let output = sweep(&folder, &arguments);
    assert_success(&output);
    let trained = runs(&folder.join("runs/small-sweep"));
    for name in ["flash", "additive", "kind-local-p-window-2"] {
        let name = format!("cross_attention={name}");
        assert!(trained.contains(&name), "{name}: {trained:?}");
    }
    for name in ["local-p", "retention", "sliding-window", "linear"] {
        let name = format!("cross_attention={name}");
        assert!(!trained.contains(&name), "{name}: {trained:?}");
    }
    let text = output_text(&output).replace("\n  ", " ");
    let reason =
        "model.cross_attention: sliding-window cannot be used for cross-attention: its pattern";
    has(
        &text,
        format!("skipped: cross_attention=sliding-window: {reason}"),
    );
    let page = folder.join("runs/small-sweep/sweep.html");
    let page = std::fs::read_to_string(page).unwrap();
    has(
        &page,
        format!("<p>skipped: cross_attention=sliding-window: {reason}"),
    );
    // Every mechanism is trained or skipped, and local-p has the listed keys.
    let skipped = text.matches("skipped: ").count();
    assert_eq!(trained.len() + skipped, zoo_spec::Mechanism::ALL.len());
    // The rest is skipped, or finished.
    let output = sweep(
        &folder,
        &[&arguments[..], &["--resume", "--print-commands"]].concat(),
    );
    assert_success(&output);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    has(
        &String::from_utf8(output.stderr).unwrap(),
        "skipped: cross_attention=sliding-window",
    );
    // An error that all mechanisms have, and one of a listed mechanism.
    for (arguments, expected) in [
        (
            &[
                "--sweep",
                "model.encoder_attention=all",
                "--set",
                "model.layers=0",
            ][..],
            "model.layers must be",
        ),
        (
            &["--sweep", "model.encoder_attention=all,retention"],
            "retention cannot be used",
        ),
        (&["--sweep", "model.layers=all"], "--sweep model.layers=all"),
    ] {
        let folder = config_file(opened);
        has(&failure_text(&sweep(&folder, arguments)), expected);
        assert!(!folder.join("runs").exists(), "{arguments:?}");
    }
}

fn several_configs_end_with_one_table(opened: &OpenDevice) {
    let folder = config_file(opened);
    let text = std::fs::read_to_string(folder.join("small.toml")).unwrap();
    let other = text.replace("name = \"small\"", "name = \"other\"");
    let other = folder.write("other.toml", other.replace("\"copy\"", "\"reverse\""));
    let other = other.to_str().unwrap();
    let arguments = [other, "--sweep", "model.layers=1,2"];
    let output = sweep(&folder, &arguments);
    assert_success(&output);
    for run in ["small-sweep", "other-sweep"] {
        assert_eq!(
            runs(&folder.join("runs").join(run)),
            ["layers=1", "layers=2"]
        );
    }
    let text = output_text(&output);
    let (_, table) = text
        .split_once("\n| variant | small | time per step | memory | other |")
        .unwrap();
    for row in ["\n| layers=1 | exact ", "\n| layers=2 | exact "] {
        assert_eq!(table.matches(row).count(), 1, "{table}");
    }
    lacks(table, "(unfinished)");
    // All of it is resumed: what is missing is trained.
    std::fs::remove_dir_all(folder.join("runs/other-sweep/layers=2")).unwrap();
    let output = sweep(&folder, &[&arguments[..], &["--resume"]].concat());
    assert_success(&output);
    assert_eq!(output_text(&output).matches(" (finished)").count(), 3);
    // Errors come before anything runs.
    let small = folder.join("small.toml");
    for (arguments, expected) in [
        (
            &[small.to_str().unwrap(), "--sweep", "model.layers=3"][..],
            "as those of another config",
        ),
        (&[other], "--sweep"),
        (
            &[other, "--sweep", "model.layers=3", "--name", "x"],
            "cannot be used with",
        ),
    ] {
        has(&failure_text(&sweep(&folder, arguments)), expected);
        assert!(!folder.join("runs/small-sweep/layers=3").exists());
    }
}
