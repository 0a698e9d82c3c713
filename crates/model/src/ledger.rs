//! The cost ledger: one line per model call in the append-only file `usage.jsonl`.
//!
//! Each line carries the running totals of its day and month, so that a budget check reads only the last line,
//! regardless of the file's size. A call in flight is a file in `usage.under-way` that its process keeps locked. The
//! kernel releases that lock when the process ends, so a killed run needs no cleanup.

use anyhow::{Context, Result};
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};
use nanobot_base::error::{Exit, UserAction, WithHint, fail, fail_with_parts};
use nanobot_base::format::format_dollars;
use nanobot_base::limits::BudgetLimits;
use nanobot_base::message::Usage;
use nanobot_os::age::Age;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::file_lock::{self, with_lock};
use nanobot_os::secret::random_hex;
use nanobot_os::signal;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod cost_sum;
mod entry;
mod rotation;
pub mod tool_usage;

use entry::FORMAT_VERSION;

pub use cost_sum::{CostSum, PeriodCosts, round_usd};
pub use entry::{CallSums, CostTotals, LedgerEntry};
pub use rotation::Rotation;

/// Longest line that is parsed, in bytes. Our lines have a few hundred bytes plus names.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Interval at which a budget reserved by other runs is checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Waiting time before a notice is printed.
const NOTICE_DELAY: Duration = Duration::from_secs(2);
/// Waiting time before giving up: a stopped process keeps its reservation.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum time to wait for the ledger's lock, even if the run is being stopped: the call must be paid for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes read first from the end to find the last line.
const TAIL_BYTES: u64 = 4096;

/// The cost ledger of one user.
#[derive(Clone, Debug)]
pub struct Ledger {
    path: PathBuf,
    /// Directory of the reservations for calls in flight.
    reservations_dir: PathBuf,
    clock: Clock,
}

/// The purpose of a model call.
#[derive(Clone, Debug, Default)]
pub struct CallPurpose {
    pub session: String,
    pub turn: String,
    /// The id of the cron job, if it is one.
    pub job: Option<String>,
    /// The sender of the chat message that it answers, as `CHANNEL:ID`.
    pub sender: Option<String>,
    /// The reason for the call: `turn`, `test`, …
    pub cause: &'static str,
}

/// A finished model call.
#[derive(Clone, Debug)]
pub struct ModelCall<'a> {
    pub purpose: &'a CallPurpose,
    pub provider: &'a str,
    pub model: &'a str,
    pub usage: Usage,
    /// Cost in US dollars; `None` if the price is unknown.
    pub usd: Option<f64>,
    pub duration: Duration,
    /// True if it ended without a complete reply.
    pub failed: bool,
}

/// Costs of chat messages, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChatCosts {
    pub channel: f64,
    pub sender: f64,
}

/// Permission for one call. Its maximum cost is counted as spent until the call is recorded or the reservation is dropped.
#[derive(Debug)]
pub struct Reservation {
    path: PathBuf,
    /// Locked for the lifetime of the reservation.
    _file: File,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // If removal fails, the kernel still releases the lock, and the next reader removes the file.
        drop(std::fs::remove_file(&self.path));
    }
}

impl Ledger {
    /// Opens the ledger in directory `root`, which need not exist.
    pub fn new(root: &Path, clock: &Clock) -> Self {
        Self {
            path: root.join("usage.jsonl"),
            reservations_dir: root.join("usage.under-way"),
            clock: clock.clone(),
        }
    }

