//! Where a model of running text looks.

use zoo_models::{Gpt, Tokens};

use super::heads::{maps, written};
use super::{Seen, not_empty};
use crate::{Tokenizers, TrainError, Trained};

pub(super) fn gpt(trained: &Trained, model: &Gpt, text: &str) -> Result<Seen, TrainError> {
    let Tokenizers::Plain(tokenizer) = &trained.tokenizers else {
        unreachable!("running text is made by one tokenizer");
    };
    let ids = tokenizer.encode(text)?;
    not_empty("--text", &ids)?;
    let tokens = Tokens::new(&[&ids], model.limits(), &trained.opened.device);
    let tokens = tokens.map_err(TrainError::model("--text"))?;
    let labels = written(tokenizer, &ids);
    Ok(Seen {
        notes: vec![text.to_owned()],
        parts: vec![maps(
            "Self-attention",
            &labels,
            &labels,
            model.look(&tokens),
        )?],
    })
}
