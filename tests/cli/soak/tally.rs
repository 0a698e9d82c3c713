//! Counts of what has happened in a household.

use std::collections::BTreeMap;

/// Counts of what has happened.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) messages: usize,
    pub(super) lines: usize,
    pub(super) typed: usize,
    pub(super) slots: usize,
    pub(super) kills: usize,
    pub(super) kills_of_long_lived: usize,
    pub(super) sleeps: usize,
    pub(super) clocks_set_back: usize,
    pub(super) full_disks: usize,
    pub(super) broken_networks: usize,
    pub(super) broken_models: usize,
    /// Messages and lines that were answered with the notice that they were interrupted.
    pub(super) given_up: usize,
    /// Answers that came twice at services that cannot recognise them.
    pub(super) repeated: usize,
    /// The most open files of each process that lives on, in its first round and later.
    pub(super) open_files: BTreeMap<&'static str, (usize, usize)>,
    /// The same for anonymous memory, in KiB.
    pub(super) memory: BTreeMap<&'static str, (u64, u64)>,
}

impl Tally {
    /// Asserts that there was trouble of each kind.
    pub(super) fn assert_complete(&self) {
        let counts = [
            self.messages,
            self.lines,
            self.typed,
            self.slots,
            self.kills,
            self.kills_of_long_lived,
            self.sleeps,
            self.clocks_set_back,
            self.full_disks,
            self.broken_networks,
            self.broken_models,
        ];
        assert!(counts.iter().all(|count| *count > 0), "{self:?}");
    }
}