    /// Waits until a call that costs at most `max_usd` US dollars may be made: until recorded costs plus reservations
    /// are below each limit. A single call may exceed a limit by its own cost. `session_usd` is the cost of the
    /// session.
    ///
    /// # Errors
    /// Status 4 if a limit is reached, not counting calls in flight; 75 if other runs keep their reservations for longer than the timeout.
    pub fn reserve(
        &self,
        limits: &BudgetLimits,
        session_usd: f64,
        max_usd: f64,
        on_notice: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Reservation> {
        let mut waited = Duration::ZERO;
        loop {
            let mut later_day = None;
            let reservation = self.with_ledger_lock(|log| {
                let Some(end) = self.read_end(log)? else {
                    return Ok(None);
                };
                later_day = end.later_day;
                let totals = end.totals;
                check_limits(limits, &totals, session_usd)?;
                let reserved = self.reserved_usd()?;
                let fits = |limit: Option<f64>, spent: f64| {
                    limit.is_none_or(|limit| spent + reserved < limit)
                };
                if fits(limits.daily, totals.daily) && fits(limits.monthly, totals.monthly) {
                    self.create_reservation(max_usd).map(Some)
                } else {
                    Ok(None)
                }
            })?;
            if let Some(reservation) = reservation {
                if let Some(day) = later_day {
                    on_notice(&format!(
                        "the clock was ahead: the last cost was recorded for {day}, and counts for that day only"
                    ))?;
                }
                return Ok(reservation);
            }
            if waited >= RESERVE_TIMEOUT {
                let cause = "the remaining budget is reserved by other runs; timed out after 600 s";
                let parts = [UserAction::RepeatLater.into()];
                return Err(fail_with_parts(Exit::TryAgain, cause, parts));
            }
            if waited >= NOTICE_DELAY && waited < NOTICE_DELAY + POLL_INTERVAL {
                on_notice("the remaining budget is reserved; waiting for other runs")?;
            }
            signal::sleep(POLL_INTERVAL)?;
            waited += POLL_INTERVAL;
        }
    }

    /// Records a call. `reservation` is the one made for it, and is counted until the line is written.
    pub fn record(&self, call: &ModelCall<'_>, reservation: Option<Reservation>) -> Result<()> {
        // False if the ledger was replaced before it could be locked; the call belongs in the new file.
        let append = |log: &File| {
            let Some(end) = self.read_end(log)? else {
                return Ok(false);
            };
            let mut line = self.format_line(call, &end.totals);
            if end.is_torn {
                line.insert(0, '\n');
            }
            durable_file::append_to(log, &self.path, end.size, line.as_bytes())?;
            Ok(true)
        };
        loop {
            let log = self.open_or_create(durable_file::open_append)?;
            let path = &self.path;
            if file_lock::with_lock_ignoring_signals(&log, path, LOCK_TIMEOUT, || append(&log))? {
                break;
            }
        }
        drop(reservation);
        Ok(())
    }

    /// The line of `call`. `totals` are the costs before it.
    fn format_line(&self, call: &ModelCall<'_>, totals: &CostTotals) -> String {
        let ModelCall {
            purpose: CallPurpose { session, turn, job, sender, cause },
            provider,
            model,
            usage: Usage { input, cached, cache_write, output, reasoning, estimated },
            usd,
            duration,
            failed,
        } = call;
        let entry = LedgerEntry {
            v: FORMAT_VERSION,
            time: self.clock.now().timestamp(),
            day: totals.day,
            session: session.into(),
            turn: turn.into(),
            job: job.as_deref().map(Into::into),
            cause,
            provider: (*provider).into(),
            model: (*model).into(),
            input: *input,
            cached: *cached,
            cache_write: *cache_write,
            output: *output,
            reasoning: *reasoning,
            estimated: *estimated,
            usd: usd.map(round_usd),
            ms: Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
            failed: *failed,
            day_usd: round_usd(totals.daily + usd.unwrap_or(0.0)),
            month_usd: round_usd(totals.monthly + usd.unwrap_or(0.0)),
            sender: sender.as_deref().map(Into::into),
            sums: None,
        };
        entry.to_line()
    }

    /// The cost of a session, in US dollars.
    pub fn session_cost(&self, session: &str) -> Result<f64> {
        let mut sum = 0.0;
        self.for_each_entry(&mut |entry| {
            sum += entry
                .filter(|entry| entry.session == session)
                .and_then(|entry| entry.usd)
                .unwrap_or(0.0);
        })?;
        Ok(sum)
    }

    /// Today's costs of the messages of a channel, and of the messages of one of its senders.
    pub fn chat_costs(&self, channel: &str, sender: &str) -> Result<ChatCosts> {
        let today = self.clock.now().date();
        let mut costs = ChatCosts::default();
        self.for_each_entry(&mut |entry| {
            let Some(entry) = entry.filter(|entry| entry.day == today) else {
                return;
            };
            let address = entry.sender.as_deref().and_then(|sender| sender.split_once(':'));
            if let Some((_, id)) = address.filter(|(name, _)| *name == channel) {
                let usd = entry.usd.unwrap_or(0.0);
                costs.channel += usd;
                costs.sender += if id == sender { usd } else { 0.0 };
            }
        })?;
        Ok(costs)
    }

    /// The costs of this day and month.
    pub fn period_costs(&self) -> Result<PeriodCosts> {
        let today = self.clock.now().date();
        let mut costs = PeriodCosts::default();
        self.for_each_entry(&mut |entry| {
            let Some(entry) = entry else {
                return;
            };
            if entry.day == today {
                costs.today.add_entry(&entry);
            }
            if entry.day > latest_day(today) {
                costs.later_day = costs.later_day.max(Some(entry.day));
                return;
            }
            if entry.day.first_of_month() == today.first_of_month() {
                costs.month.add_entry(&entry);
            }
        })?;
        Ok(costs)
    }

    /// The first day whose calls are kept one by one: the first of the last month.
    pub fn rotation_limit(&self) -> Date {
        let month = self.clock.now().date().first_of_month();
        month.saturating_sub(1.month())
    }

    /// Replaces the calls before the last month by their sums.
    ///
    /// # Errors
    /// The ledger cannot be read or written, or has several hard links.
    pub fn rotate(&self) -> Result<Rotation> {
        self.rewrite(|bytes| rotation::rotate(bytes, self.rotation_limit()))
    }

    /// The first day whose lines are not older than `age`; `None` if all are kept. Those of this month are always kept: the
    /// budgets count them.
    pub fn age_limit(&self, age: Age) -> Option<Date> {
        let now = self.clock.now();
        let limit = Timestamp::try_from(age.limit(now.timestamp().into())?).ok()?;
        let day = limit.to_zoned(now.time_zone().clone()).date();
        Some(day.min(now.date().first_of_month()))
    }

    /// Removes the lines of days before `limit`.
    ///
    /// # Errors
    /// The errors of [`Self::rotate`].
    pub fn remove_before(&self, limit: Date) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        self.rewrite(|bytes| ((), rotation::without_days_before(bytes, limit)))
    }

