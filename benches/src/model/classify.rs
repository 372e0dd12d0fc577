//! An encoder classifier: waves for positions, norms before each part, the mean of all places.
//! Nothing is forgotten.

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor};
use zoo_bench_core::case::Pass;
use zoo_bench_core::model::{Setup, Shape};
use zoo_bench_core::record::Counted;
use zoo_models::{Classifier, ClassifierConfig, Tokens};
use zoo_spec::Mechanism;

use super::Specimen;
use super::batch::{classes, loss, rows};

/// Texts and their classes.
pub(super) struct Labelled {
    setup: Setup,
    tokens: Tokens,
    labels: Tokens,
}

impl Specimen for Labelled {
    type Model = Classifier;

    fn new(setup: &Setup, attention: Mechanism, device: &Device) -> Result<(Classifier, Self)> {
        let Shape::Layers {
            d_model,
            heads,
            d_hidden,
            layers,
            classes: count,
        } = setup.shape
        else {
            bail!("{} has no layers", setup.name())
        };
        let model = ClassifierConfig::new(setup.vocabulary, count, d_model, heads, layers)
            .with_d_feed_forward(Some(d_hidden))
            .with_mechanism(attention.into())
            .with_dropout(0.0)
            .try_init(device)?;
        let drawn = rows([setup.batch, setup.n], setup.vocabulary, 1);
        let specimen = Self {
            setup: setup.clone(),
            tokens: Tokens::new(&drawn, model.limits(), device)?,
            labels: classes(setup.batch, count, device)?,
        };
        Ok((model, specimen))
    }

    fn counted(&self, model: &Classifier, pass: Pass) -> Counted {
        let forward = model.flops(self.setup.batch, self.setup.n);
        Counted {
            parameters: model.parameters() as u64,
            work: match pass {
                Pass::Train => 3.0 * forward,
                Pass::Forward | Pass::Decode | Pass::Generate => forward,
            },
        }
    }

    fn logits(&self, model: &Classifier) -> Tensor<3> {
        let said = model.forward(&self.tokens);
        let [batch, classes] = said.dims();
        said.reshape([batch, 1, classes])
    }

    fn loss(&self, logits: Tensor<3>) -> Tensor<1> {
        loss(logits, &self.labels)
    }
}
