//! Gates: factors of a position that a layer computes from its input.

use burn::tensor::{DType, Tensor, TensorData};

use crate::AttentionShape;
use crate::counter::Normals;
use crate::memo::Memo;
use crate::shape::pad_rows;

/// The gates of positions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gates {
    /// `[batch, heads, seq_k, width]`: the logarithm of the factor by which a position decays
    /// everything before it: one factor, or one for each row of a state. `None` is no decay.
    pub(crate) log_decay: Option<Tensor<4>>,
    /// `[batch, heads, seq_k, 1]`: by how much a position changes a state. `None` is 1.
    pub(crate) strength: Option<Tensor<4>>,
    /// `[batch, heads, seq_k, branches]`: by what a position multiplies the result of each branch of a
    /// mechanism. `None` is not 1, but their initial values.
    pub(crate) branches: Option<Tensor<4>>,
}

impl Gates {
    /// These gates followed by those of later positions.
    pub(crate) fn followed_by(&self, later: &Self) -> Self {
        let join = |first: &Option<Tensor<4>>, second: &Option<Tensor<4>>| {
            let (first, second) = (first.clone()?, second.clone()?);
            Some(Tensor::cat(vec![first, second], 2))
        };
        Self {
            log_decay: join(&self.log_decay, &later.log_decay),
            strength: join(&self.strength, &later.strength),
            branches: join(&self.branches, &later.branches),
        }
    }

    /// The gates of some of the positions.
    pub(crate) fn of_positions(&self, positions: std::ops::Range<usize>) -> Self {
        self.map(|gate| gate.slice_dim(2, positions.clone()))
    }

    /// Applies a function to each gate.
    pub(crate) fn map(&self, function: impl Fn(Tensor<4>) -> Tensor<4>) -> Self {
        Self {
            log_decay: self.log_decay.clone().map(&function),
            strength: self.strength.clone().map(&function),
            branches: self.branches.clone().map(&function),
        }
    }

    /// Number of elements.
    pub(crate) fn num_elements(&self) -> usize {
        let gates = [&self.log_decay, &self.strength, &self.branches];
        let counts = gates.into_iter().flatten();
        counts.map(|gate| gate.shape().num_elements()).sum()
    }

    /// Panics unless they are those of the keys of a call.
    pub(crate) fn check(&self, op: &str, shape: &AttentionShape) {
        let expected = [shape.batch, shape.kv_heads, shape.seq_k];
        for (name, gate) in [("decays", &self.log_decay), ("strengths", &self.strength)] {
            let Some(gate) = gate else { continue };
            let [batch, heads, seq, width] = gate.dims();
            let is_valid = width == 1 || name == "decays" && width == shape.d_head;
            assert!(
                [batch, heads, seq] == expected && is_valid,
                "{op}: the {name} must be [batch, kv_heads, seq_k, 1] = {expected:?} x 1, got {:?}",
                gate.dims()
            );
        }
    }
}

/// The logarithms of decays that [`attend`](crate::attend) uses for a mechanism whose layer computes
/// them from its input, `[batch, heads, seq, width]`: an eighth of those of sigmoids of normal values
/// with a mean of 1 and a standard deviation of 2.
pub fn init_log_decays(dims: [usize; 4]) -> Vec<f32> {
    initial(0, dims, |normal| {
        let log_sigmoid = -(-1.0 - 2.0 * normal).exp().ln_1p();
        (log_sigmoid / 8.0) as f32
    })
}

/// The same for the strengths of a delta rule: sigmoids of normal values.
pub fn init_strengths(dims: [usize; 4]) -> Vec<f32> {
    initial(1, dims, |normal| (1.0 / (1.0 + (-normal).exp())) as f32)
}

/// The same for gates of branches, `[batch, heads, seq, branches]`: sigmoids of normal values.
pub fn init_branch_gates(dims: [usize; 4]) -> Vec<f32> {
    initial(2, dims, |normal| (1.0 / (1.0 + (-normal).exp())) as f32)
}

fn initial(kind: u64, dims: [usize; 4], function: fn(f64) -> f32) -> Vec<f32> {
    static MEMO: Memo<(u64, [usize; 4]), Vec<f32>> = Memo::new();
    // Distinguishes them from other parameters.
    const STREAM: u64 = 16;
    let [batch, heads, seq, width] = dims;
    // A position has the same gate at every length, so that decoding can continue a sequence.
    let row = |row: usize| {
        let mut normals = Normals::new([STREAM + kind, row as u64, 0]);
        (0..seq * width).map(move |_| function(normals.next()))
    };
    let values = MEMO.get((kind, dims), |_| (0..batch * heads).flat_map(row).collect());
    values.to_vec()
}

/// [`init_log_decays`] on the device of a tensor, in `f32`.
pub(crate) fn initial_log_decays(dims: [usize; 4], like: &Tensor<4>) -> Tensor<4> {
    let values = TensorData::new(init_log_decays(dims), dims);
    Tensor::from_data(values, (&like.device(), DType::F32))
}

/// [`init_strengths`] on the device of a tensor, in `f32`.
pub(crate) fn initial_strengths(dims: [usize; 4], like: &Tensor<4>) -> Tensor<4> {
    let values = TensorData::new(init_strengths(dims), dims);
    Tensor::from_data(values, (&like.device(), DType::F32))
}

/// [`init_branch_gates`] on the device of a tensor, in `f32`.
pub(crate) fn initial_branch_gates(dims: [usize; 4], like: &Tensor<4>) -> Tensor<4> {
    let values = TensorData::new(init_branch_gates(dims), dims);
    Tensor::from_data(values, (&like.device(), DType::F32))
}

/// The sum of each row's element and those before it, along dimension 2 of `[batch, heads, seq, 1]`.
///
/// Summed in blocks: rounding errors grow with the logarithm of the length, and backends that add
/// all elements before each one take time linear in the block instead of the length.
pub(crate) fn prefix_sums(x: Tensor<4>) -> Tensor<4> {
    const BLOCK: usize = 128;
    let [batch, heads, seq, _] = x.dims();
    if seq <= BLOCK {
        return x.cumsum(2);
    }
    let blocks = seq.div_ceil(BLOCK);
    let padded = pad_rows(x, [0, blocks * BLOCK - seq], 0.0);
    let within = padded.reshape([batch, heads, blocks, BLOCK]).cumsum(3);
    let totals = within.clone().slice_dim(3, BLOCK - 1..BLOCK); // [batch, heads, blocks, 1]
    let before = prefix_sums(totals.clone()) - totals;
    let sums = (within + before).reshape([batch, heads, blocks * BLOCK, 1]);
    sums.slice_dim(2, 0..seq)
}
