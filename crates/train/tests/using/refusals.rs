//! What cannot be done, and what is said then.

use libtest_mimic::Trial;
use zoo_train::cli::attend::Attend;
use zoo_train::cli::classify::Classify;
use zoo_train::cli::eval::Eval;
use zoo_train::cli::generate::Generate;
use zoo_train::cli::inspect::Inspect;
use zoo_train::cli::translate::Translate;

use crate::runs::{Kind, Runs, parsed, refused};

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
    let translate: Translate = parsed(&[&nowhere]);
    let eval: Eval = parsed(&[&nowhere]);
    let inspect: Inspect = parsed(&[&nowhere]);
    for said in [
        refused(|out| translate.run(out)),
        refused(|out| eval.run(out)),
    ] {
        assert!(
            said.contains(
                "is no folder of a run: there is no config.toml in it; `zoo train CONFIG`"
            ),
            "{said}"
        );
    }
    let said = refused(|out| inspect.run(out));
    assert!(
        said.ends_with("give the folder of a run or of a checkpoint, or a file of weights"),
        "{said}"
    );
}

fn other_kind(runs: &Runs) {
    let [pairs, text, classes] = [Kind::Transformer, Kind::Gpt, Kind::Han].map(|it| runs.word(it));
    let file = runs.written("kind.txt", "a\n").display().to_string();
    let translate: Translate = parsed(&[&text, "--file", &file]);
    let said = refused(|out| translate.run(out));
    assert!(
        said.ends_with(
            "is a gpt, which cannot translate; `zoo generate` goes on with a text by it"
        ),
        "{said}"
    );
    let classify: Classify = parsed(&[&pairs, "--file", &file]);
    let said = refused(|out| classify.run(out));
    assert!(
        said.contains("is a transformer, which cannot classify; `zoo translate`"),
        "{said}"
    );
    let generate: Generate = parsed(&[&classes]);
    let said = refused(|out| generate.run(out));
    assert!(
        said.contains("is a han, which cannot generate; `zoo classify`"),
        "{said}"
    );
    let hypotheses = runs.file("none.txt").display().to_string();
    let eval: Eval = parsed(&[&classes, "--hypotheses", &hypotheses]);
    let said = refused(|out| eval.run(out));
    assert!(said.contains("a han writes no text"), "{said}");
}

fn no_checkpoint(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let translate: Translate = parsed(&[&run, "--checkpoint", "3"]);
    let said = refused(|out| translate.run(out));
    assert!(
        said.ends_with("has no checkpoint of step 3; it has those of 2, 4, 6"),
        "{said}"
    );
}

fn nothing_to_read(runs: &Runs) {
    let run = runs.word(Kind::Transformer);
    let blank = runs.written("blank.txt", "\n").display().to_string();
    let translate: Translate = parsed(&[&run, "--file", &blank]);
    let said = refused(|out| translate.run(out));
    assert!(said.ends_with("blank.txt has no examples"), "{said}");
    let missing = runs.file("missing.txt").display().to_string();
    let translate: Translate = parsed(&[&run, "--file", &missing]);
    let said = refused(|out| translate.run(out));
    assert!(said.contains("missing.txt"), "{said}");
    let attend: Attend = parsed(&[&run, "--text", " "]);
    let said = refused(|out| attend.run(out));
    assert_eq!(said, "there is nothing to look at: --text has no tokens");
}
