//! Name and memory of the CPU.

use std::fs;

/// The processor model and the number of threads that the CPU backends use.
pub(crate) fn name() -> String {
    // Flex and NdArray run on rayon's threads, which this variable limits.
    let threads = std::env::var("RAYON_NUM_THREADS")
        .ok()
        .and_then(|threads| threads.parse().ok())
        .filter(|&threads| threads > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let model = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|info| field(&info, "model name"))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!("{model}, {threads} threads")
}

/// Total memory of the machine in bytes, if known.
pub(crate) fn memory() -> Option<u64> {
    bytes("/proc/meminfo", "MemTotal")
}

/// Reads a `name: N kB` line of a /proc file, in bytes.
pub(crate) fn bytes(file: &str, name: &str) -> Option<u64> {
    let size = field(&fs::read_to_string(file).ok()?, name)?;
    let kibibytes: u64 = size.strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The value of the line `name: value`.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Xeon: Gold\nMemTotal:  24 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Xeon: Gold"));
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24 kB"));
        assert_eq!(field(text, "flags"), None);
    }
}
