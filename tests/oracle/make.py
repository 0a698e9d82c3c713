# /// script
# requires-python = ">=3.11"
# dependencies = ["cronsim==2.8", "croniter==7.0.0", "tzdata==2025.2"]
# ///
"""The runs of Debian's cron, computed by independent programs.

    python make.py              write slots.json and runs.json, from cases.json and lines.json
    python make.py slots ZONE EXPRESSION
    python make.py runs ZONE JOB
                                print one complete list, to find differences

The slots of an expression are computed by `cronsim`, which follows Debian's cron. Around each clock change, a model of that
cron's loop computes them again, minute by minute, as described by cron(8) and its comments: after a clock change of less
than three hours, jobs at fixed times are caught up, and those with a star are not. Both must agree, except for the cases in
CRONSIM_IS_WRONG.

The runs are those of a machine whose cron, the same model, executes lines.json, and which is switched off, sleeps, and has
its clock set as in cases.json. A run that cron starts checks whether it is due, by the rules of `due` below, with
the slots above. On undisturbed days the runs must equal the slots.
"""

import json
import os
import sys
from bisect import bisect_left, bisect_right
from concurrent.futures import ProcessPoolExecutor
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from zlib import crc32

os.environ["PYTHONTZPATH"] = ""  # the zones of the package, whatever the system's are

from zoneinfo import ZoneInfo  # noqa: E402

from croniter import croniter  # noqa: E402
from cronsim import CronSim  # noqa: E402

HERE = Path(__file__).parent
CASES = json.loads((HERE / "cases.json").read_text())
UTC = timezone.utc
MINUTE, HOUR, DAY = 60, 3600, 86400
FROM = int(datetime(CASES["from"], 1, 1, tzinfo=UTC).timestamp())
TO = int(datetime(CASES["to"], 1, 1, tzinfo=UTC).timestamp())

# It jumps by hours, then to a minute of the hour, and so misses some slots if the clock changes within an hour.
CRONSIM_IS_WRONG = {
    ("30 * * * *", "Australia/Lord_Howe"),
    ("*/30 2 * * *", "Australia/Lord_Howe"),
    ("* 2 * * *", "Australia/Lord_Howe"),
    ("* 2 * * *", "Pacific/Chatham"),
}


# --- cron expressions -------------------------------------------------------------------------------------------------


