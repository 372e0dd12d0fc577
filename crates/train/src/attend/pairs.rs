//! Where models that make one text of another look.

use zoo_data::{BEGIN, END, PairTokenizers};
use zoo_models::{Seq2Seq, Stop, Tokens, Transformer};
use zoo_viz::{Alignment, Part};

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
    let (read, tokenizers) = read(trained, text, target)?;
    let device = &trained.opened.device;
    let source = Tokens::new(&[&read.source], model.source_limits(), device);
    let source = source.map_err(TrainError::model("--text"))?;
    let decoded = Tokens::new(&[&read.input], model.target_limits(), device);
    let decoded = decoded.map_err(TrainError::model("--target"))?;
    let look = model.look(&source, &decoded);
    let sources = written(tokenizers.source(), &read.source);
    let inputs = written(tokenizers.target(), &read.input);
    let outputs = written(tokenizers.target(), &read.output);
    Ok(Seen {
        notes: vec![said(&read, tokenizers, text, target)?],
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
    let (read, tokenizers) = read(trained, text, target)?;
    let device = &trained.opened.device;
    let source = Tokens::new(&[&read.source], model.source_limits(), device);
    let source = source.map_err(TrainError::model("--text"))?;
    let input = Tokens::new(&[&read.input], model.target_limits(), device);
    let input = input.map_err(TrainError::model("--target"))?;
    // Every token is the target's: nothing is drawn.
    let weights = model.forward(&source, &input, 1.0, 0).alignment;
    let alignment = Alignment::new(
        "Alignment",
        written(tokenizers.source(), &read.source),
        written(tokenizers.target(), &read.output),
        matrix(weights)?,
    )?;
    Ok(Seen {
        notes: vec![said(&read, tokenizers, text, target)?],
        parts: vec![Part::Alignment(alignment)],
    })
}

/// Tokens of a text, and of what is made of it.
struct Read {
    source: Vec<u32>,
    /// What the decoder is given.
    input: Vec<u32>,
    /// What it says, place by place.
    output: Vec<u32>,
}

/// The source, and the target that is given or that the model writes.
fn read<'a>(
    trained: &'a Trained,
    text: &str,
    target: Option<&str>,
) -> Result<(Read, &'a PairTokenizers), TrainError> {
    let (model, tokenizers, limits) = trained.translator()?;
    let source = tokenizers.source().encode(text)?;
    not_empty("--text", &source)?;
    limits
        .check(0, &source)
        .map_err(TrainError::model("--text"))?;
    let (mut output, has_end) = match target {
        Some(target) => (tokenizers.target().encode(target)?, true),
        None => {
            let config = generate_config(&trained.config);
            let written = model
                .translate(&[&source], &config, &trained.opened.device)
                .map_err(TrainError::model("decoding"))?;
            let best = written.into_iter().flatten().next();
            best.map_or((vec![], true), |text| (text.tokens, text.stop == Stop::End))
        }
    };
    // A text that came to no end by itself may have filled all places there are.
    if has_end || output.is_empty() {
        output.push(END);
    }
    let input = [&[BEGIN], &output[..output.len() - 1]].concat();
    let read = Read {
        source,
        input,
        output,
    };
    Ok((read, tokenizers))
}

fn said(
    read: &Read,
    tokenizers: &PairTokenizers,
    text: &str,
    given: Option<&str>,
) -> Result<String, TrainError> {
    let target = tokenizers.target().decode(&read.output)?;
    Ok(match given {
        Some(_) => format!("{text} → {target} (given)"),
        None => format!("{text} → {target}"),
    })
}
