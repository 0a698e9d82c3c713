//! What a sandboxed command may reach.

use landlock::RulesetCreated;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What a command may reach. All paths are absolute and without links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fence {
    /// Beneath these it may read, and run programs.
    pub reads: Vec<PathBuf>,
    /// Beneath these it may also change everything.
    pub writes: Vec<PathBuf>,
    /// Places beneath the others that it does not see. What contains one is granted part by part, as it stands when the
    /// fence is first used: then it cannot itself be listed, and what is new directly in it stays closed.
    pub closed: Vec<PathBuf>,
    /// Places beneath `writes` that are as they were after the command, or are not there if they were not.
    pub kept: Vec<PathBuf>,
    /// More of these, which no mount holds: only what was changed is put back, and what went with the directory that it
    /// was in stays away.
    #[serde(skip)]
    pub nested: Vec<PathBuf>,
    /// Closed places are hidden by mounts where that can be had: then what contains them can be listed, and each command
    /// takes a little longer to start.
    #[serde(skip)]
    pub hides: bool,
    /// It outlives what mounts can say: a file that is replaced, or made later, is another one. So what contains a closed
    /// place is granted part by part besides, and can be listed.
    #[serde(skip)]
    pub(super) stays: bool,
    /// No mounts hold what is kept: then that is read, and what contains it is granted part by part.
    #[serde(skip)]
    pub(super) withholds: bool,
    /// Whether it may open sockets of the internet. Others it never may.
    pub net: bool,
    #[serde(skip)]
    pub(super) ready: Arc<Ready>,
}

/// What is found out once, and shared by every command of a run.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// The kernel's form of the rules.
    pub(super) rules: OnceLock<RulesetCreated>,
    /// Whether commands can have mounts of their own.
    pub(super) mounts: OnceLock<bool>,
}

impl Fence {
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
