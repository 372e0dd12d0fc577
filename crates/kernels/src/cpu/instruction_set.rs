//! Instruction set detection, and functions compiled for each instruction set.

/// An instruction set that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// AVX-512 F, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The baseline of the target: NEON, SSE, or none.
    Portable,
}

impl InstructionSet {
    /// Detects the best instruction set of this CPU. The standard library caches the result.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            return if has_avx512 { Self::Avx512 } else { Self::Avx2 };
        }
        Self::Portable
    }

    /// All sets of this processor, for tests that compare them.
    #[doc(hidden)]
    pub fn available() -> Vec<Self> {
        match Self::detect() {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => vec![Self::Portable, Self::Avx2, Self::Avx512],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => vec![Self::Portable, Self::Avx2],
            Self::Portable => vec![Self::Portable],
        }
    }
}

/// Compiles a function once for each [`InstructionSet`](crate::cpu::InstructionSet), from an
/// `#[inline(always)]` function with the same arguments.
///
/// `unsafe fn name(..) by kernel` calls `kernel::<S>` for a [`Simd`](crate::cpu::Simd) type. Its
/// first argument is the instruction set, which the processor must support.
///
/// `fn name(..) by kernel` calls `kernel`, which the compiler auto-vectorizes, for the best set of
/// the processor.
#[macro_export]
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $kind:ty),* $(,)?) by $kernel:ident;) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The processor supports the instruction set, and the arguments are valid for the kernel.
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name(set: $crate::cpu::InstructionSet, $($arg: $kind),*) {
            $crate::cpu::dispatch!(@compiled set, ($($arg: $kind),*);
                // SAFETY: as promised by the caller.
                unsafe { $kernel::<$crate::cpu::Avx512>($($arg),*) },
                // SAFETY: as promised by the caller.
                unsafe { $kernel::<$crate::cpu::Avx2>($($arg),*) },
                // SAFETY: as promised by the caller.
                unsafe { $kernel::<$crate::cpu::Portable>($($arg),*) })
        }
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $result:ident)? by $kernel:ident;) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $kind),*) $(-> $result)? {
            let set = $crate::cpu::InstructionSet::detect();
            $crate::cpu::dispatch!(@compiled set, ($($arg: $kind),*) $(-> $result)?;
                $kernel($($arg),*), $kernel($($arg),*), $kernel($($arg),*))
        }
    };
    (@compiled $set:ident, ($($arg:ident: $kind:ty),*) $(-> $result:ident)?;
        $avx512:expr, $avx2:expr, $portable:expr) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $kind),*) $(-> $result)? {
                $avx512
            }
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $kind),*) $(-> $result)? {
                $avx2
            }
            match $set {
                // SAFETY: the processor supports the instruction set.
                $crate::cpu::InstructionSet::Avx512 => return unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                $crate::cpu::InstructionSet::Avx2 => return unsafe { avx2($($arg),*) },
                $crate::cpu::InstructionSet::Portable => {}
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = $set;
        $portable
    }};
}

pub use dispatch;
