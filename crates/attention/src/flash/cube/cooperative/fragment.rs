//! Fragments of cooperative matrices, and what the kernels compute with them.
//!
//! [`cubecl::cmma`] has the same operations, except for the sum and the product of two
//! fragments element by element, which SPIR-V has.

use cubecl::ir::attributes::ZeroAttr;
use cubecl::ir::dialect::branch::ReturnOp;
use cubecl::ir::dialect::math::{ExpOp, FAddOp, FMulOp};
use cubecl::ir::dialect::matrix::{
    CastOp, ElementwiseOp, FillOp, LoadOp, MultiplyAccumulateOp, StoreOp,
};
use cubecl::ir::dialect::memory;
use cubecl::ir::pliron::builtin::ops::FuncOp;
use cubecl::ir::pliron::builtin::types::FunctionType;
use cubecl::ir::pliron::value::Value;
use cubecl::ir::types::MatrixScope;
use cubecl::ir::types::matrix::{MatrixIdent, MatrixLayout, MatrixType};
use cubecl::ir::{OpInserter, Scope, read_value};
use cubecl::prelude::*;

use crate::flash::cube::layout::FRAGMENT;

/// A fragment in the registers of a plane.
#[derive(Clone, Copy)]
pub(super) struct Fragment;

/// The pointer to a fragment.
#[derive(Clone, Copy)]
pub(super) struct FragmentExpand {
    value: Value,
}

impl CubeType for Fragment {
    type ExpandType = FragmentExpand;
}

impl ExpandTypeClone for FragmentExpand {
    fn clone_unchecked(&self) -> Self {
        *self
    }
}

impl AsRefExpand for FragmentExpand {
    fn __expand_ref_method(&self, _scope: &Scope) -> &Self {
        self
    }
}

impl AsMutExpand for FragmentExpand {
    fn __expand_ref_mut_method(&mut self, _scope: &Scope) -> &mut Self {
        self
    }
}

impl IntoExpand for FragmentExpand {
    type Expand = Self;

    fn into_expand(self, _scope: &Scope) -> Self {
        self
    }
}

impl IntoMut for FragmentExpand {
    fn into_mut(self, _scope: &Scope) -> Self {
        self
    }
}

impl CubeDebug for FragmentExpand {}

#[cube]
impl Fragment {
    /// A fragment whose elements have one value.
    pub(super) fn new<E: Float>(#[comptime] operand: MatrixIdent, value: E) -> Fragment {
        intrinsic!(|scope| {
            let fragment = uninitialized::<E>(scope, operand);
            let value = value.read_value(scope);
            scope.register(&FillOp::new(scope.ctx_mut(), fragment.value, value));
            fragment
        })
    }

    /// Loads the fragment from the start of a slice.
    ///
    /// The stride is that of elements with four bytes.
    pub(super) fn load<V: CubePrimitive>(
        &self,
        source: &[V],
        stride: u32,
        #[comptime] layout: MatrixLayout,
    ) {
        intrinsic!(|scope| {
            // SAFETY: the pointer is that of an expanded slice.
            let pointer = unsafe { *source.__expand_as_ptr_method(scope) }.value(scope);
            let stride = stride.read_value(scope);
            scope.register(&LoadOp::new(
                scope.ctx_mut(),
                self.value,
                pointer,
                stride,
                layout,
            ));
        })
    }

    /// Stores the fragment at the start of a slice.
    pub(super) fn store<V: CubePrimitive>(
        &self,
        target: &mut [V],
        stride: u32,
        #[comptime] layout: MatrixLayout,
    ) {
        intrinsic!(|scope| {
            // SAFETY: the pointer is that of an expanded slice.
            let pointer = unsafe { *target.__expand_as_ptr_method(scope) }.value(scope);
            let stride = stride.read_value(scope);
            scope.register(&StoreOp::new(
                scope.ctx_mut(),
                self.value,
                pointer,
                stride,
                layout,
            ));
        })
    }

