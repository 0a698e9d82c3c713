//! The machine's name.

/// Returns the host name; empty if it cannot be read.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.unwrap_or_default().trim().to_owned()
}
