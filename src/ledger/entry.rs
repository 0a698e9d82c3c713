//! The ledger as it is read: line by line, so that the length of the file costs no memory.

use super::{Ledger, Totals};
use crate::sys::signal;
use anyhow::{Context, Result};
use jiff::{Timestamp, civil::Date};
use serde::Deserialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};

/// The longest line that is looked at. Those we write have some hundred bytes, and names.
const LONGEST: usize = 64 << 10;

/// One call of a model, as it was written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    pub time: Timestamp,
    /// As the clock on the wall had it.
    pub day: Date,
    pub session: Cow<'a, str>,
    pub turn: Cow<'a, str>,
    pub job: Option<Cow<'a, str>>,
    pub provider: Cow<'a, str>,
    pub model: Cow<'a, str>,
    /// Tokens, with those read from the provider's cache and written to it.
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
    /// The tokens are a guess.
    pub estimated: bool,
    /// `None` where no price was known.
    pub usd: Option<f64>,
    pub failed: bool,
}

/// A line, as far as it is read.
#[derive(Deserialize)]
struct Written<'a> {
    v: u64,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    day: Cow<'a, str>,
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    turn: Cow<'a, str>,
    job: Option<Cow<'a, str>>,
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
    estimated: bool,
    usd: Option<f64>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    day_usd: f64,
    month_usd: f64,
}

impl Ledger {
    /// Hand over each line, from the oldest; `None` for one that is no entry. What this day and this month have cost, as
    /// budgets have it; `None` where nothing was ever written.
    pub fn entries(&self, each: &mut dyn FnMut(Option<Entry<'_>>)) -> Result<Option<Totals>> {
        let reading = || format!("read `{}`", self.path.display());
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(reading),
        };
        let mut log = BufReader::with_capacity(LONGEST, file);
        let mut line = Vec::new();
        let mut totals = None;
        loop {
            signal::check()?;
            line.clear();
            let count = (&mut log).take(LONGEST as u64).read_until(b'\n', &mut line);
            if count.with_context(reading)? == 0 {
                break;
            }
            if line.len() == LONGEST && !line.ends_with(b"\n") {
                log.skip_until(b'\n').with_context(reading)?;
                each(None);
                continue;
            }
            match entry(&line) {
                Some((entry, spent)) => {
                    totals = Some(spent);
                    each(Some(entry));
                }
                None if line.trim_ascii().is_empty() => {}
                None => each(None),
            }
        }
        let today = self.clock.now().date().to_string();
        Ok(totals.map(|totals| totals.on(&today)))
    }
}

pub(super) fn entry(line: &[u8]) -> Option<(Entry<'_>, Totals)> {
    let written: Written<'_> = serde_json::from_slice(line).ok()?;
    let entry = Entry {
        time: written.time.parse().ok()?,
        day: written.day.parse().ok()?,
        session: written.session,
        turn: written.turn,
        job: written.job,
        provider: written.provider,
        model: written.model,
        input: written.input,
        cached: written.cached,
        cache_write: written.cache_write,
        output: written.output,
        reasoning: written.reasoning,
        estimated: written.estimated,
        usd: written.usd,
        failed: written.outcome != "ok",
    };
    let totals = Totals {
        day: written.day.into_owned(),
        daily: written.day_usd,
        monthly: written.month_usd,
    };
    (written.v == 1).then_some((entry, totals))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Ledger};
    use crate::ledger::{Account, Call};
    use crate::message::Usage;
    use crate::sys::clock::Clock;
    use std::time::Duration;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |time: &str| Ledger::new(folder.path(), &Clock::Fixed(time.parse().unwrap()));
        let ledger = at("2026-01-30T12:00:00Z");
        assert_eq!(ledger.entries(&mut |_| panic!("a line")).unwrap(), None);
        let account = Account {
            session: "a \"quoted\" one".into(),
            turn: "t".into(),
            job: Some("j".into()),
            cause: "turn",
        };
        let call = Call {
            account: &account,
            provider: "p",
            model: "m",
            usage: Usage {
                input: 9,
                cached: 4,
                ..Usage::default()
            },
            usd: Some(0.5),
            duration: Duration::ZERO,
            failed: true,
        };
        ledger.record(&call, None).unwrap();
        let path = folder.path().join("usage.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str(&"x".repeat(3 * LONGEST));
        text.push_str("\n\n{\"v\": 2}\n[]\n");
        std::fs::write(&path, text).unwrap();
        ledger.record(&call, None).unwrap();
        let (mut found, mut odd) = (0, 0);
        let each = &mut |entry: Option<super::Entry<'_>>| match entry {
            None => odd += 1,
            Some(entry) => {
                found += 1;
                assert_eq!(entry.session, "a \"quoted\" one");
                assert_eq!(entry.job.as_deref(), Some("j"));
                assert_eq!((entry.input, entry.cached, entry.usd), (9, 4, Some(0.5)));
                assert!(entry.failed);
            }
        };
        let totals = at("2026-01-31T12:00:00Z").entries(each).unwrap().unwrap();
        assert_eq!((found, odd), (2, 3));
        assert_eq!((totals.daily, totals.monthly), (0.0, 1.0));
    }
}
