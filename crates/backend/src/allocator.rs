//! How the C library keeps memory that was freed.

/// Frees a large block, as every program has that loaded a model.
///
/// glibc keeps freed memory up to twice the largest block that was ever freed, and returns
/// the rest to the system: a process that has freed nothing large gives the results of
/// every pass back, and pays for their pages again in the next. Training at n = 512 took a
/// tenth longer on flex and a quarter on ndarray. PyTorch's process keeps its memory: 226
/// page faults a pass there, where ours had 845. What is above 32 MiB is not counted.
pub fn settle_allocator() {
    const LARGEST: usize = 32 << 20;
    drop(std::hint::black_box(vec![1u8; LARGEST - (1 << 16)]));
}
