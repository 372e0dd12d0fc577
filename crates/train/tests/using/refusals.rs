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
    for said in [
        refused::<Translate>(&[&nowhere]),
        refused::<Eval>(&[&nowhere]),
    ] {
        has(
            &said,
            "is no folder of a run: there is no config.toml in it; `zoo train CONFIG`",
        );
    }
    let said = refused::<Inspect>(&[&nowhere]);
    ends(
        &said,
        "give the folder of a run or of a checkpoint, or a file of weights",
    );
}

fn other_kind(runs: &Runs) {
    let [pairs, text, classes] = [Kind::Transformer, Kind::Gpt, Kind::Han].map(|it| runs.word(it));
    let file = runs.written("kind.txt", "a\n").display().to_string();
    let said = refused::<Translate>(&[&text, "--file", &file]);
    ends(
        &said,
        "is a gpt, which cannot translate; `zoo generate` goes on with a text by it",
    );
    let said = refused::<Classify>(&[&pairs, "--file", &file]);
    has(
        &said,
        "is a transformer, which cannot classify; `zoo translate`",
    );
    let said = refused::<Generate>(&[&classes]);
    has(&said, "is a han, which cannot generate; `zoo classify`");
    let hypotheses = runs.file("none.txt").display().to_string();
    let said = refused::<Eval>(&[&classes, "--hypotheses", &hypotheses]);
    has(&said, "a han writes no text");
}

fn no_checkpoint(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let said = refused::<Translate>(&[&run, "--checkpoint", "3"]);
    ends(
        &said,
        "has no checkpoint of step 3; it has those of 2, 4, 6",
    );
}

fn nothing_to_read(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let blank = runs.written("blank.txt", "\n").display().to_string();
    let said = refused::<Translate>(&[&run, "--file", &blank]);
    ends(&said, "blank.txt has no examples");
    let missing = runs.file("missing.txt").display().to_string();
    let said = refused::<Translate>(&[&run, "--file", &missing]);
    has(&said, "missing.txt");
    let said = refused::<Attend>(&[&run, "--text", " "]);
    assert_eq!(said, "there is nothing to look at: --text has no tokens");
}
