//! Layouts of the device against those of the host.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use zoo_spec::Lsh;

use super::super::chunks::ChunkLayout;
use super::super::hashing::{combine, round_directions};
use super::super::visibility::Visibility;
#[cfg(feature = "tch")]
use super::super::{lsh, normalize_rows};
use super::*;
use crate::counter::Normals;

const OP: &str = "lsh attention";

/// Bucket size and rounds, and `[batch, heads, seq]`.
const CASES: &[([usize; 2], [usize; 3])] = &[
    ([5, 4], [2, 3, 37]),
    ([6, 1], [2, 1, 36]),
    // One position per chunk, and all positions in one chunk.
    ([1, 3], [2, 2, 37]),
    ([37, 3], [2, 2, 37]),
    // Three chunks, the last of one position.
    ([20, 3], [1, 2, 41]),
    // Several blocks of queries, and of columns of the mask.
    ([70, 3], [1, 2, 300]),
    // Several positions for each unit of the counting sort.
    ([16, 2], [1, 2, 1000]),
    // A hash is a pair.
    ([2, 3], [2, 1, 521]),
];

fn normals(dims: [usize; 4], seed: u64, device: &Device) -> Tensor<4> {
    let mut normals = Normals::new([seed, 0, 0]);
    let elements = (0..dims.iter().product()).map(|_| normals.next() as f32);
    Tensor::from_data(TensorData::new(elements.collect(), dims), device)
}

/// Masks about half of the elements.
fn random_mask(dims: [usize; 4], device: &Device) -> Tensor<4, Bool> {
    normals(dims, 7, device).greater_elem(0.0)
}

/// Patterns that are evaluated on the device.
fn patterns([batch, heads, seq]: [usize; 3], device: &Device) -> Vec<Pattern> {
    let lengths = Pattern::key_lengths((0..batch).map(|i| seq - 33 * i).collect::<Vec<_>>());
    let padding = random_mask([batch, 1, 1, seq], device).reshape([batch, seq]);
    vec![
        Pattern::Full,
        Pattern::Causal,
        lengths.clone(),
        Pattern::Causal
            .and(lengths)
            .and(Pattern::KeyPadding(padding)),
        Pattern::Dense(random_mask([batch, heads, seq, seq], device)),
        Pattern::Causal.and(Pattern::Dense(random_mask([1, heads, seq, 1], device))),
    ]
}

fn ints(tensor: &Tensor<1, Int>) -> Vec<usize> {
    let ints = tensor.clone().into_data();
    ints.iter::<i64>().map(|x| x as usize).collect()
}

/// Compares all layouts with those of the host.
fn assert_layouts(method: Method, device: &Device) {
    for &([bucket, rounds], dims) in CASES {
        let [batch, heads, seq] = dims;
        let hashing = Lsh::new(bucket, rounds, 3);
        let query = normals([batch, heads, seq, 6], 1, device);
        let shape = AttentionShape::from_tensors(OP, &query, &query, &query);
        let sizes = Sizes::new(&hashing, &shape);
        let digits = hashes(&hashing, &query, &sizes);
        for pattern in patterns(dims, device) {
            let name = format!("{hashing:?} {dims:?} {pattern:?}");
            let visibility = Visibility::from_pattern(OP, &pattern, &shape, device);
            let expected = ChunkLayout::from_hashes(&hashing, &visibility, || {
                let digits: Vec<u32> = digits.clone().into_data().iter().collect();
                combine(&digits, round_directions(&hashing, seq))
            });
            let pattern = DevicePattern::new(OP, &pattern, &shape, device);
            let pattern = pattern.expect("a pattern of full, causal, lengths and tensors");
            let layout = method.layout(digits.clone(), pattern, sizes);
            assert_layout(&layout, &expected, &name);
        }
    }
}

fn assert_layout(layout: &DeviceLayout, expected: &ChunkLayout, name: &str) {
    let sizes = layout.sizes;
    let slots = sizes.all_heads() * sizes.chunks.slots();
    let [query_rows, query_slots] = [&layout.query_rows, &layout.query_slots].map(ints);
    let mask: Vec<bool> = layout.mask.clone().into_data().iter().collect();
    let rounds = query_rows
        .chunks(slots)
        .zip(query_slots.chunks(sizes.rows()));
    let rounds = rounds.zip(mask.chunks(slots * sizes.chunks.keys()));
    assert_eq!(rounds.len(), expected.rounds.len(), "{name}");
    for (round, ((rows, slot_of), mask)) in rounds.enumerate() {
        let expected = &expected.rounds[round];
        let is_sorted = expected.slot_of.is_sorted();
        assert_eq!(
            is_sorted,
            sizes.chunks.count == 1,
            "{name}: nothing is sorted"
        );
        let expected_rows: Vec<usize> = expected.rows.iter().map(|row| *row as usize).collect();
        assert_eq!(rows, expected_rows, "{name}: rows of round {round}");
        let slot = |slot: &i32| round * slots + *slot as usize;
        let expected_slots: Vec<usize> = expected.slot_of.iter().map(slot).collect();
        assert_eq!(slot_of, expected_slots, "{name}: slots of round {round}");
        assert!(mask == expected.mask, "{name}: mask of round {round}");
    }
    assert_keys(layout, &query_rows, name);
}

