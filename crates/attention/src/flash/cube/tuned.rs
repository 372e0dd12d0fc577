//! The layout of a call's cubes by trial: which is fastest depends on the GPU and on the sizes,
//! and nobody has them all.
//!
//! CubeCL's tuner does it, as it does for Burn's own kernels: a call of a new kind tries every
//! layout that fits, and the best is remembered, on disk too, until the layouts to try are
//! others ([`VERSION`] is to change with the kernels). What is not tried: few queries, which take
//! no time, adapters in software, where one layout is best and each trial costs seconds, and
//! anything where `ZOO_CUBE_LAYOUT` says what is to be taken.

use std::fmt;

use burn_cubecl::CubeTuneId;
use burn_cubecl::tensor::CubeTensor;
use cubecl::tune::{AutotuneKey, AutotuneOutput, LocalTuner, Tunable, TunableSet, local_tuner};
use serde::{Deserialize, Serialize};

use super::able::{Pass, asked_for, is_software, takes, worth_trying};
use super::device_plan::Rowwise;
use super::launch::{Given, GivenBack, launch_backward, launch_forward, wanted};
use super::layout::Layout;
use crate::flash::call::TiledSettings;

/// Part of what results are kept under: a kernel that was changed may be fastest otherwise.
const VERSION: u32 = 2;

/// Calls with no more queries are not worth trying.
const UNTRIED_QUERIES: usize = 64;

/// Beyond so many queries, keys or heads a GPU has its hands full, and more of them change
/// nothing.
const MANY: usize = 8192;
const MANY_HEADS: usize = 256;

/// What calls have in common that one layout is best for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Kind {
    /// Which of the layouts do for it. What was best for one call must do for the next of its
    /// kind, also on the card that is there when the results are read again.
    taken: Vec<bool>,
    /// Bytes of a number.
    bytes: usize,
    /// Up to so many heads of all examples together.
    heads: usize,
    /// Query heads that share a key and value head.
    group: usize,
    /// Up to so many queries.
    queries: usize,
    /// Up to so many keys that a query has to do with.
    keys: usize,
    d_head: usize,
    d_value: usize,
    /// Whether nothing is done to scores but their scale.
    is_plain: bool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl AutotuneKey for Kind {}

impl Kind {
    fn of(given: &Given, settings: &TiledSettings, pass: Pass) -> Self {
        let shape = &settings.shape;
        let has_more = settings.softcap.is_some()
            || settings.alibi.is_some()
            || settings.dropout.is_some()
            || given.mask.is_some()
            || given.bias.is_some();
        let (client, dtype) = (&given.query.client, given.query.dtype);
        let layouts = worth_trying(pass);
        let plan = wanted(settings, layouts[0], Rowwise::Queries).words(shape);
        let keys = plan.tiles() * layouts[0].across() / plan.all_rows();
        let about = |number: usize, most: usize| number.next_power_of_two().min(most);
        let taken = layouts.into_iter();
        Self {
            taken: taken
                .map(|layout| takes(client, dtype, settings, layout, pass))
                .collect(),
            bytes: dtype.size(),
            heads: about(shape.batch * shape.heads, MANY_HEADS),
            group: shape.group(),
            queries: about(shape.seq_q, MANY),
            keys: about(keys, MANY),
            d_head: shape.d_head,
            d_value: shape.d_value,
            is_plain: !has_more,
        }
    }
}

/// What a trial makes.
struct Made<const COUNT: usize>([CubeTensor; COUNT]);

impl<const COUNT: usize> AutotuneOutput for Made<COUNT> {}

/// Whether a call is one to try layouts for: not if what there is room for is none of them.
fn is_tried(given: &Given, settings: &TiledSettings, usual: Layout, pass: Pass) -> bool {
    settings.shape.seq_q > UNTRIED_QUERIES
        && !is_software(given.query.client.properties())
        && asked_for().is_none()
        && worth_trying(pass).contains(&usual)
}

/// Runs what a layout is tried for, if the layout does for it.
fn tried<T>(
    given: &Given,
    settings: &TiledSettings,
    layout: Layout,
    pass: Pass,
    launch: impl FnOnce() -> T,
) -> Result<T, String> {
    let client = &given.query.client;
    if takes(client, given.query.dtype, settings, layout, pass) {
        Ok(launch())
    } else {
        Err(format!("{layout:?} does not fit"))
    }
}

/// What a layout is called among results.
fn name(layout: Layout) -> String {
    format!("{layout:?}, version {VERSION}")
}

/// [`launch_forward`], with the layout that was fastest, or the usual one.
pub(super) fn forward(given: Given, settings: &TiledSettings, usual: Layout) -> [CubeTensor; 3] {
    static TUNER: LocalTuner<Kind, CubeTuneId> = local_tuner!("forward");
    if !is_tried(&given, settings, usual, Pass::Forward) {
        return launch_forward(given, settings, usual);
    }
    let client = given.query.client.clone();
    let id = CubeTuneId::new(&client, &given.query.device);
    let set = TUNER.init(&id, || {
        type Inputs = (Given, TiledSettings);
        let kind = |(given, settings): &Inputs| Kind::of(given, settings, Pass::Forward);
        let mut set = TunableSet::<Kind, Inputs, Made<3>>::new_cloning_inputs(kind);
        for layout in worth_trying(Pass::Forward) {
            let one = move |(given, settings): Inputs| {
                tried(&given, &settings, layout, Pass::Forward, || {
                    Made(launch_forward(given.clone(), &settings, layout))
                })
            };
            set = set.with(Tunable::new(&name(layout), one));
        }
        set
    });
    let Made(results) = TUNER.execute(&id, &client, set, (given, settings.clone()));
    results
}

/// [`launch_backward`], likewise.
pub(super) fn backward(
    given: Given,
    back: GivenBack,
    settings: &TiledSettings,
    usual: Layout,
) -> [CubeTensor; 3] {
    static TUNER: LocalTuner<Kind, CubeTuneId> = local_tuner!("backward");
    if !is_tried(&given, settings, usual, Pass::Backward) {
        return launch_backward(given, back, settings, usual);
    }
    let client = given.query.client.clone();
    let id = CubeTuneId::new(&client, &given.query.device);
    let set = TUNER.init(&id, || {
        type Inputs = (Given, GivenBack, TiledSettings);
        let kind = |(given, _, settings): &Inputs| Kind::of(given, settings, Pass::Backward);
        let mut set = TunableSet::<Kind, Inputs, Made<3>>::new_cloning_inputs(kind);
        for layout in worth_trying(Pass::Backward) {
            let one = move |(given, back, settings): Inputs| {
                tried(&given, &settings, layout, Pass::Backward, || {
                    Made(launch_backward(given.clone(), back, &settings, layout))
                })
            };
            set = set.with(Tunable::new(&name(layout), one));
        }
        set
    });
    let Made(results) = TUNER.execute(&id, &client, set, (given, back, settings.clone()));
    results
}