    /// Replaces the ledger by the second result of `change`, if there is one. The file is replaced while it is locked: a process that
    /// waited for the lock sees that its file has no name any more, and opens the new one.
    fn rewrite<T>(&self, change: impl Fn(&[u8]) -> (T, Option<Vec<u8>>)) -> Result<T> {
        loop {
            let result = self.with_ledger_lock(|log| match self.read_end(log)? {
                Some(_) if log.metadata()?.nlink() > 1 => {
                    let cause = format!("`{}` has several hard links", self.path.display());
                    Err(fail(Exit::Io, cause))
                }
                Some(_) => {
                    let bytes = durable_file::read(&self.path)?.unwrap_or_default();
                    let (result, changed) = change(&bytes);
                    if let Some(changed) = changed {
                        durable_file::replace(&self.path, &changed)?;
                    }
                    Ok(Some(result))
                }
                None => Ok(None),
            })?;
            if let Some(result) = result {
                return Ok(result);
            }
        }
    }

    /// Runs `action` with the open and exclusively locked ledger.
    fn with_ledger_lock<T>(&self, action: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        let log = self.open_or_create(durable_file::open_line_log)?;
        with_lock(&log, &self.path, || action(&log))
    }

    /// Opens the ledger with `open`, after creating its directory if necessary.
    fn open_or_create(&self, open: fn(&Path) -> Result<File>) -> Result<File> {
        match (open(&self.path), self.path.parent()) {
            (Err(_), Some(dir)) if !dir.exists() => {
                durable_file::create_dir(dir)?;
                open(&self.path)
            }
            (log, _) => log,
        }
    }

