//! A hierarchical attention network, of the paper's layers. Documents have no padding, and
//! nothing is forgotten.

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor};
use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Setup, Shape};
use zoo_bench_core::record::Counted;
use zoo_models::{Documents, Han, HanConfig, Tokens};
use zoo_spec::Mechanism;

use super::Specimen;
use super::batch::{classes, loss, rows};

/// Documents and their classes.
pub(super) struct Judged {
    /// Documents, sentences of each, words of each of these.
    sizes: [usize; 3],
    documents: Documents,
    labels: Tokens,
}

impl Specimen for Judged {
    type Model = Han;

    fn new(setup: &Setup, _: Mechanism, device: &Device) -> Result<(Han, Self)> {
        let Shape::Documents {
            embedding,
            hidden,
            attention,
            sentences,
            classes: count,
        } = setup.shape
        else {
            bail!("{} has no documents", setup.name())
        };
        let model = HanConfig::new(setup.vocabulary, count)
            .with_d_embedding(embedding)
            .with_d_word(hidden)
            .with_d_sentence(hidden)
            .with_d_attention(attention)
            .try_init(device)?;
        let words = setup.n / sentences;
        let drawn = rows([setup.batch * sentences, words], setup.vocabulary, 1);
        let documents: Vec<&[Vec<u32>]> = drawn.chunks(sentences).collect();
        let specimen = Self {
            sizes: [setup.batch, sentences, words],
            documents: Documents::new(&documents, model.limits(), device)?,
            labels: classes(setup.batch, count, device)?,
        };
        Ok((model, specimen))
    }

    fn counted(&self, model: &Han, pass: Pass) -> Counted {
        let [documents, sentences, words] = self.sizes;
        let forward = model.flops(documents, sentences, words);
        Counted {
            parameters: model.parameters() as u64,
            work: match pass {
                Pass::Train => 3.0 * forward,
                Pass::Forward | Pass::Decode | Pass::Generate => forward,
            },
        }
    }

    fn logits(&self, model: &Han) -> Tensor<3> {
        let said = model.forward(&self.documents).logits;
        let [batch, classes] = said.dims();
        said.reshape([batch, 1, classes])
    }

    fn loss(&self, logits: Tensor<3>) -> Tensor<1> {
        loss(logits, &self.labels)
    }
}
