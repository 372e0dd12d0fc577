//! Errors of commands on trained runs.

use zoo_train::cli::attend::Attend;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::translate::Translate;

use crate::runs::*;

trials! {
    trials(Runs):
    missing_run,
    misspelt_paths_have_suggestions,
    wrong_model_kind,
    missing_checkpoint,
    empty_input,
}

fn missing_run(runs: &Runs) {
    let nowhere = runs.file("nowhere").display().to_string();
    let nowhere = &[nowhere.as_str()];
    let expected = "(no config.toml)\n  help: `zoo train CONFIG`";
    has(&run_err::<Translate>(nowhere), expected);
    has(&run_err::<Eval>(nowhere), expected);
    let expected = "give a run folder, a checkpoint folder or a weights file";
    ends(&run_err::<Inspect>(nowhere), expected);
}

fn misspelt_paths_have_suggestions(runs: &Runs) {
    let run = runs.folder(Kind::Transformer);
    let misspelt = run.with_file_name("Transfomer").display().to_string();
    let expected = format!("\n  help: did you mean {}?", run.display());
    let message = run_err::<Translate>(&[&misspelt]);
    ends(&message, format!("(no config.toml){expected}"));
    ends(&run_err::<Inspect>(&[&misspelt]), expected);
    let file = runs.text_file("misspelt.txt", "a\n");
    let expected = format!("\n  help: did you mean {file}?");
    let misspelt = file.replace("misspelt.txt", "mispelt.txt");
    let message = runs.run_err::<Translate>(Kind::Transformer, &["--file", &misspelt]);
    ends(&message, &expected);
    let args = ["--source", &file, "--target", &misspelt];
    ends(&runs.run_err::<Eval>(Kind::Transformer, &args), &expected);
}

fn wrong_model_kind(runs: &Runs) {
    let file = runs.text_file("kind.txt", "a\n");
    let message = runs.run_err::<Translate>(Kind::Gpt, &["--file", &file]);
    let expected = "is a gpt, which does not support `zoo translate`\n  help: use `zoo generate`";
    ends(&message, expected);
    let message = runs.run_err::<Classify>(Kind::Transformer, &["--file", &file]);
    let expected =
        "is a transformer, which does not support `zoo classify`\n  help: use `zoo translate`";
    has(&message, expected);
    let message = runs.run_err::<Generate>(Kind::Han, &[]);
    let expected = "is a han, which does not support `zoo generate`\n  help: use `zoo classify`";
    has(&message, expected);
    // Before the data is read.
    let none = runs.file("none.txt").display().to_string();
    let args = ["--labelled", &none, "--hypotheses", &none];
    let message = runs.run_err::<Eval>(Kind::Han, &args);
    let expected =
        "--hypotheses is only supported for sequence-to-sequence models; this run is a han";
    has(&message, expected);
}

fn missing_checkpoint(runs: &Runs) {
    let message = runs.run_err::<Translate>(Kind::Transformer, &["--checkpoint", "3"]);
    ends(&message, "has no checkpoint of step 3 (available: 2, 4, 6)");
}

fn empty_input(runs: &Runs) {
    let blank = runs.text_file("blank.txt", "\n");
    let message = runs.run_err::<Translate>(Kind::Transformer, &["--file", &blank]);
    ends(&message, "blank.txt has no examples");
    let missing = runs.file("missing.txt").display().to_string();
    let message = runs.run_err::<Translate>(Kind::Transformer, &["--file", &missing]);
    has(&message, "missing.txt");
    let message = runs.run_err::<Attend>(Kind::Transformer, &["--text", " "]);
    assert_eq!(message, "--text has no tokens");
}
