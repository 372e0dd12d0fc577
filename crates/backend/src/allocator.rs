//! Tuning of glibc's allocator.

/// Raises glibc's trim threshold by freeing a large block once.
///
/// glibc retains freed memory up to twice the largest block freed so far and returns the rest to
/// the system. A process that never freed a large block therefore returns all activations after
/// each pass, and page-faults them in again in the next. Training at n = 512 took 10% longer on
/// flex and 25% on ndarray: 845 page faults a pass, against 226 in PyTorch. Blocks above 32 MiB do
/// not raise the threshold.
pub fn configure_allocator() {
    const LARGEST: usize = 32 << 20;
    drop(std::hint::black_box(vec![1u8; LARGEST - (1 << 16)]));
}
