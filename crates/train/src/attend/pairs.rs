//! Where models that make one text of another look.

use zoo_data::{PairIds, PairTokenizers};
use zoo_models::{Seq2Seq, Tokens, Transformer};
use zoo_pictures::{Alignment, Part};

use super::heads::{maps, matrix, written};
use super::{Seen, not_empty};
use crate::write::generate_config;
use crate::{TrainError, Trained};

/// Encoder, decoder and what lies between.
pub(super) fn transformer(
    trained: &Trained,
    model: &Transformer,
    text: &str,
    target: Option<&str>,
) -> Result<Seen, TrainError> {
    let (pair, tokenizers) = pair(trained, text, target)?;
    let device = &trained.opened.device;
    let input = pair.decoder_input();
    let source = Tokens::new(&[&pair.source], model.source_limits(), device);
    let source = source.map_err(TrainError::model("--text"))?;
    let decoded = Tokens::new(&[&input], model.target_limits(), device);
    let decoded = decoded.map_err(TrainError::model("--target"))?;
    let look = model.look(&source, &decoded);
    let sources = written(tokenizers.source(), &pair.source);
    let inputs = written(tokenizers.target(), &input);
    let outputs = written(tokenizers.target(), &pair.decoder_output());
    Ok(Seen {
        notes: vec![said(&pair, tokenizers, text, target)?],
        parts: vec![
            maps("Encoder", &sources, &sources, look.encoder)?,
            maps("Decoder", &inputs, &inputs, look.decoder)?,
            // What is read at a place is what the next token is written by.
            maps(
                "Cross-attention, when a token is written",
                &outputs,
                &sources,
                look.cross,
            )?,
        ],
    })
}

/// The alignment.
pub(super) fn seq2seq(
    trained: &Trained,
    model: &Seq2Seq,
    text: &str,
    target: Option<&str>,
) -> Result<Seen, TrainError> {
    let (pair, tokenizers) = pair(trained, text, target)?;
    let device = &trained.opened.device;
    let source = Tokens::new(&[&pair.source], model.source_limits(), device);
    let source = source.map_err(TrainError::model("--text"))?;
    let input = Tokens::new(&[pair.decoder_input()], model.target_limits(), device);
    let input = input.map_err(TrainError::model("--target"))?;
    // Every token is the target's: nothing is drawn.
    let weights = model.forward(&source, &input, 1.0, 0).alignment;
    let alignment = Alignment::new(
        "Alignment",
        written(tokenizers.source(), &pair.source),
        written(tokenizers.target(), &pair.decoder_output()),
        matrix(weights)?,
    )?;
    Ok(Seen {
        notes: vec![said(&pair, tokenizers, text, target)?],
        parts: vec![Part::Alignment(alignment)],
    })
}

/// The source, and the target that is given or that the model writes.
fn pair<'a>(
    trained: &'a Trained,
    text: &str,
    target: Option<&str>,
) -> Result<(PairIds, &'a PairTokenizers), TrainError> {
    let (model, tokenizers, limits) = trained.translator()?;
    let source = tokenizers.source().encode(text)?;
    not_empty("--text", &source)?;
    limits
        .check(0, &source)
        .map_err(TrainError::model("--text"))?;
    let target = match target {
        Some(target) => tokenizers.target().encode(target)?,
        None => {
            let config = generate_config(&trained.config);
            let written = model
                .translate(&[&source], &config, &trained.opened.device)
                .map_err(TrainError::model("decoding"))?;
            let best = written.into_iter().flatten().next();
            best.map(|text| text.tokens).unwrap_or_default()
        }
    };
    Ok((PairIds { source, target }, tokenizers))
}

fn said(
    pair: &PairIds,
    tokenizers: &PairTokenizers,
    text: &str,
    given: Option<&str>,
) -> Result<String, TrainError> {
    let target = tokenizers.target().decode(&pair.target)?;
    Ok(match given {
        Some(_) => format!("{text} → {target} (given)"),
        None => format!("{text} → {target}"),
    })
}
