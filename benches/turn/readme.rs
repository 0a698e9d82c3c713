//! The tables of costs in docs/costs.md and README.md: `.ci/bench --readme` writes them, so that no figure in them is made by hand.

use crate::counts;

const COSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/costs.md");
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
/// The rows that README.md has too.
const README_ROWS: [&str; 3] =
    ["its memory, MB", "a short turn, million instructions", "the program, MB"];
const START: &str = "<!-- costs, written by .ci/bench --readme -->\n";
const END: &str = "<!-- end of the costs -->\n";

/// The rows of measured gates: name of the gate, and text of the row.
const TIMES: [(&str, &str); 7] = [
    (
        "hello / min hello, wall",
        "a short turn, in times of a static C client that sends the same request",
    ),
    ("hello / min hello, CPU", "the same, CPU time"),
    ("memory of a hello, MB", "its memory, MB"),
    ("a turn with a reading tool, CPU ms", "each further turn of a loop, ms of CPU"),
    ("20,000 chunks over a hello, CPU ms", "a streamed reply of 20,000 chunks, ms of CPU"),
    (
        "a full read of 100k, CPU ms",
        "first turn in a session of 41 MB of the Python program, ms of CPU",
    ),
    (
        "not due, zoned / a process that only exits, wall",
        "a crontab line with nothing due, in times of a static program that only exits",
    ),
];

/// The rows of counts: name of the count, text of the row, size of its unit, and goal in that unit.
const COUNTS: [(&str, &str, f64, f64); 2] = [
    ("instructions: hello", "a short turn, million instructions", 1e6, 2.0),
    ("program: bytes", "the program, MB", 1e6, 16.0),
];

/// Writes the tables. `gates` are the measured gates: name, value, limit.
pub(crate) fn write(gates: &[(String, f64, f64)]) {
    let mut rows = Vec::new();
    let mut add = |text: &'static str, value: f64, goal: f64| {
        let digits = usize::from(value.fract() != 0.0);
        rows.push((text, format!("| {text} | {value:.digits$} | ≤ {goal} |\n")));
    };
    for (name, text) in TIMES {
        let gate = gates.iter().find(|gate| gate.0 == name);
        let (_, value, goal) = gate.expect("the gate is measured");
        add(text, *value, *goal);
    }
    let counts = counts::measure();
    for (name, text, unit, goal) in COUNTS {
        add(text, counts[name] as f64 / unit, goal);
    }
    replace_table(COSTS, rows.iter().map(|(_, row)| row.as_str()));
    let short = rows.iter().filter(|(text, _)| README_ROWS.contains(text));
    replace_table(README, short.map(|(_, row)| row.as_str()));
}

fn replace_table<'a>(path: &str, rows: impl Iterator<Item = &'a str>) {
    let page = std::fs::read_to_string(path).expect("the page is there");
    let (before, rest) = page.split_once(START).expect("the page has the table");
    let (_, after) = rest.split_once(END).expect("the table has an end");
    let table = format!("| | measured | goal |\n|---|---|---|\n{}", rows.collect::<String>());
    let text = format!("{before}{START}{table}{END}{after}");
    std::fs::write(path, text).expect("the page can be written");
}