/// The keys of a chunk are the rows of the previous chunk and of the chunk itself, and the slots of a
/// key are all of its slots.
fn assert_keys(layout: &DeviceLayout, query_rows: &[usize], name: &str) {
    let sizes = layout.sizes;
    let Chunks { count, size } = sizes.chunks;
    let [key_rows, key_slots] = [&layout.key_rows, &layout.key_slots].map(ints);
    let mut expected: Vec<usize> = Vec::new();
    for head in query_rows.chunks(count * size) {
        for chunk in 0..count {
            if count > 1 {
                expected.extend(&head[sizes.chunks.previous(chunk) * size..][..size]);
            }
            expected.extend(&head[chunk * size..][..size]);
        }
    }
    assert_eq!(key_rows, expected, "{name}: rows of keys");
    let per_round = key_rows.len() / sizes.rounds;
    assert_eq!(
        key_slots.len(),
        sizes.rounds * sizes.copies() * sizes.rows()
    );
    for (index, slot) in key_slots.iter().enumerate() {
        assert_eq!(key_rows[*slot], index % sizes.rows(), "{name}: key slot");
        assert_eq!(slot / per_round, index / sizes.rows() / sizes.copies());
    }
    let mut distinct = key_slots.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(
        distinct.len(),
        key_slots.len(),
        "{name}: a slot has one key"
    );
}

/// The context, and the gradients of query and value.
#[cfg(feature = "tch")]
fn results(
    attend: &dyn Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
    [query, value, d_context]: &[Tensor<4>; 3],
) -> Vec<Vec<f32>> {
    let inputs = [query, value].map(|tensor| tensor.clone().require_grad());
    let [query, value] = inputs.clone();
    let context = attend(query, value);
    let grads = (context.clone() * d_context.clone()).sum().backward();
    let grads = inputs.map(|input| input.grad(&grads).expect("a gradient"));
    let [d_query, d_value] = grads;
    [context.detach(), d_query, d_value]
        .map(|tensor| tensor.into_data().iter().collect())
        .into()
}

/// Sums of some hundred products of numbers of about 1, in different orders.
#[cfg(feature = "tch")]
const ROUNDING: f32 = 2e-5;

/// Compares attention by the layout of a method with [`lsh`].
#[cfg(feature = "tch")]
fn assert_attention(method: Method, device: &Device) {
    let device = &device.clone().autodiff();
    for &([bucket, rounds], dims) in CASES {
        let [batch, heads, seq] = dims;
        let hashing = Lsh::new(bucket, rounds, 3);
        let tensors = [(1, 6), (2, 5), (3, 5)]
            .map(|(seed, width)| normals([batch, heads, seq, width], seed, device));
        for pattern in patterns(dims, device) {
            let options = AttentionOptions::new().with_pattern(pattern.clone());
            let on_device = |query: Tensor<4>, value: Tensor<4>| {
                let shape = AttentionShape::from_tensors(OP, &query, &query, &value);
                let sizes = Sizes::new(&hashing, &shape);
                let digits = hashes(&hashing, &query, &sizes);
                let pattern = DevicePattern::new(OP, &pattern, &shape, device);
                let layout = method.layout(digits, pattern.expect("a pattern"), sizes);
                let key = normalize_rows(query.clone());
                attend([query, key, value], layout, &options)
            };
            let expected = results(
                &|query, value| lsh(query, value, &hashing, &options),
                &tensors,
            );
            let got = results(&on_device, &tensors);
            for (name, (got, expected)) in ["context", "d_query", "d_value"]
                .into_iter()
                .zip(got.iter().zip(&expected))
            {
                let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= ROUNDING * (1.0 + b.abs());
                let far = got.iter().zip(expected).find(|pair| !is_close(*pair));
                assert_eq!(far, None, "{hashing:?} {dims:?} {pattern:?}: {name}");
            }
        }
    }
}

#[cfg(feature = "tch")]
#[test]
fn tensor_operations_match_the_host() {
    let device = Device::libtorch();
    assert_layouts(Method::TensorOps, &device);
    assert_attention(Method::TensorOps, &device);
}

#[cfg(feature = "flex")]
#[test]
fn tensors_on_the_host_use_the_cpu_kernels() {
    let query = normals([1, 1, 40, 4], 1, &Device::flex());
    let shape = AttentionShape::from_tensors(OP, &query, &query, &query);
    assert!(DeviceLayout::new(OP, &Lsh::new(4, 2, 0), &query, &Pattern::Full, &shape).is_none());
}

// The feature `vulkan` compiles shaders to SPIR-V, which software adapters do not accept.
#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
mod wgpu {
    use burn::tensor::DeviceKind;

    use super::*;

    fn device() -> Device {
        Device::wgpu(DeviceKind::DefaultDevice)
    }

    #[test]
    fn kernels_match_the_host() {
        assert_layouts(Method::Kernels, &device());
    }

    /// Nothing is read back where a layout is returned: it consists of tensors.
    #[test]
    fn layouts_are_computed_on_the_device() {
        let device = device();
        for autodiff in [device.clone(), device.autodiff()] {
            let dims = [2, 2, 40];
            let query = normals([2, 2, 40, 4], 1, &autodiff);
            let shape = AttentionShape::from_tensors(OP, &query, &query, &query);
            let has_layout = |hashing: Lsh, pattern: &Pattern| {
                DeviceLayout::new(OP, &hashing, &query, pattern, &shape).is_some()
            };
            for pattern in patterns(dims, &autodiff) {
                assert!(has_layout(Lsh::new(4, 2, 0), &pattern), "{pattern:?}");
                assert!(has_layout(Lsh::new(40, 2, 0), &pattern), "{pattern:?}");
            }
            let window = Pattern::Window { left: 3, right: 3 };
            assert!(!has_layout(Lsh::new(4, 2, 0), &window));
            // More rounds than fit into shared memory.
            assert!(!has_layout(Lsh::new(4, 65, 0), &Pattern::Full));
        }
    }
}
