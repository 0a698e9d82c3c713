//! The trouble: clocks that jump, processes that are killed, a full disk, broken networks, and their end.

use super::DISK_BYTES;
use super::household::Household;
use super::network::Fault;
use super::processes;
use jiff::SignedDuration;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Of the rounds, one in so many has this trouble.
const ROUNDS_PER_SLEEP: usize = 6;
const ROUNDS_PER_CLOCK_SET_BACK: usize = 6;
const ROUNDS_PER_FULL_DISK: usize = 4;
const ROUNDS_PER_BROKEN_MODEL: usize = 3;
const CHANNELS_PER_BROKEN_NETWORK: usize = 8;
/// Of the kills, one in so many hits a process that lives on from round to round.
const KILLS_PER_LONG_LIVED: usize = 6;
const MAX_KILLS: usize = 5;
const MAX_PAUSE: Duration = Duration::from_millis(400);

impl Household<'_> {
    /// The next hour; now and then the machine has slept, or its clock is set back.
    pub(super) fn move_clock(&mut self, round: usize) {
        let hours = if self.happens(round, ROUNDS_PER_SLEEP, 2) {
            self.tally.sleeps += 1;
            2 + self.random.next_below(30)
        } else {
            1
        };
        let hours = i64::try_from(hours).unwrap();
        self.clock += SignedDuration::from_hours(hours);
        if self.happens(round, ROUNDS_PER_CLOCK_SET_BACK, 4) {
            self.tally.clocks_set_back += 1;
            let back = i64::try_from(1 + self.random.next_below(3)).unwrap();
            self.clock -= SignedDuration::from_hours(back);
        }
        self.latest_clock = self.latest_clock.max(self.clock);
    }

    pub(super) fn happens(&mut self, round: usize, rounds_each: usize, offset: usize) -> bool {
        // In the first rounds each kind of trouble comes once, and later at random.
        if round <= rounds_each {
            round == offset
        } else {
            self.random.next_below(rounds_each) == 0
        }
    }

    pub(super) fn make_trouble(&mut self, round: usize) {
        let is_broken = self.happens(round, ROUNDS_PER_BROKEN_MODEL, 3);
        if is_broken {
            self.tally.broken_models += 1;
            *self.model_fault.lock().unwrap() = Fault::any(&mut self.random);
        }
        for index in 0..self.services.len() {
            if self.random.next_below(CHANNELS_PER_BROKEN_NETWORK) == 0 {
                self.tally.broken_networks += 1;
                self.services[index].set(Fault::any(&mut self.random));
            }
        }
        let is_full = self.happens(round, ROUNDS_PER_FULL_DISK, 1);
        let kills = self.random.next_below(MAX_KILLS + 1);
        for kill in 0..=kills {
            if kill == kills / 2 && is_full {
                self.fill_disk();
            }
            self.pause();
            if kill < kills {
                self.kill_one();
            }
        }
    }

    /// Lets a random time pass, in which anything may be under way.
    pub(super) fn pause(&mut self) {
        let share = u32::try_from(self.random.next_below(1000)).unwrap();
        std::thread::sleep(MAX_PAUSE / 1000 * share);
    }

    pub(super) fn fill_disk(&mut self) {
        let usage = rustix::fs::statvfs(&self.disk).unwrap();
        self.resize_disk((usage.f_blocks - usage.f_bfree) * usage.f_frsize);
        self.tally.full_disks += 1;
    }

    pub(super) fn resize_disk(&self, bytes: u64) {
        let size = format!("remount,size={bytes}");
        let mut mount = Command::new("mount");
        // More may be in use than a moment ago.
        let mount = mount.args(["-o", &size]).arg(&self.disk).stderr(Stdio::null());
        mount.status().unwrap();
    }

    pub(super) fn kill_one(&mut self) {
        let living = self.living();
        let picks_living = self.random.next_below(KILLS_PER_LONG_LIVED) == 0;
        let mut all = processes::all();
        all.retain(|process| living.contains(&process.id) == picks_living && !process.is_zombie);
        if all.is_empty() {
            return;
        }
        let victim = all[self.random.next_below(all.len())].id;
        let id = Pid::from_raw(i32::try_from(victim).unwrap()).unwrap();
        // It may have ended.
        if kill_process(id, Signal::KILL).is_ok() {
            self.tally.kills += 1;
            self.tally.kills_of_long_lived += usize::from(picks_living);
        }
    }

    pub(super) fn make_peace(&mut self) {
        self.resize_disk(DISK_BYTES);
        *self.model_fault.lock().unwrap() = Fault::None;
        for service in self.services.iter_mut().filter(|service| service.is_broken) {
            service.set(Fault::None);
        }
    }
}
