//! Autotuning of the tile layout, because the fastest one depends on the GPU and on the sizes.
//!
//! It uses CubeCL's autotuner, like Burn's own kernels: the first call with a new key tries every
//! candidate that fits, and the fastest is cached, also on disk, until the candidates change
//! ([`VERSION`] must change with the kernels). Not tuned are calls with few queries, which are fast
//! anyway, software adapters, where one layout is best and each trial takes seconds, and calls with
//! `ZOO_CUBE_LAYOUT` set.

use std::fmt;

use burn_cubecl::CubeTuneId;
use burn_cubecl::tensor::CubeTensor;
use cubecl::tune::{AutotuneKey, AutotuneOutput, LocalTuner, Tunable, TunableSet, local_tuner};
use serde::{Deserialize, Serialize};

use super::device_plan::{PlanKey, RowAxis};
use super::launch::{BackwardInputs, KernelInputs, launch};
use super::layout::{KernelLayout, Layout};
use super::program::KernelProgram;
use super::support::{Pass, candidates, env_layout, is_software, is_supported};
use crate::flash::call::TiledSettings;

/// Part of the cache key: results of changed kernels are measured again.
const VERSION: u32 = 3;

const MAX_UNTUNED_QUERIES: usize = 64;

/// From this many queries, keys or heads on, a GPU is fully occupied; larger sizes have the same
/// key.
const MAX_SEQ: usize = 8192;
const MAX_HEADS: usize = 256;

/// The properties of a call that determine the fastest layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct TuneKey {
    /// Which of the candidates support the call. The fastest layout of a key must support all its
    /// calls, also on the GPU that is present when the cache is read again.
    supported: Vec<bool>,
    /// Bytes per element.
    bytes: usize,
    /// Heads of all examples, rounded up to a power of two.
    heads: usize,
    /// Query heads that share a key and value head.
    group: usize,
    /// Rounded up to a power of two.
    queries: usize,
    /// Mean number of keys per query in tiles that are computed, rounded up to a power of two.
    keys: usize,
    d_head: usize,
    d_value: usize,
    /// Whether the call has no options besides the scale.
    is_plain: bool,
    program: Option<KernelProgram>,
}

impl fmt::Display for TuneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl AutotuneKey for TuneKey {}

impl TuneKey {
    fn new(inputs: &KernelInputs, settings: &TiledSettings, pass: Pass) -> Self {
        let shape = &settings.shape;
        let has_options = settings.softcap.is_some()
            || settings.alibi.is_some()
            || settings.dropout.is_some()
            || inputs.mask.is_some()
            || inputs.bias.is_some();
        let (client, dtype) = (&inputs.query.client, inputs.query.dtype);
        let layouts = candidates(pass);
        let plan = PlanKey::new(settings, layouts[0].tile(), RowAxis::Queries).device_plan(shape);
        let keys = plan.num_tiles() * layouts[0].tile_n() / plan.num_rows();
        let round = |size: usize, max: usize| size.next_power_of_two().min(max);
        Self {
            supported: layouts
                .into_iter()
                .map(|layout| is_supported(client, dtype, settings, layout, pass))
                .collect(),
            bytes: dtype.size(),
            heads: round(shape.batch * shape.heads, MAX_HEADS),
            group: shape.group(),
            queries: round(shape.seq_q, MAX_SEQ),
            keys: round(keys, MAX_SEQ),
            d_head: shape.d_head,
            d_value: shape.d_value,
            is_plain: !has_options,
            program: KernelProgram::new(settings),
        }
    }
}

struct Outputs(Vec<CubeTensor>);

impl AutotuneOutput for Outputs {}

/// Whether a call is tuned. If its default layout is no candidate, the candidates do not fit.
fn is_tuned(inputs: &KernelInputs, settings: &TiledSettings, default: Layout, pass: Pass) -> bool {
    settings.shape.seq_q > MAX_UNTUNED_QUERIES
        && !is_software(inputs.query.client.properties())
        && env_layout(pass).is_none()
        && candidates(pass).contains(&default)
}

/// [`launch`] with the fastest layout, or with the default one if the call is not tuned.
pub(super) fn launch_tuned(
    inputs: KernelInputs,
    saved: Option<BackwardInputs>,
    settings: &TiledSettings,
    default: KernelLayout,
) -> Vec<CubeTensor> {
    static FORWARD: LocalTuner<TuneKey, CubeTuneId> = local_tuner!("forward");
    static BACKWARD: LocalTuner<TuneKey, CubeTuneId> = local_tuner!("backward");
    let (pass, tuner) = match saved {
        None => (Pass::Forward, &FORWARD),
        Some(_) => (Pass::Backward, &BACKWARD),
    };
    match default {
        KernelLayout::Units(layout) if is_tuned(&inputs, settings, layout, pass) => {}
        _ => return launch(inputs, saved, settings, default),
    }
    let client = inputs.query.client.clone();
    let id = CubeTuneId::new(&client, &inputs.query.device);
    let set = tuner.init(&id, move || {
        type Inputs = (KernelInputs, Option<BackwardInputs>, TiledSettings);
        let key = move |(inputs, _, settings): &Inputs| TuneKey::new(inputs, settings, pass);
        let mut set = TunableSet::<TuneKey, Inputs, Outputs>::new_cloning_inputs(key);
        for layout in candidates(pass) {
            let trial = move |(inputs, saved, settings): Inputs| {
                let (client, dtype) = (&inputs.query.client, inputs.query.dtype);
                if is_supported(client, dtype, &settings, layout, pass) {
                    Ok(Outputs(launch(
                        inputs,
                        saved,
                        &settings,
                        KernelLayout::Units(layout),
                    )))
                } else {
                    Err(format!("{layout:?} does not support the call"))
                }
            };
            let name = format!("{layout:?}, version {VERSION}");
            set = set.with(Tunable::new(&name, trial));
        }
        set
    });
    let Outputs(outputs) = tuner.execute(&id, &client, set, (inputs, saved, settings.clone()));
    outputs
}
