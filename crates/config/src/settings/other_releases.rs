//! The names of keys in other releases.

/// Obsolete keys and their replacements, as `(old, new)`.
pub(crate) const RENAMED_KEYS: &[(&str, &str)] = &[
    ("agents.defaults.maxIterations", "agents.defaults.maxToolIterations"),
    ("agents.defaults.sessionTtlMinutes", "agents.defaults.idleCompactAfterMinutes"),
    ("tools.exec.restrictToWorkspace", "tools.restrictToWorkspace"),
    ("tools.myEnabled", "tools.my.enable"),
    ("tools.mySet", "tools.my.allowSet"),
    ("channels.matrix.e2eeEnabled", "channels.matrix.e2EeEnabled"),
];

/// The top-level keys that nanobot 0.1.4 knows. It rejects the whole file if there is any other.
pub(crate) const TOP_LEVEL_KEYS_0_1_4: &[&str] =
    &["agents", "channels", "providers", "gateway", "tools"];
