//! The access rules of a sandboxed command.

use landlock::RulesetCreated;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The access rules of a sandboxed command. All paths are absolute and free of symbolic links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fence {
    /// Files and directories that it may read, and run programs from.
    pub reads: Vec<PathBuf>,
    /// Files and directories in which it may also change everything.
    pub writes: Vec<PathBuf>,
    /// Places within the granted ones that it cannot see. A directory that contains one is granted entry by entry, as
    /// it is when the rules are first used. The directory itself can then not be listed, and new entries directly in it
    /// stay inaccessible.
    pub closed: Vec<PathBuf>,
    /// Places within `writable` that have the same state after the command as before, including absence.
    pub kept: Vec<PathBuf>,
    /// Further protected paths that no mount protects. Only changed ones are restored; a place that disappeared
    /// together with its directory is not recreated.
    #[serde(skip)]
    pub nested: Vec<PathBuf>,
    /// If true, denied paths are hidden by mounts if the system allows it. The directories that contain them can then
    /// be listed, but each command takes a little longer to start.
    #[serde(skip)]
    pub hides: bool,
    /// The process runs long enough for mounts to become outdated: a file that is replaced or created later is a
    /// different file. So directories that contain a denied path are also granted entry by entry, and can be listed.
    #[serde(skip)]
    pub(super) stays: bool,
    /// Protected paths have no mounts. They are read-only instead, and the directories that contain them are granted entry
    /// by entry.
    #[serde(skip)]
    pub(super) withholds: bool,
    /// True if it may open internet sockets. Other sockets are never allowed.
    pub net: bool,
    #[serde(skip)]
    pub(super) ready: Arc<Ready>,
}

/// Values computed once and shared by all commands of a run.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// The Landlock ruleset.
    pub(super) rules: OnceLock<RulesetCreated>,
    /// True if commands can have mounts of their own.
    pub(super) mounts: OnceLock<bool>,
}

impl Fence {
    /// Creates rules without nested places, and without hiding by mounts.
    pub fn new(
        reads: Vec<PathBuf>,
        writes: Vec<PathBuf>,
        closed: Vec<PathBuf>,
        kept: Vec<PathBuf>,
        net: bool,
    ) -> Self {
        Self {
            reads,
            writes,
            closed,
            kept,
            nested: Vec::new(),
            hides: false,
            stays: false,
            withholds: false,
            net,
            ready: Arc::default(),
        }
    }
}