    /// Passes every line to `each`, oldest first; `None` for an invalid line. Returns true if a call was ever recorded.
    pub fn for_each_entry(&self, each: &mut dyn FnMut(Option<LedgerEntry<'_>>)) -> Result<bool> {
        let mut has_entries = false;
        for_each_line(
            &self.path,
            MAX_LINE_BYTES,
            &mut |line| match line.map(LedgerEntry::parse) {
                Some(Some(entry)) => {
                    has_entries = true;
                    each(Some(entry));
                }
                Some(None) if line.is_some_and(|line| line.trim_ascii().is_empty()) => {}
                Some(None) | None => each(None),
            },
        )?;
        Ok(has_entries)
    }

    /// Reads the end of the ledger, with the costs of this day and month from the last valid line. Lines that were written while the clock
    /// was ahead belong to their own day only, and are skipped. Returns `None` if the file was replaced by another one while this process
    /// waited for its lock.
    fn read_end(&self, log: &File) -> Result<Option<LedgerEnd>> {
        let today = self.clock.now().date();
        let metadata = log.metadata().with_context(|| format!("stat `{}`", self.path.display()))?;
        if metadata.nlink() == 0 {
            return Ok(None);
        }
        let size = metadata.len();
        let mut length = TAIL_BYTES.min(size);
        loop {
            let mut tail = vec![0; usize::try_from(length).context("read the ledger")?];
            log.read_exact_at(&mut tail, size - length)
                .with_context(|| format!("read `{}`", self.path.display()))?;
            // The first line may be cut, and then does not parse.
            let mut lines = tail.split(|byte| *byte == b'\n').rev();
            let mut later_day = None;
            let last = lines.find_map(|line| {
                let totals = LedgerEntry::parse(line)?.totals();
                if totals.day > latest_day(today) {
                    later_day.get_or_insert(totals.day);
                    return None;
                }
                Some(totals)
            });
            if last.is_none() && length < size {
                length = size.min(length * 8);
                continue;
            }
            return Ok(Some(LedgerEnd {
                totals: last.unwrap_or_default().roll_over(today),
                later_day,
                size,
                is_torn: tail.last().is_some_and(|byte| *byte != b'\n'),
            }));
        }
    }

    /// The sum of the reservations, in US dollars. Removes those whose process has ended.
    fn reserved_usd(&self) -> Result<f64> {
        let mut sum = 0.0;
        for entry in durable_file::list_dir(&self.reservations_dir)? {
            let Ok(mut file) = File::open(entry.path()) else {
                continue;
            };
            match file.try_lock_shared() {
                Ok(()) => drop(std::fs::remove_file(entry.path())),
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text)?;
                    sum += text.trim().parse::<f64>().unwrap_or(f64::INFINITY);
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        Ok(sum)
    }

    fn create_reservation(&self, max_usd: f64) -> Result<Reservation> {
        durable_file::create_dir(&self.reservations_dir)?;
        let path = self.reservations_dir.join(random_hex(8));
        let file = durable_file::open_append(&path)?;
        file.try_lock()
            .map_err(|error| fail(Exit::Io, format!("lock `{}`: {error}", path.display())))?;
        durable_file::append_to(&file, &path, 0, format!("{max_usd}\n").as_bytes())?;
        Ok(Reservation { path, _file: file })
    }
}

/// Passes every line of the file at `path` to `each`, with its newline; `None` for a line of at least `max_bytes`. Returns
/// false if there is no file.
///
/// # Errors
/// The file cannot be read, or the run is being stopped.
fn for_each_line(
    path: &Path,
    max_bytes: usize,
    each: &mut dyn FnMut(Option<&[u8]>),
) -> Result<bool> {
    let context = || format!("read `{}`", path.display());
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(false);
    };
    let mut log = BufReader::with_capacity(MAX_LINE_BYTES, file);
    let mut line = Vec::new();
    loop {
        signal::check()?;
        line.clear();
        let count = (&mut log).take(max_bytes as u64).read_until(b'\n', &mut line);
        if count.with_context(context)? == 0 {
            return Ok(true);
        }
        if line.len() == max_bytes && !line.ends_with(b"\n") {
            log.skip_until(b'\n').with_context(context)?;
            each(None);
        } else {
            each(Some(&line));
        }
    }
}

struct LedgerEnd {
    totals: CostTotals,
    /// The day of the last line, if that is later than a time zone can explain.
    later_day: Option<Date>,
    /// Size of the file in bytes.
    size: u64,
    /// True if the last line has no newline.
    is_torn: bool,
}

/// The latest day that can be today somewhere: the local date and those of other time zones differ by one day at most.
fn latest_day(today: Date) -> Date {
    today.tomorrow().unwrap_or(today)
}

fn check_limits(limits: &BudgetLimits, totals: &CostTotals, session_usd: f64) -> Result<()> {
    for (name, limit, spent, until) in [
        ("daily", limits.daily, totals.daily, "tomorrow"),
        ("monthly", limits.monthly, totals.monthly, "next month"),
        ("perSession", limits.per_session, session_usd, "another session"),
    ] {
        if let Some(limit) = limit.filter(|limit| spent >= *limit) {
            let spent = format_dollars(spent);
            let cause = format!("`budget.{name}` limit of ${limit} reached (${spent} spent)");
            let hint = format!(
                "`nanobot config set budget.{name} …` with a higher limit, or {until}; `nanobot usage` shows the costs"
            );
            return Err(fail(Exit::Budget, cause).with_hint(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BudgetLimits, CallPurpose, Ledger, MAX_LINE_BYTES, ModelCall};
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_base::format::format_dollars;
    use nanobot_base::message::Usage;
    use nanobot_os::clock::Clock;
    use std::path::Path;
    use std::time::Duration;

    fn ledger_at(root: &Path, time: &str) -> Ledger {
        Ledger::new(root, &Clock::Fixed(time.parse().unwrap()))
    }

    fn record_cost(ledger: &Ledger, session: &str, usd: f64) {
        let purpose = CallPurpose { session: session.into(), ..CallPurpose::default() };
        let call = ModelCall {
            purpose: &purpose,
            provider: "p",
            model: "m",
            usage: Usage::default(),
            usd: Some(usd),
            duration: Duration::ZERO,
            failed: false,
        };
        ledger.record(&call, None).unwrap();
    }

    fn try_reserve(ledger: &Ledger, limits: BudgetLimits) -> Result<(), Exit> {
        let session_usd = ledger.session_cost("s").unwrap();
        let reservation = ledger.reserve(&limits, session_usd, 0.5, &mut |_| Ok(()));
        reservation.map(drop).map_err(|error| exit_for(&error))
    }

    #[test]
    fn totals_reset_each_day_and_month() {
        let folder = tempfile::tempdir().unwrap();
        let limits = BudgetLimits { daily: Some(1.0), monthly: Some(2.5), per_session: None };
        let check = |day: &str, expect| {
            let ledger = ledger_at(folder.path(), &format!("{day}T12:00:00Z"));
            assert_eq!(try_reserve(&ledger, limits), expect, "{day}");
            ledger
        };
        record_cost(&check("2026-01-30", Ok(())), "s", 1.0);
        check("2026-01-30", Err(Exit::Budget));
        record_cost(&check("2026-01-31", Ok(())), "s", 1.6);
        check("2026-01-31", Err(Exit::Budget));
        let ledger = check("2026-02-01", Ok(()));
        let mut lines = 0;
        ledger.for_each_entry(&mut |_| lines += 1).unwrap();
        assert_eq!(lines, 2);
    }

    #[test]
    fn a_session_has_its_own_budget() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = ledger_at(folder.path(), "2026-01-01T00:00:00Z");
        let limits = BudgetLimits { per_session: Some(1.0), ..BudgetLimits::default() };
        record_cost(&ledger, "other", 5.0);
        assert_eq!(try_reserve(&ledger, limits), Ok(()));
        record_cost(&ledger, "s", 0.4);
        record_cost(&ledger, "s", 0.6);
        assert_eq!(try_reserve(&ledger, limits), Err(Exit::Budget));
    }

    #[test]
    fn a_torn_or_invalid_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = ledger_at(folder.path(), "2026-01-01T00:00:00Z");
        record_cost(&ledger, "s", 1.0);
        let path = folder.path().join("usage.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"odd\": 1}\n");
        text.push_str(&"x".repeat(10_000));
        text.push_str("\n{\"v\": 1, \"da");
        std::fs::write(&path, text).unwrap();
        let limits = BudgetLimits { daily: Some(1.0), ..BudgetLimits::default() };
        assert_eq!(try_reserve(&ledger, limits), Err(Exit::Budget));
        record_cost(&ledger, "s", 1.0);
        assert_eq!(ledger.period_costs().unwrap().today.usd, 2.0);
    }

    #[test]
    fn costs_recorded_while_the_clock_was_ahead_count_for_their_day() {
        let folder = tempfile::tempdir().unwrap();
        let at = |day: &str| ledger_at(folder.path(), &format!("{day}T12:00:00Z"));
        let limits = BudgetLimits { daily: Some(1.0), monthly: Some(2.0), per_session: None };
        record_cost(&at("2026-01-30"), "s", 0.4);
        for _ in 0..30 {
            record_cost(&at("2027-05-01"), "s", 0.5);
        }
        assert_eq!(try_reserve(&at("2027-05-01"), limits), Err(Exit::Budget));
        let mut notices = Vec::new();
        let mut notice = |text: &str| {
            notices.push(text.to_owned());
            Ok(())
        };
        let now = at("2026-01-30");
        drop(now.reserve(&limits, 0.0, 0.5, &mut notice).unwrap());
        assert!(notices[0].contains("2027-05-01"), "{notices:?}");
        assert_eq!(now.period_costs().unwrap().today.usd, 0.4);
        record_cost(&now, "s", 0.6);
        assert_eq!(try_reserve(&now, limits), Err(Exit::Budget));
        // A time zone further east may already have the next day.
        record_cost(&at("2026-01-31"), "s", 0.6);
        assert_eq!(try_reserve(&now, limits), Ok(()));
        record_cost(&now, "s", 0.6);
        assert_eq!(try_reserve(&now, limits), Err(Exit::Budget));
    }

    #[test]
    fn amounts_are_readable() {
        for (usd, expect) in
            [(0.0, "0.00"), (12.345, "12.35"), (0.25, "0.2500"), (0.0004, "0.000400")]
        {
            assert_eq!(format_dollars(usd), expect);
        }
    }

    #[test]
    fn entries_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let at = |time: &str| Ledger::new(folder.path(), &Clock::Fixed(time.parse().unwrap()));
        let ledger = at("2026-01-30T12:00:00Z");
        assert!(!ledger.for_each_entry(&mut |_| panic!("a line")).unwrap());
        let purpose = CallPurpose {
            session: "a \"quoted\" one".into(),
            turn: "t".into(),
            job: Some("j".into()),
            sender: Some("telegram:7".into()),
            cause: "turn",
        };
        let call = ModelCall {
            purpose: &purpose,
            provider: "p",
            model: "m",
            usage: Usage { input: 9, cached: 4, ..Usage::default() },
            usd: Some(0.5),
            duration: Duration::ZERO,
            failed: true,
        };
        ledger.record(&call, None).unwrap();
        let path = folder.path().join("usage.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(&"x".repeat(3 * MAX_LINE_BYTES));
        text.push_str("\n\n{\"v\": 2}\n[]\n");
        std::fs::write(&path, text).unwrap();
        ledger.record(&call, None).unwrap();
        let (mut valid, mut invalid) = (0, 0);
        let each = &mut |entry: Option<super::LedgerEntry<'_>>| match entry {
            None => invalid += 1,
            Some(entry) => {
                valid += 1;
                assert_eq!(entry.session, "a \"quoted\" one");
                assert_eq!(entry.job.as_deref(), Some("j"));
                assert_eq!(entry.sender.as_deref(), Some("telegram:7"));
                assert_eq!((entry.input, entry.cached, entry.usd), (9, 4, Some(0.5)));
                assert!(entry.failed);
            }
        };
        let later = at("2026-01-31T12:00:00Z");
        assert!(later.for_each_entry(each).unwrap());
        assert_eq!((valid, invalid), (2, 3));
        let costs = later.period_costs().unwrap();
        assert_eq!((costs.today.usd, costs.month.usd), (0.0, 1.0));
    }
}
