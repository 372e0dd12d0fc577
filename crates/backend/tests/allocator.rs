//! Reuse of freed memory, in the main thread of a process of its own.

use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments {
        // In the main thread: glibc's allocator maps large blocks of other threads.
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    let trials = if cfg!(all(target_os = "linux", target_env = "gnu")) {
        vec![Trial::test("large_blocks_are_reused", || {
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            large_blocks_are_reused();
            Ok(())
        })]
    } else {
        vec![]
    };
    libtest_mimic::run(&arguments, trials).exit();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn large_blocks_are_reused() {
    use std::hint::black_box;

    // Above the largest block that glibc reuses by default, 32 MiB.
    const BYTES: usize = 64 << 20;
    let use_block = || drop(black_box(vec![1u8; BYTES]));
    let faults = || {
        let before = page_faults();
        use_block();
        page_faults() - before
    };
    use_block();
    // One for each page or huge page.
    assert!(faults() > 0);
    zoo_backend::configure_allocator();
    use_block();
    assert_eq!(faults(), 0);
}

/// Page faults of the process so far.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn page_faults() -> i64 {
    // SAFETY: zeros are a valid value of the struct, which the call overwrites.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt
    }
}
