//! A recurrent encoder and decoder with attention, fed with what the last place came to.
//! Every token is the target's; nothing is forgotten.

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor};
use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Setup, Shape};
use zoo_bench_core::record::Counted;
use zoo_models::generate::{GenerateConfig, generate};
use zoo_models::{AlignmentConfig, Seq2Seq, Seq2SeqConfig, Tokens};
use zoo_spec::{LocalM, LocalP};
use zoo_spec::{Mechanism, MechanismConfig};

use super::Specimen;
use super::batch::{best, loss, rows, shifted, taken};

/// Sources and what they are to become.
pub(super) struct Pairs {
    setup: Setup,
    source: Tokens,
    target: Tokens,
    next: Tokens,
    /// The token that each target begins with.
    begins: Vec<Vec<u32>>,
}

impl Specimen for Pairs {
    type Model = Seq2Seq;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(Seq2Seq, Self)> {
        let Shape::Recurrent { embedding, hidden } = setup.shape else {
            bail!("{} has no recurrent layers", setup.name())
        };
        let model = Seq2SeqConfig::new(setup.vocabulary, setup.vocabulary)
            .with_d_embedding(embedding)
            .with_d_hidden(hidden)
            .with_attention(alignment(attention)?)
            .with_dropout(0.0)
            .try_init(device)?;
        let source = rows([setup.batch, setup.n], setup.vocabulary, 1);
        let drawn = rows([setup.batch, setup.n + 1], setup.vocabulary, 2);
        let [target, next] = shifted(&drawn);
        let specimen = Self {
            setup: setup.clone(),
            begins: target.iter().map(|row| row[..1].to_vec()).collect(),
            source: Tokens::new(&source, model.source_limits(), device)?,
            target: Tokens::new(&target, model.target_limits(), device)?,
            next: Tokens::new(&next, model.target_limits(), device)?,
        };
        Ok((model, specimen))
    }

    fn counted(&self, model: &Seq2Seq, pass: Pass) -> Counted {
        let Setup { batch, n, .. } = self.setup;
        // A target that is generated goes through the same, place by place.
        let forward = model.flops(batch, n, n);
        Counted {
            parameters: model.parameters() as u64,
            work: match pass {
                Pass::Train => 3.0 * forward,
                Pass::Forward | Pass::Decode | Pass::Generate => forward,
            },
        }
    }

    fn logits(&self, model: &Seq2Seq) -> Tensor<3> {
        model.forward(&self.source, &self.target, 1.0, 0).logits
    }

    fn loss(&self, logits: Tensor<3>) -> Tensor<1> {
        loss(logits, &self.next)
    }

    fn generate(&self, model: &Seq2Seq) -> Result<Vec<Vec<u32>>> {
        let config = GenerateConfig::default().with_max_length(self.setup.generated());
        let state = model.start(&self.source);
        Ok(best(generate(model, state, &self.begins, &config)?))
    }

    fn said_of(&self, model: &Seq2Seq, texts: &[Vec<u32>]) -> Result<Tensor<3>> {
        let whole = taken(&self.begins, texts);
        let device = self.source.ids().device();
        let target = Tokens::new(&whole, model.target_limits(), &device)?;
        Ok(model.forward(&self.source, &target, 1.0, 0).logits)
    }
}

/// What the model calls a mechanism.
fn alignment(attention: Mechanism) -> Result<AlignmentConfig> {
    Ok(match attention.into() {
        MechanismConfig::Additive(_) => AlignmentConfig::Additive,
        MechanismConfig::Dot(_) => AlignmentConfig::Dot,
        MechanismConfig::Multiplicative(_) => AlignmentConfig::General,
        MechanismConfig::LocalM(LocalM { window }) => AlignmentConfig::LocalM { window },
        MechanismConfig::LocalP(LocalP { window }) => AlignmentConfig::LocalP { window },
        _ => bail!("a seq2seq model has no {attention} attention"),
    })
}