class Names:
    """The minutes, hours and days of five fields, independent of clock changes."""

    def __init__(self, text, days=None):
        fields = text.upper().split()
        self.wild = fields[0].startswith("*") or fields[1].startswith("*")
        if days:  # a kind of day that only croniter knows
            start = datetime(CASES["from"] - 1, 12, 1, tzinfo=UTC)
            known = set()
            for day in croniter(days, start, ret_type=datetime):
                if day.year > CASES["to"]:
                    break
                known.add(day.date())
            self.day = known.__contains__
            fields[2:] = ["*", "*", "*"]
        parsed = CronSim(" ".join(fields), datetime(2024, 1, 1))
        self.minutes, self.hours = parsed.minutes, parsed.hours
        if not days:
            self.day = lambda day: day.month in parsed.months and parsed.match_day(day)
        self.known_days = {}

    def on(self, day):
        if day not in self.known_days:
            self.known_days[day] = self.day(day)
        return self.known_days[day]

    def names(self, local):
        """True if they match this minute, counted since 1970 by a local clock."""
        hour, minute = divmod(local % 1440, 60)
        return minute in self.minutes and hour in self.hours and self.on(DAYS[local // 1440])


DAYS = {}
for number in range((TO - FROM) // DAY + 800):
    day = date(CASES["from"] - 1, 1, 1) + timedelta(days=number)
    DAYS[(day - date(1970, 1, 1)).days] = day


class Zone:
    def __init__(self, name):
        self.name, self.info = name, ZoneInfo(name)
        self.changes, self.offsets = [], [self.look(FROM - 400 * DAY)]
        last = FROM - 400 * DAY
        for time in range(last, TO + 400 * DAY, HOUR // 2):
            offset = self.look(time)
            if offset != self.offsets[-1]:
                # Clock changes are at quarters of an hour.
                change = next(t for t in range(last, time + 1, 900) if self.look(t) == offset)
                self.changes.append(change)
                self.offsets.append(offset)
            last = time

    def look(self, time):
        return int(datetime.fromtimestamp(time, self.info).utcoffset().total_seconds())

    def offset(self, time):
        return self.offsets[bisect_right(self.changes, time)]

    def local(self, time):
        """Minutes since 1970 by the local clock."""
        return (time + self.offset(time)) // MINUTE


# --- Debian's cron ----------------------------------------------------------------------------------------------------


class Cron:
    """The loop of the daemon. `wake` returns the local minutes to check, and for which kinds of lines."""

    def __init__(self, local):
        self.virtual = self.seen = local

    def wake(self, local):
        """A list of (minute, lines with a star, lines without)."""
        if local == self.seen:
            return []
        self.seen = local
        ahead = local - self.virtual
        if 0 < ahead <= 5:  # late, at most: each minute as if in time
            minutes = [(minute, True, True) for minute in range(self.virtual + 1, local + 1)]
            self.virtual = local
        elif 5 < ahead <= 180:  # the clock was set forward: fixed times that it skipped are made up for
            minutes = [(local, True, False)]
            minutes += [(minute, False, True) for minute in range(self.virtual + 1, local + 1)]
            self.virtual = local
        elif -180 < ahead <= 0:  # set back: fixed times wait until the clock is where it was
            minutes = [(local, True, False)]
        else:  # so much that it must have been wrong
            minutes = [(local, True, True)]
            self.virtual = local
        return minutes


def model(names, zone):
    """The slots of five fields, by the rules of Debian's cron."""
    slots = []
    near = set()
    for change in zone.changes:
        day = zone.local(change) // 1440
        near |= {day - 1, day, day + 1}
    day, end = FROM // DAY - 1, TO // DAY + 1
    while day <= end:
        if day not in near:
            if names.on(DAYS[day]):
                noon = zone.offset(day * DAY + DAY // 2)
                for hour in sorted(names.hours):
                    for minute in sorted(names.minutes):
                        slots.append(day * DAY + hour * HOUR + minute * MINUTE - noon)
            day += 1
            continue
        first = day
        while day in near:
            day += 1
        start = first * DAY - zone.offset(first * DAY - DAY // 2)
        stop = day * DAY - zone.offset(day * DAY + DAY // 2)
        cron = Cron(zone.local(start - MINUTE))
        for time in range(start, stop, MINUTE):
            for minute, wild, fixed in cron.wake(zone.local(time)):
                if (wild if names.wild else fixed) and names.names(minute):
                    slots.append(time)
    return [slot for slot in sorted(set(slots)) if FROM <= slot < TO]


def cronsim(text, zone, start, stop):
    slots = []
    for time in CronSim(text, datetime.fromtimestamp(start - 1, zone.info)):
        slot = int(time.timestamp())
        if slot >= stop:
            return slots
        slots.append(slot)
    raise AssertionError(text)


def slots_of(case, zone):
    text = case.get("cronsim", case["text"])
    slots = model(Names(text, case.get("days")), zone)
    if "days" in case:
        return slots
    stretches = [(FROM, TO)]
    if len(slots) > 40_000:
        # All of them would take very long: only those near clock changes.
        stretches = [(FROM, FROM + 9 * DAY)] + [(change - 2 * DAY, change + 2 * DAY) for change in zone.changes]
        stretches = [(start, stop) for start, stop in stretches if FROM <= start and stop <= TO]
    odd = set()
    for start, stop in stretches:
        ours = slots[bisect_left(slots, start) : bisect_left(slots, stop)]
        odd |= set(ours) ^ set(cronsim(text, zone, start, stop))
    if bool(odd) != ((case["text"], zone.name) in CRONSIM_IS_WRONG):
        shown = [str(datetime.fromtimestamp(slot, zone.info)) for slot in sorted(odd)[:6]]
        raise AssertionError((case["text"], zone.name, shown))
    return slots


# --- a machine --------------------------------------------------------------------------------------------------------

CREATED = int(datetime.fromisoformat(CASES["created"]).timestamp())
GRACE, AHEAD = 600, 86400


def up(time):
    return -(-time // MINUTE) * MINUTE


def job_slots(job, zones, here):
    if "cron" in job:
        case = next((case for case in CASES["expressions"] if case["text"] == job["cron"]), {"text": job["cron"]})
        if job["cron"].endswith("L5"):
            case = case | {"cronsim": job["cron"][:-2] + "5L"}
        return slots_of(case, zones[job.get("tz", here)])
    if "every" in job:
        start = CREATED // MINUTE * MINUTE
        # Including those before the job was created: a clock may be wrong.
        first = -((start - FROM + 400 * DAY) // job["every"])
        last = (TO - start) // job["every"] + 1
        return sorted({up(start + number * job["every"]) for number in range(first, last)})
    return [up(int(datetime.fromisoformat(job["at"]).timestamp()))]


class Job:
    def __init__(self, job, slots):
        self.slots, self.once = slots, job["catchUp"] == "once"
        self.handled, self.done, self.log = None, set(), []
        self.by_wrong_clock = set()

    def latest(self, now):
        at = bisect_right(self.slots, now)
        return self.slots[at - 1] if at else None

    def due(self, now, wrong):
        floor = CREATED if CREATED - now <= AHEAD else None
        known = [time for time in (self.handled, floor) if time is not None]
        if not known or max(known) - now > AHEAD:
            # The clock was wrong: only slots of this very minute are due, not earlier ones.
            self.handled = now // MINUTE * MINUTE - MINUTE
            known = [time for time in (self.handled, floor) if time is not None]
        slot = self.latest(now)
        if slot is None or slot <= max(known):
            return
        self.handled = slot
        if slot in self.done:  # its record is there
            return
        if not self.once and now - slot > GRACE:
            self.log.append((now, slot, "missed"))
        else:
            self.done.add(slot)
            if wrong:
                self.by_wrong_clock.add(slot)
            self.log.append((now, slot, "run"))


def events():
    """The events by the minute of real time since FROM."""
    found = {}
    for year in range(CASES["from"], CASES["to"]):
        for event in CASES["everyYear"]:
            found[f"{year}-{event['at']}"] = event
    for event in CASES["oneYear"]:
        found[event["at"]] = event
    at = lambda text: (int(datetime.fromisoformat(text + "+00:00").timestamp()) - FROM) // MINUTE
    return dict(sorted((at(text), event) for text, event in found.items()))


def simulate(zone, jobs, lines):
    """`lines` are pairs of a job and five fields."""
    happenings = events()
    table = [[] for _ in range(60)]
    for job, line in lines:
        names = Names(line)
        for minute in names.minutes:
            table[minute].append((job, names))
    real, skew, cron = 0, 0, None
    end = (TO - FROM) // MINUTE - 60 * 24 * 2
    while real < end:
        event = happenings.get(real)
        if event:
            skew += event.get("step", 0)
            if "down" in event:
                real += event["down"]
                cron = None
            real += event.get("asleep", 0)
        time = FROM + (real + skew) * MINUTE
        if time >= FROM:
            local = zone.local(time)
            if cron is None:
                cron = Cron(local)
            for minute, wild, fixed in cron.wake(local):
                for job, names in table[minute % 60]:
                    if (wild if names.wild else fixed) and names.names(minute):
                        job.due(time + 1, skew != 0)
        real += 1


def undisturbed():
    """Days without events in the three days before."""
    quiet = set(range(FROM // DAY + 1, TO // DAY - 4))
    for real, event in events().items():
        first = (FROM + real * MINUTE) // DAY
        last = (FROM + (real + event.get("down", 0) + event.get("asleep", 0)) * MINUTE) // DAY
        quiet -= set(range(first, last + 4))
    # While the clock is wrong, the invariants do not apply.
    skew, before = 0, 0
    for real, event in events().items():
        if skew:
            first, last = (FROM + minute * MINUTE for minute in (before, real))
            quiet -= set(range(first // DAY, last // DAY + 4))
        skew += event.get("step", 0)
        before = real
    assert skew == 0, skew
    return quiet


def prove(name, job):
    """Invariants that hold for all lines."""
    quiet = undisturbed()
    runs = [(now - 1, slot) for now, slot, kind in job.log if kind == "run"]
    assert len({slot for _, slot in runs}) == len(runs), (name, "a slot has been run twice")
    inside = [run for run in runs if run[0] // DAY in quiet]
    inside = [run for run in inside if run[1] not in job.by_wrong_clock]
    # A slot that ran while the clock was ahead does not run again at its real time.
    must = [slot for slot in job.slots if slot // DAY in quiet and slot > CREATED]
    must = [(slot, slot) for slot in must if slot not in job.by_wrong_clock]
    assert inside == must, (name, sorted(set(inside) ^ set(must))[:6])


# --- output -----------------------------------------------------------------------------------------------------------


def summed(texts):
    """CRC-32 of lines."""
    text = "".join(f"{text}\n" for text in texts)
    return f"{crc32(text.encode()):08x}"


def quarters():
    starts = [datetime(year, month, 1, tzinfo=UTC) for year in range(CASES["from"], CASES["to"]) for month in (1, 4, 7, 10)]
    return [int(start.timestamp()) for start in starts] + [TO]


def by_quarter(pairs):
    edges = quarters()
    parts = [[] for _ in edges[1:]]
    for time, text in pairs:
        parts[bisect_right(edges, time) - 1].append(text)
    return [summed(part) for part in parts]


def written(path, rows):
    (HERE / path).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def slot_rows(name):
    zone = Zone(name)
    # One year in full, from three hours before each change to three hours after it.
    year = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2026, 2027)]
    changes = [change for change in zone.changes if year[0] <= change < year[1]]
    rows = []
    for case in CASES["expressions"]:
        slots = slots_of(case, zone)
        near = [slot for slot in slots if any(abs(slot - change) <= 3 * HOUR for change in changes)]
        rows.append(
            {
                "zone": name,
                "expression": case["text"],
                "count": len(slots),
                "quarters": by_quarter((slot, slot) for slot in slots),
                "near": near if len(near) <= 40 else None,
            }
        )
    return rows


def run_all(here):
    zones = {name: Zone(name) for name in CASES["zones"]}
    lines = json.loads((HERE / "lines.json").read_text())[here]
    jobs = {job["name"]: Job(job, job_slots(job, zones, here)) for job in CASES["jobs"]}
    simulate(zones[here], jobs, [(jobs[name], line) for name, found in lines.items() for line in found])
    return jobs


def run_rows(here):
    rows = []
    for name, job in run_all(here).items():
        prove((here, name), job)
        counts = [sum(kind == wanted for _, _, kind in job.log) for wanted in ("run", "missed")]
        # In the order of the runs, which differs from the order of their times if the clock was wrong.
        text = [(now, f"{now} {slot} {kind}") for now, slot, kind in job.log]
        first = summed(entry for now, entry in text if now < quarters()[2])
        all_of_them = summed(entry for _, entry in text)
        rows.append({"zone": here, "job": name, "runs": counts[0], "missed": counts[1], "first": first, "all": all_of_them})
    return rows


def main(arguments):
    match arguments:
        case []:
            with ProcessPoolExecutor() as pool:
                for path, rows_of in (("runs.json", run_rows), ("slots.json", slot_rows)):
                    written(path, [row for rows in pool.map(rows_of, CASES["zones"]) for row in rows])
        case ["slots", zone, text]:
            case = next(case for case in CASES["expressions"] if case["text"] == text)
            print(*slots_of(case, Zone(zone)), sep="\n")
        case ["runs", zone, name]:
            for now, slot, kind in run_all(zone)[name].log:
                print(now, slot, kind)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
