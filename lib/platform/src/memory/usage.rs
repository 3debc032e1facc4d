//! The amount of memory that the machine has and that the process uses, for reports. The functions return `None` if the
//! operating system does not report the amount.

/// Returns the memory of the machine, in bytes.
pub fn total_bytes() -> Option<u64> {
    field("/proc/meminfo", "MemTotal:")
}

/// Returns the memory that is available without swapping, in bytes, as estimated by the kernel.
pub fn available_bytes() -> Option<u64> {
    field("/proc/meminfo", "MemAvailable:")
}

/// Returns the resident memory of this process, in bytes.
pub fn resident_bytes() -> Option<u64> {
    field("/proc/self/status", "VmRSS:")
}

/// Returns the value, in bytes, of a line `Name:   123 kB`.
fn field(file: &str, name: &str) -> Option<u64> {
    if cfg!(any(miri, loom, not(target_os = "linux"))) {
        return None;
    }
    parse(&std::fs::read_to_string(file).ok()?, name)
}

fn parse(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reads_kilobytes() {
        let text = "MemTotal:       24684092 kB\nHugePages_Total:       0\n";
        assert_eq!(parse(text, "MemTotal:"), Some(24684092 * 1024));
        assert_eq!(parse(text, "HugePages_Total:"), None);
        assert_eq!(parse(text, "MemFree:"), None);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn this_machine() {
        let (total, available) = (total_bytes().unwrap(), available_bytes().unwrap());
        assert!(available <= total && resident_bytes().unwrap() < total);
    }
}
