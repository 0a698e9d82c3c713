//! The sandbox for commands: Landlock for files, seccomp for everything else that leads out, no capabilities.
//!
//! All of it is put on a thread, which then starts the command: the child inherits it, the rest of the program stays
//! free, and nothing of it needs unsafe code. What is asked for is kept or refused, never silently weaker.

mod calls;
mod fence;
mod kept;
mod mounts;
pub mod private;
mod repository;
mod rules;
pub mod startup;
pub mod system;
pub mod trial;

pub use calls::Ours;
pub use fence::Fence;
pub use kept::Remembered;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rules::Right;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// What Landlock must be able to do at least: its third version is the first that lets nobody truncate from outside.
const LEAST: ABI = ABI::V3;
/// What is used where the kernel has it.
const MOST: ABI = ABI::V9;

/// Why there is no sandbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    #[error("this kernel has no Landlock, or one from before Linux 6.2, or it is turned off")]
    Landlock,
    #[error("this kernel filters no system calls (seccomp)")]
    Seccomp,
    #[error("this architecture is not supported")]
    Architecture,
}

/// Whether commands can be fenced here. Tried once, on a thread that then ends.
///
/// # Errors
/// What is missing.
pub fn available() -> Result<(), Lack> {
    static FOUND: LazyLock<Result<(), Lack>> = LazyLock::new(|| {
        let tried = on_thread(|| {
            if calls::ARCHITECTURE.is_none() {
                return Err(Lack::Architecture);
            }
            let landlock = ruleset(false).and_then(restrict);
            landlock.map_err(|_| Lack::Landlock)?;
            calls::apply(false, &Ours::now()).map_err(|_| Lack::Seccomp)
        });
        tried.unwrap_or(Err(Lack::Seccomp))
    });
    FOUND.clone()
}

impl Fence {
    /// Do `work` on a thread that is fenced in, and that ends with it. `ours` are not to be signalled from there.
    ///
    /// # Errors
    /// Those of `work`; also where any part of the fence cannot be put up, and then `work` is not done.
    pub fn around<T: Send>(
        &self,
        ours: &Ours,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        available().map_err(io::Error::other)?;
        let ruleset = self.ruleset()?;
        on_thread(|| {
            self.close(ruleset, ours)?;
            work()
        })?
    }

    /// Put the fence around this thread, for good.
    fn close(&self, ruleset: RulesetCreated, ours: &Ours) -> io::Result<()> {
        drop_capabilities()?;
        restrict(ruleset)?;
        calls::apply(self.net, ours)
    }

    /// Put the fence around this whole process, which must have one thread, with mounts of its own: those hold what is
    /// kept, and hide what is closed, so that what contains it can be granted as a whole. `ours` is who started it.
    ///
    /// # Errors
    /// The system refuses any part of it; then the process is not to go on.
    pub fn close_with_mounts(self, ours: &Ours) -> io::Result<()> {
        let mut left = self.mounted()?;
        left.closed = Vec::new();
        let ruleset = left.ruleset()?;
        left.close(ruleset, ours)
    }

    /// What of the fence is still to be put up around a child of this process that stays. Where `with_mounts` says so this
    /// whole process, which must have one thread, gets mounts of its own; elsewhere what they would keep is not granted.
    ///
    /// # Errors
    /// As [`Self::close_with_mounts`].
    pub fn for_long(self, with_mounts: bool) -> io::Result<Self> {
        let mut left = match with_mounts {
            true => self.mounted()?,
            false => self,
        };
        left.stays = with_mounts;
        left.withholds = !with_mounts;
        left.ready = Arc::default();
        Ok(left)
    }

    fn mounted(mut self) -> io::Result<Self> {
        mounts::arrange(&self)?;
        self.writes.push(PathBuf::from(mounts::SHARED_MEMORY));
        // Rules that were made before are those of other mounts.
        self.ready = Arc::default();
        Ok(self)
    }

    /// Whether commands get mounts of their own. `probe` tries it, once, where that would be of use.
    pub fn has_mounts(&self, probe: impl FnOnce() -> bool) -> bool {
        *self
            .ready
            .mounts
            .get_or_init(|| mounts::are_wanted(self) && probe())
    }

    /// Remember what no mount keeps.
    ///
    /// # Errors
    /// As [`Remembered::of`].
    pub fn remember(&self, has_mounts: bool) -> io::Result<Remembered> {
        // What is hidden while it exists is not to come into being either.
        let is_new = |path: &&PathBuf| {
            self.writes.iter().any(|root| path.starts_with(root)) && !path.exists()
        };
        let closed = self.closed.iter().filter(is_new);
        // Around a closed place only what is there is granted, part by part: nothing new comes into being, and what our other
        // runs write there meanwhile must not be put back. Where mounts hide it, a mount holds it too.
        let is_around = |place: &&PathBuf| {
            let beneath = |closed: &PathBuf| closed != *place && closed.starts_with(place);
            self.closed.iter().any(beneath)
        };
        let kept = self
            .kept
            .iter()
            .filter(|place| has_mounts || !is_around(place));
        let kept: Vec<PathBuf> = kept.chain(closed).cloned().collect();
        Remembered::of(&self.writes, &kept, &self.nested, has_mounts)
    }

    /// The rules as the kernel has them, made once.
    fn ruleset(&self) -> io::Result<RulesetCreated> {
        if let Some(made) = self.ready.rules.get() {
            return made.try_clone();
        }
        let mut made = ruleset(self.net)?;
        for rule in rules::of(self)? {
            // What has gone meanwhile, or has become a link, is not granted.
            let Ok(place) = rules::open(&rule.path) else {
                continue;
            };
            let is_directory = rule.is_directory;
            let access = access(rule.right, is_directory);
            made = made
                .add_rule(PathBeneath::new(place, access))
                .map_err(io::Error::other)?;
        }
        let clone = made.try_clone()?;
        // Should another thread have been faster, its rules are the same.
        drop(self.ready.rules.set(made));
        Ok(clone)
    }
}

/// A fence without any rule: nothing may be reached.
fn ruleset(net: bool) -> io::Result<RulesetCreated> {
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
        .and_then(|ruleset| ruleset.handle_access(AccessFs::from_all(MOST)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(MOST)))
        .and_then(|ruleset| match net {
            true => Ok(ruleset),
            // The filter of system calls is what keeps the network shut; for TCP this is a second door behind it.
            false => ruleset.handle_access(AccessNet::from_all(MOST)),
        })
        .and_then(|ruleset| ruleset.create());
    made.map_err(io::Error::other)
}

/// Put it on this thread.
fn restrict(ruleset: RulesetCreated) -> io::Result<()> {
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    // Without Landlock the crate says yes and does nothing.
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::other(Lack::Landlock)),
        _ => Ok(()),
    }
}

fn access(right: Right, is_directory: bool) -> BitFlags<AccessFs> {
    let granted = match right {
        Right::List => AccessFs::ReadDir.into(),
        Right::Read => AccessFs::from_read(MOST),
        Right::Use => {
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
        }
        // Devices are the system's.
        Right::Write => AccessFs::from_all(MOST) & !(AccessFs::MakeChar | AccessFs::MakeBlock),
    };
    match is_directory {
        true => granted,
        false => granted & AccessFs::from_file(MOST),
    }
}

/// Root too may do no more than its files' modes let it.
fn drop_capabilities() -> io::Result<()> {
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    rustix::thread::set_no_new_privs(true)?;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// What `work` comes to on a thread of its own: whatever it puts on that thread goes with it.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread
            .join()
            .map_err(|_| io::Error::other("the thread of the command panicked"))
    })
}
