//! Errors of commands on trained runs.

use libtest_mimic::Trial;
use zoo_train::cli::attend::Attend;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::translate::Translate;

use crate::runs::{Kind, Runs, run_err};
use crate::shared::{ends, has};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("refusals::missing_run", no_run),
        runs.trial("refusals::wrong_model_kind", other_kind),
        runs.trial("refusals::missing_checkpoint", no_checkpoint),
        runs.trial("refusals::empty_input", empty_input),
    ]
}

fn no_run(runs: &Runs) {
    let nowhere = runs.file("nowhere").display().to_string();
    let nowhere = &[nowhere.as_str()];
    let expected = "(no config.toml)\n  help: `zoo train CONFIG`";
    has(&run_err::<Translate>(nowhere), expected);
    has(&run_err::<Eval>(nowhere), expected);
    let expected = "give a run folder, a checkpoint folder or a weights file";
    ends(&run_err::<Inspect>(nowhere), expected);
}

fn other_kind(runs: &Runs) {
    let file = runs.text_file("kind.txt", "a\n");
    let message = runs.run_err::<Translate>(Kind::Gpt, &["--file", &file]);
    let expected = "is a gpt, which does not support `zoo translate`\n  help: use `zoo generate`";
    ends(&message, expected);
    let message = runs.run_err::<Classify>(Kind::Transformer, &["--file", &file]);
    let expected =
        "is a transformer, which does not support `zoo classify`\n  help: use `zoo translate`";
    has(&message, expected);
    let message = runs.run_err::<Generate>(Kind::Han, &[]);
    has(
        &message,
        "is a han, which does not support `zoo generate`\n  help: use `zoo classify`",
    );
    let hypotheses = runs.file("none.txt").display().to_string();
    let message = runs.run_err::<Eval>(Kind::Han, &["--hypotheses", &hypotheses]);
    has(
        &message,
        "--hypotheses is only supported for sequence-to-sequence models; this run is a han",
    );
}

fn no_checkpoint(runs: &Runs) {
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
