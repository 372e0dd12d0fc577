//! `zoo runs` and `zoo mechanisms`.

use std::fs::File;

use serde_json::Value;
use zoo_backend::Backend;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::mechanisms::Mechanisms;
use zoo_train::cli::runs::Runs as List;

use crate::runs::*;

trials! {
    trials(Runs):
    runs_are_listed_with_their_results,
    filters_and_order,
    states_of_runs,
    damaged_runs_have_a_reason,
    folders_without_runs,
    comparison_of_runs,
    comparison_does_not_overwrite,
    mechanisms,
}

/// A folder with copies of the Transformer, as `shared/first`, and of the GPT.
fn folder(runs: &Runs, name: &str) -> String {
    let folder = runs.file(name);
    copy_folder(runs.folder(Kind::Transformer), &folder.join("shared/first"));
    copy_folder(runs.folder(Kind::Gpt), &folder.join("small"));
    folder.display().to_string()
}

fn list_json(args: &[&str]) -> Vec<Value> {
    let text = run_ok::<List>(&[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names(args: &[&str]) -> String {
    let names: Vec<String> = (list_json(args).iter())
        .map(|run| run["run"].as_str().unwrap().to_owned())
        .collect();
    names.join(" ")
}

fn edit(path: &str, change: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(path, change(&text)).unwrap();
}

fn runs_are_listed_with_their_results(runs: &Runs) {
    let folder = folder(runs, "listed");
    let text = run_ok::<List>(&[&folder]);
    for part in [
        "shared/first",
        "transformer",
        "flash",
        "exact ",
        "finished",
        "parameters",
    ] {
        has(&text, part);
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let listed = list_json(&[&folder]);
    let [run, gpt] = listed.as_slice() else {
        panic!("{listed:?}");
    };
    let output = runs.train_output(Kind::Transformer);
    let best = output.best.as_ref().unwrap();
    assert_eq!(run["run"], "shared/first");
    assert_eq!(run["mechanisms"], serde_json::json!(["flash"]));
    assert_eq!([&run["steps_done"], &run["steps"]], [6, 6]);
    assert_eq!(run["best"]["metric"], best.metric.as_str());
    // `serde_json` may be off by the last bit.
    assert!((run["best"]["value"].as_f64().unwrap() - best.value).abs() < 1e-9);
    assert_eq!(run["best"]["step"], best.step);
    assert_eq!(run["state"], "finished");
    assert!(run["seconds"].as_f64().unwrap() > 0.0);
    let per_step = run["seconds"].as_f64().unwrap() / 6.0;
    assert!((run["seconds_per_step"].as_f64().unwrap() - per_step).abs() < 1e-9);
    // Where the system counts the memory of a process.
    if runs.backend() == Backend::Flex && std::fs::write("/proc/self/clear_refs", "5").is_ok() {
        assert!(run["memory"].as_f64().unwrap() > 1e3, "{run}");
    }
    // The larger one of two processes, and a run of an earlier version.
    let log = format!("{folder}/small/metrics.jsonl");
    edit(&log, |text| {
        let lines = text
            .lines()
            .map(|line| line.replace("\"memory\"", "\"other\""));
        lines.map(|line| format!("{line}\n")).collect()
    });
    assert_eq!(list_json(&[&folder])[1]["memory"], Value::Null);
    edit(&log, |text| {
        let rows = [3e9, 2e9].map(|memory| {
            format!("{{\"part\":\"train\",\"step\":2,\"loss\":1.0,\"memory\":{memory}}}\n")
        });
        format!("{text}{}", rows.concat())
    });
    assert_eq!(list_json(&[&folder])[1]["memory"], 3e9);
    assert_eq!(gpt["model"], "gpt");
    // As many parameters as in the summary of the model.
    let summary = runs.run_ok::<Inspect>(Kind::Transformer, &[]);
    let line = summary
        .lines()
        .find(|line| line.starts_with("  parameters "));
    let digits = line.unwrap().replace(|c: char| !c.is_ascii_digit(), "");
    assert_eq!(run["parameters"].to_string(), digits);
    // The folder of a run is a list of one.
    let one = runs.arg(Kind::Gpt);
    assert_eq!(names(&[&one]), one);
}

fn filters_and_order(runs: &Runs) {
    let folder = folder(runs, "filtered");
    let gpt_log = format!("{folder}/small/metrics.jsonl");
    let slow = "{\"part\":\"train\",\"step\":2,\"loss\":1.0,\"seconds\":9999.0}\n";
    edit(&gpt_log, |text| format!("{text}{slow}"));
    let both = "shared/first small";
    let reversed = "small shared/first";
    for (args, expected) in [
        ("", both),
        ("--model gpt", "small"),
        ("--mechanism flash", both),
        ("--mechanism linear", ""),
        ("--metric bleu", "shared/first"),
        ("--metric loss", both),
        ("--sort time", both),
        ("--sort steps", reversed),
        // The metric of the GPT is the loss, which comes first.
        ("--sort metric", reversed),
    ] {
        let args: Vec<&str> = args.split_whitespace().collect();
        let listed = names(&[&[folder.as_str()], &args[..]].concat());
        assert_eq!(listed, expected, "{args:?}");
    }
    // The best validation by another metric than the one that selects checkpoints.
    let log = format!("{folder}/shared/first/metrics.jsonl");
    let bleu = |bleu, step| format!("{{\"part\":\"valid\",\"step\":{step},\"bleu\":{bleu}}}\n");
    edit(&log, |_| [bleu(30, 2), bleu(70, 4), bleu(50, 6)].concat());
    let best = &list_json(&[&folder, "--metric", "bleu"])[0]["best"];
    assert_eq!(
        (best["value"].as_f64(), best["step"].as_u64()),
        (Some(70.0), Some(4))
    );
    let text = run_ok::<List>(&[&folder, "--model", "han"]);
    starts(&text, "no matching runs in ");
}

fn states_of_runs(runs: &Runs) {
    let folder = folder(runs, "states");
    let state = || {
        list_json(&[&folder])[0]["state"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let run = format!("{folder}/shared/first");
    assert_eq!(state(), "finished");
    let lock = File::options()
        .write(true)
        .open(format!("{run}/lock"))
        .unwrap();
    lock.lock().unwrap();
    assert_eq!(state(), "running");
    drop(lock);
    // It was killed in the test after the last step.
    let metadata = format!("{run}/run.json");
    let edit_metadata = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        edit(&metadata, |text| {
            let mut metadata: Value = serde_json::from_str(text).unwrap();
            change(metadata.as_object_mut().unwrap());
            metadata.to_string()
        });
    };
    edit_metadata(&|metadata| {
        let finished = metadata.insert("finished".to_owned(), Value::Null);
        assert!(finished.unwrap().is_string());
    });
    assert_eq!(state(), "interrupted");
    // Runs of earlier versions do not say whether they are finished: without the test at the end,
    // and with more steps to do.
    edit_metadata(&|metadata| drop(metadata.remove("finished")));
    edit(&format!("{run}/metrics.jsonl"), |text| {
        let lines = text.lines().filter(|line| !line.contains("\"test\""));
        lines.map(|line| format!("{line}\n")).collect()
    });
    assert_eq!(state(), "finished");
    edit_metadata(&|metadata| drop(metadata.insert("steps".to_owned(), 8.into())));
    assert_eq!(state(), "interrupted");
    has(&run_ok::<List>(&[&folder]), "6/8");
    // Early stopping.
    let checkpoint = format!("{run}/checkpoints/step-00000006/state.json");
    edit(&checkpoint, |text| {
        let mut state: Value = serde_json::from_str(text).unwrap();
        state["waited"] = 5.into();
        state.to_string()
    });
    edit(&format!("{run}/config.toml"), |text| {
        text.replace("[validation]\n", "[validation]\npatience = 5\n")
    });
    assert_eq!(state(), "finished");
}

fn damaged_runs_have_a_reason(runs: &Runs) {
    for (file, content, expected) in [
        ("config.toml", "[model]\nkind = \"gtp\"", "did you mean"),
        ("run.json", "{", "run.json cannot be read: EOF"),
        ("best.json", "[]", "best.json cannot be read: "),
        (
            "checkpoints/step-00000006/state.json",
            "",
            "state.json cannot be read: EOF",
        ),
    ] {
        let folder = folder(runs, &format!("damaged-{}", file.replace('/', "-")));
        edit(&format!("{folder}/shared/first/{file}"), |_| {
            content.to_owned()
        });
        let text = run_ok::<List>(&[&folder]);
        // Lines may be wrapped within a path.
        has(&text, "shared/first cannot be read:");
        has(&text, "small");
        // Filters do not hide it.
        let listed = list_json(&[&folder, "--model", "gpt"]);
        let [gpt, damaged] = listed.as_slice() else {
            panic!("{listed:?}");
        };
        assert_eq!(
            (&gpt["run"], &damaged["run"]),
            (&"small".into(), &"shared/first".into())
        );
        has(damaged["error"].as_str().unwrap(), expected);
    }
}

fn folders_without_runs(runs: &Runs) {
    let missing = runs.file("no-folder").display().to_string();
    has(
        &run_err::<List>(&[&missing]),
        "no-folder\n  help: `zoo runs FOLDER`",
    );
    runs.write("empty/notes/a.txt", "");
    let empty = runs.file("empty").display().to_string();
    starts(&run_ok::<List>(&[&empty]), "no runs in ");
    assert_eq!(run_ok::<List>(&[&empty, "--json"]), "[]\n");
}

fn comparison_of_runs(runs: &Runs) {
    let folder = folder(runs, "compared");
    let other = format!("{folder}/a&b");
    copy_folder(runs.folder(Kind::Transformer), other.as_ref());
    edit(&format!("{other}/config.toml"), |text| {
        text.replace("n_heads = 2", "n_heads = 4")
    });
    let page = runs.file("compared.html").display().to_string();
    let gpt = runs.arg(Kind::Gpt);
    // Names in the folder, and a path.
    let args = [
        folder.as_str(),
        "--compare",
        "shared/first",
        "a&b",
        &gpt,
        "--to",
        &page,
    ];
    assert_eq!(run_ok::<List>(&args), format!("{page}\n"));
    let html = std::fs::read_to_string(&page).unwrap();
    for part in [
        "Comparison of 3 runs",
        "default-src 'none'",
        "aria-label=\"training loss\"",
        "aria-label=\"validation loss\"",
        "aria-label=\"validation exact\"",
        "<th>test exact</th>",
        "<th>time per step</th><th>memory</th>",
        // A label for each run that has the metric.
        "zoo-label",
        "<td>a&amp;b</td>",
        "<tr><td>model.n_heads</td><td>2</td><td>4</td><td>2</td></tr>",
        "<tr><td>model.context</td><td>-</td><td>-</td><td>16</td></tr>",
    ] {
        has(&html, part);
    }
    // Runs with the same metric are compared by quality and cost.
    let (costs, curves) = html.split_once("<h2>Curves</h2>").unwrap();
    has(costs, "<h2>Quality against cost</h2>");
    has(
        costs,
        "aria-label=\"best exact against training time in seconds (higher is better)\"",
    );
    for (run, is_compared) in [("shared/first", true), ("a&amp;b", true), ("Gpt", false)] {
        let legend = format!("{run}, exact ");
        assert_eq!(costs.contains(&legend), is_compared, "{costs}");
    }
    // All curves are in one plot.
    let svg = curves.split("<svg").nth(1).unwrap();
    for run in ["shared/first", "a&amp;b", "Gpt"] {
        has(svg, format!("{run}, lowest "));
    }
    for part in ["model.d_model", "run.name", "<script", "src="] {
        lacks(&html, part);
    }
}

fn comparison_does_not_overwrite(runs: &Runs) {
    let folder = folder(runs, "kept");
    let page = runs.text_file("kept.html", "mine");
    let args = [
        folder.as_str(),
        "--compare",
        "shared/first",
        "small",
        "--to",
        &page,
    ];
    let message = run_err::<List>(&args);
    has(&message, "kept.html already exists\n  help: --overwrite");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "mine");
    run_ok::<List>(&[&args[..], &["--overwrite"]].concat());
    starts(&std::fs::read_to_string(&page).unwrap(), "<!doctype html>");
    let message = run_err::<List>(&[&folder, "--compare", "smal", "small"]);
    starts(
        &message,
        "no run at smal: did you mean small?\n  help: `zoo runs ",
    );
}

fn mechanisms(_: &Runs) {
    let text = run_ok::<Mechanisms>(&[]);
    for part in [
        "flash",
        "sliding-window",
        "retention",
        "different",
        "approximate",
    ] {
        has(&text, part);
    }
    let text = run_ok::<Mechanisms>(&["local"]);
    starts(&text, "sliding-window (alias local)");
    has(&text, "window = 256");
    let message = run_err::<Mechanisms>(&["slidingwindow"]);
    let expected = "unknown mechanism \"slidingwindow\": did you mean sliding-window?\n  help: ";
    starts(&message, expected);
}