    /// Copies an accumulator.
    pub(super) fn assign(&self, other: &Fragment) {
        intrinsic!(|scope| {
            let value = read_value(scope, other.value);
            scope.register(&memory::StoreOp::new(scope.ctx_mut(), self.value, value));
        })
    }

    /// `self += left · right`
    pub(super) fn multiply_add(&self, left: &Fragment, right: &Fragment) {
        intrinsic!(|scope| {
            scope.register(&MultiplyAccumulateOp::new(
                scope.ctx_mut(),
                left.value,
                right.value,
                self.value,
                self.value,
            ));
        })
    }

    /// Multiplies an accumulator by another one, element by element.
    pub(super) fn multiply(&self, other: &Fragment) {
        intrinsic!(|scope| {
            let left = read_value(scope, self.value);
            let right = read_value(scope, other.value);
            let product = FMulOp::new(scope.ctx_mut(), left, right);
            let product = scope.register_with_result(&product);
            scope.register(&memory::StoreOp::new(scope.ctx_mut(), self.value, product));
        })
    }

    /// Adds another accumulator.
    pub(super) fn increase(&self, other: &Fragment) {
        intrinsic!(|scope| {
            let left = read_value(scope, self.value);
            let right = read_value(scope, other.value);
            let sum = FAddOp::new(scope.ctx_mut(), left, right);
            let sum = scope.register_with_result(&sum);
            scope.register(&memory::StoreOp::new(scope.ctx_mut(), self.value, sum));
        })
    }

    /// Replaces the elements `x` of an accumulator by `exp(x · factor)`.
    pub(super) fn exponentiate(&self, factor: f32) {
        intrinsic!(|scope| {
            let factor = factor.read_value(scope);
            let index = u32::__expand_as_type(scope);
            let float = f32::__expand_as_type(scope);
            let arguments = vec![index, index, float, float];
            let function_type = FunctionType::get(scope.ctx(), arguments, vec![float]);
            let name = scope.func_ident(Some("exponential"));
            let function = FuncOp::new(scope.ctx_mut(), name.clone(), function_type);
            let body = function.get_entry_block(scope.ctx());
            let [element, parameter] =
                [2, 3].map(|index| body.deref(scope.ctx()).get_argument(index));
            let inner = scope.func_child(OpInserter::new_at_block_end(body));
            let exponent = FMulOp::new(scope.ctx_mut(), element, parameter);
            let exponent = inner.register_with_result(&exponent);
            let power = ExpOp::new(scope.ctx_mut(), exponent);
            let power = inner.register_with_result(&power);
            inner.register(&ReturnOp::new_with_value(scope.ctx_mut(), power));
            scope.register_func(function);
            scope.register(&ElementwiseOp::new(
                scope.ctx_mut(),
                self.value,
                self.value,
                name,
                vec![factor],
            ));
        })
    }

    /// Rounds an accumulator in `f32` to a left operand.
    pub(super) fn convert<E: Float>(&self, sums: &Fragment) {
        intrinsic!(|scope| {
            // A conversion changes the type or the operand, not both.
            let rounded = uninitialized::<E>(scope, MatrixIdent::Accumulator);
            scope.register(&CastOp::new(scope.ctx_mut(), sums.value, rounded.value));
            scope.register(&CastOp::new(scope.ctx_mut(), rounded.value, self.value));
        })
    }
}

fn uninitialized<E: Float>(scope: &Scope, operand: MatrixIdent) -> FragmentExpand {
    let element = E::__expand_as_type(scope);
    let shape = (FRAGMENT, FRAGMENT, FRAGMENT).into();
    let layout = MatrixLayout::Undefined;
    let ty = MatrixType::get(
        scope.ctx(),
        operand,
        shape,
        element,
        layout,
        MatrixScope::Plane,
    );
    let zero = ZeroAttr::new(ty);
    FragmentExpand {
        value: scope.create_local_mut(ty, Some(zero.into())),
    }
}
