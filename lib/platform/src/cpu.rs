//! The features of the processor and the kernel, determined once, for reports and for choosing among implementations.

use core::fmt;
use std::sync::OnceLock;

/// Features of the processor and of the kernel's memory management.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The processor's name as it reports it, empty if unknown.
    pub model: String,
    /// x86-64: 32-byte integer vectors.
    pub avx2: bool,
    /// x86-64: 64-byte vectors with byte masks.
    pub avx512bw: bool,
    /// x86-64: hardware transactions that may commit. Processors whose microcode makes every transaction abort
    /// advertise them, too; for these the value is false.
    pub rtm: bool,
    /// x86-64: the processor has hardware transactions, but its microcode makes all of them abort.
    pub rtm_always_aborts: bool,
    /// x86-64: the time-stamp counter has a constant rate and never stops.
    pub invariant_tsc: bool,
    /// Length of a cache line in bytes.
    pub cache_line: usize,
    /// Size of a huge page in bytes, `None` if unknown.
    pub huge_page: Option<u64>,
    /// The kernel's transparent huge pages: `always`, `madvise` or `never`; `None` if unknown.
    pub transparent_huge_pages: Option<String>,
}

/// Returns the features of this machine.
pub fn features() -> &'static Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    FEATURES.get_or_init(|| {
        let mut features = Features { cache_line: 64, ..Features::default() };
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        x86_64::detect(&mut features);
        if cfg!(all(target_os = "linux", not(any(miri, loom)))) {
            linux_detect(&mut features);
        }
        features
    })
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = if self.model.is_empty() { "unknown processor" } else { &self.model };
        write!(f, "{model}; {}-byte cache lines", self.cache_line)?;
        let flags = [
            ("AVX2", self.avx2),
            ("AVX-512BW", self.avx512bw),
            ("RTM", self.rtm),
            ("invariant TSC", self.invariant_tsc),
        ];
        for (name, has) in flags {
            write!(f, "; {}{name}", if has { "" } else { "no " })?;
        }
        if let Some(bytes) = self.huge_page {
            write!(f, "; {} KiB huge pages", bytes >> 10)?;
        }
        if let Some(mode) = &self.transparent_huge_pages {
            write!(f, ", transparent: {mode}")?;
        }
        Ok(())
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod x86_64 {
    use core::arch::x86_64::{__cpuid_count, CpuidResult};

    use super::Features;

    #[allow(unused_unsafe)] // Safe on later compilers.
    fn cpuid(leaf: u32) -> Option<CpuidResult> {
        // SAFETY: every x86-64 processor has `cpuid`, and its leaves 0 and 0x8000_0000 return the numbers of the last
        // leaves.
        unsafe {
            let last = __cpuid_count(leaf & 0x8000_0000, 0).eax;
            (leaf <= last).then(|| __cpuid_count(leaf, 0))
        }
    }

    pub(super) fn detect(features: &mut Features) {
        features.avx2 = is_x86_feature_detected!("avx2");
        features.avx512bw = is_x86_feature_detected!("avx512bw");
        let (basic, extended) = (cpuid(1), cpuid(7));
        // Bit 11 of EBX: transactions. Bit 11 of EDX: the microcode makes all of them abort ("RTM_ALWAYS_ABORT"); the
        // kernel may then clear the other bit. On other vendors' processors these bits may have any meaning.
        let bits = extended.filter(|_| is_intel()).map_or((false, false), |leaf| (bit_11(leaf.ebx), bit_11(leaf.edx)));
        features.rtm_always_aborts = bits.1;
        features.rtm = bits == (true, false);
        features.invariant_tsc = cpuid(0x8000_0007).is_some_and(|leaf| leaf.edx >> 8 & 1 == 1);
        // The line length on which `clflush` operates, in units of 8 bytes; 0 without this instruction.
        let line = basic.map_or(0, |leaf| (leaf.ebx >> 8 & 0xff) as usize * 8);
        if line != 0 {
            features.cache_line = line;
        }
        features.model = model();
    }

    fn bit_11(register: u32) -> bool {
        register >> 11 & 1 == 1
    }

    fn is_intel() -> bool {
        let name = cpuid(0).map(|leaf| [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat());
        name.as_deref() == Some(b"GenuineIntel")
    }

    fn model() -> String {
        let leaves = (0x8000_0002..=0x8000_0004).filter_map(cpuid);
        let words = leaves.flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).trim().to_string()
    }
}

fn linux_detect(features: &mut Features) {
    let thp = "/sys/kernel/mm/transparent_hugepage";
    let read = |file: &str| std::fs::read_to_string(file).ok();
    features.huge_page = read(&format!("{thp}/hpage_pmd_size")).and_then(|text| text.trim().parse().ok());
    features.transparent_huge_pages = read(&format!("{thp}/enabled")).and_then(|text| chosen(&text));
    if features.model.is_empty() {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let name = cpuinfo.lines().find(|line| line.starts_with("model name") || line.starts_with("Model"));
        features.model = name.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name.trim()).to_string();
    }
}

/// Returns the choice in brackets: `madvise` for `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    text.split_whitespace().find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_string()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn finds_the_choice() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always madvise"), None);
    }

    #[test]
    fn this_machine() {
        let features = features();
        assert!(features.cache_line.is_power_of_two());
        assert!(features.to_string().contains("invariant TSC"));
    }
}
