//! What cannot be done, and what is said then.

use libtest_mimic::Trial;
use zoo_train::cli::attend::Attend;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::translate::Translate;

use crate::runs::{Kind, Runs, refused};
use crate::shared::{ends, has};

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    vec![
        runs.trial("refusals::there_is_no_run", no_run),
        runs.trial("refusals::it_is_another_kind_of_model", other_kind),
        runs.trial("refusals::there_is_no_such_checkpoint", no_checkpoint),
        runs.trial("refusals::there_is_nothing_to_read", nothing_to_read),
    ]
}

fn no_run(runs: &Runs) {
    let nowhere = runs.file("nowhere").display().to_string();
    let nowhere = &[nowhere.as_str()];
    let expected = "is no folder of a run: there is no config.toml in it; `zoo train CONFIG`";
    has(&refused::<Translate>(nowhere), expected);
    has(&refused::<Eval>(nowhere), expected);
    let expected = "give the folder of a run or of a checkpoint, or a file of weights";
    ends(&refused::<Inspect>(nowhere), expected);
}

fn other_kind(runs: &Runs) {
    let file = runs.given("kind.txt", "a\n");
    let said = runs.refused::<Translate>(Kind::Gpt, &["--file", &file]);
    let expected = "is a gpt, which cannot translate; `zoo generate` goes on with a text by it";
    ends(&said, expected);
    let said = runs.refused::<Classify>(Kind::Transformer, &["--file", &file]);
    let expected = "is a transformer, which cannot classify; `zoo translate`";
    has(&said, expected);
    let said = runs.refused::<Generate>(Kind::Han, &[]);
    has(&said, "is a han, which cannot generate; `zoo classify`");
    let hypotheses = runs.file("none.txt").display().to_string();
    let said = runs.refused::<Eval>(Kind::Han, &["--hypotheses", &hypotheses]);
    has(&said, "a han writes no text");
}

fn no_checkpoint(runs: &Runs) {
    let said = runs.refused::<Translate>(Kind::Transformer, &["--checkpoint", "3"]);
    ends(
        &said,
        "has no checkpoint of step 3; it has those of 2, 4, 6",
    );
}

fn nothing_to_read(runs: &Runs) {
    let blank = runs.given("blank.txt", "\n");
    let said = runs.refused::<Translate>(Kind::Transformer, &["--file", &blank]);
    ends(&said, "blank.txt has no examples");
    let missing = runs.file("missing.txt").display().to_string();
    let said = runs.refused::<Translate>(Kind::Transformer, &["--file", &missing]);
    has(&said, "missing.txt");
    let said = runs.refused::<Attend>(Kind::Transformer, &["--text", " "]);
    assert_eq!(said, "there is nothing to look at: --text has no tokens");
}
