//! Models whose numbers are the same in every run and on every device.
//!
//! A device's own random numbers are drawn by all tests that run at the same time, in any
//! order, so a seed says nothing of what a test gets.

use burn::module::Module;
use burn::tensor::TensorData;
use zoo_models::weights::Weights;
use zoo_oracle::normals;

use crate::support::tensors;

/// The model with numbers drawn by the seed where its own were drawn: matrices so that what
/// goes through stays as large, vectors of tokens and places smaller. What starts as zeros or
/// ones stays so.
pub(crate) fn drawn<M: Module>(model: M, seed: u64) -> M {
    let tensor = |(key, data): (String, TensorData)| {
        let numbers: Vec<f32> = data.try_to_vec().expect("f32");
        let is_constant = numbers.iter().all(|number| *number == numbers[0]);
        let shape = data.shape().to_vec();
        let is_vectors = key.contains("embedding") || key.ends_with(".table");
        let size = match is_vectors {
            true => 0.3,
            false => 1.0 / (shape[0] as f64).sqrt(),
        };
        let numbers = match is_constant {
            true => numbers,
            false => normals(&format!("{seed} {key}"), numbers.len(), size),
        };
        (key, TensorData::new(numbers, shape))
    };
    let own = tensors(&Weights::of(&model)).into_iter();
    Weights::of_tensors(own.map(tensor).collect::<Vec<_>>())
        .apply(model)
        .expect("names and shapes are the model's")
}
