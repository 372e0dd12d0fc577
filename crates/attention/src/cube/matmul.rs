//! Matmuls by units instead of tensor cores, which round `f32` operands to TF32.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::{multi_level, strategy::Strategy};
use cubek::std::InputBinding;

use super::launch::empty_like;

/// The product of `f32` tensors `[.., rows, inner]` and `[.., inner, columns]` with two equal batch
/// dimensions.
pub(crate) fn unit_matmul(lhs: CubeTensor, rhs: CubeTensor) -> CubeTensor {
    let [outer, inner, rows, _] = lhs.meta.shape().dims();
    let [.., columns] = rhs.meta.shape().dims::<4>();
    let product = empty_like(&lhs, [outer, inner, rows, columns], DType::F32);
    let f32 = dtype_to_storage_type(DType::F32);
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems {
        lhs: f32,
        rhs: f32,
        out: f32,
    });
    // What Burn's matmul selects on devices without tensor cores.
    let strategy = Strategy::MultiLevel(multi_level::Strategy::SimpleUnit(Default::default()));
    let result = launch_ref(
        &strategy,
        &product.client,
        InputBinding::new(lhs.binding(), f32),
        InputBinding::new(rhs.binding(), f32),
        product.clone().binding(),
        &mut types,
    );
    if let Err(error) = result {
        panic!("matmul in f32: {error:?}");
    }
    product
}
