//! Compares the KV caches of multi-head, grouped-query, multi-query and multi-head latent attention:
//! size, and time of a decoding step of one layer. The argument after the backend is the number of
//! positions in the cache.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin compare_caches -- flex 4096
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use zoo_attention::{
    DecodeCache, Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Positions,
};
use zoo_examples::normal;

const D_MODEL: usize = 512;
const HEADS: usize = 8;
const MECHANISMS: [Mechanism; 4] = [
    Mechanism::Flash,
    Mechanism::GroupedQuery,
    Mechanism::MultiQuery,
    Mechanism::Mla,
];
/// The mechanisms take turns, so that a busy machine slows all of them down.
const ROUNDS: usize = 20;
const STEPS: usize = 10;

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let positions: usize = zoo_examples::argument(1, 4096)?;
        if positions == 0 {
            return Err("there must be at least one position in the cache".into());
        }
        let device = &opened.device;
        let x = normal([1, positions, D_MODEL], device);
        let mut layers = MECHANISMS
            .into_iter()
            .map(|mechanism| Layer::new(mechanism, &x))
            .collect::<Result<Vec<_>, _>>()?;
        for _ in 0..ROUNDS {
            for layer in &mut layers {
                layer.measure(positions, device)?;
            }
        }
        println!(
            "one layer, d_model {D_MODEL}, {HEADS} heads, {positions} positions in the cache\n"
        );
        println!("mechanism         elements per position        cache    a step");
        for mut layer in layers {
            let elements = layer.cache.num_elements();
            let mebibytes = (elements * size_of::<f32>()) as f64 / 1024.0 / 1024.0;
            let (name, per_position) = (layer.mechanism.name(), elements / positions);
            let step = layer.median_step();
            println!("{name:18}{per_position:>21}{mebibytes:>9.2} MiB{step:>10.1?}");
        }
        Ok(())
    })
}

/// A layer with a filled cache.
struct Layer {
    mechanism: Mechanism,
    attention: MultiHeadAttention,
    cache: DecodeCache,
    steps: Vec<Duration>,
}

impl Layer {
    fn new(mechanism: Mechanism, x: &Tensor<3>) -> Result<Self, Box<dyn Error>> {
        let attention = MultiHeadAttentionConfig::new(D_MODEL, HEADS)
            .with_mechanism(mechanism)
            .with_positions(Positions::rotary(10_000.0))
            .try_init(&x.device())?;
        let [_, positions, _] = x.dims();
        let mut cache = attention.decode_cache(positions + STEPS)?;
        attention.prefill(x.clone(), &mut cache);
        Ok(Self {
            mechanism,
            attention,
            cache,
            steps: Vec::new(),
        })
    }

    /// Decodes some positions, and removes them from the cache.
    fn measure(&mut self, positions: usize, device: &Device) -> Result<(), Box<dyn Error>> {
        let x = normal([1, 1, D_MODEL], device);
        device.sync()?;
        for _ in 0..STEPS {
            let start = Instant::now();
            self.attention.step(x.clone(), &mut self.cache);
            device.sync()?;
            self.steps.push(start.elapsed());
        }
        Ok(self.cache.truncate(positions)?)
    }

    fn median_step(&mut self) -> Duration {
        self.steps.sort_unstable();
        self.steps[self.steps.len() / 2]
    }
}
