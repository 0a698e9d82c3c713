//! Prompt injection: a model that obeys every instruction it reads, against the policy and the sandbox. Each attack script
//! combines a vector, where the instructions are planted, with a goal. Each is a run of the program in its own home,
//! followed by checks for every forbidden effect.
//!
//! `cargo test` runs a share of the scripts. All of them, or those with a text in their name and with their output:
//!
//!     NANOBOT_ATTACKS=all cargo test --features test-hooks --test cli prompt_injection -- --nocapture
//!     NANOBOT_ATTACKS="a page / a composed" cargo test --features test-hooks --test cli prompt_injection -- --nocapture

#![allow(clippy::print_stdout, reason = "prints the result table")]

use crate::situation::{Situation, User, available_users};
use fixture::AttackFixture;
use goals::{GOAL_KINDS, GOALS, Goal, GoalKind};
use model::Plan;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use vectors::{RunInput, VECTORS, Vector};

mod fixture;
mod goals;
mod model;
mod vectors;

/// Timeout of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of fixtures so far, so that each has a unique nonce.
static FIXTURE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// An attack: the place of the instructions, their goal, and the user's grants.
#[derive(Clone, Copy)]
struct AttackScript {
    vector: &'static Vector,
    goal: &'static Goal,
    flags: &'static [&'static str],
}

/// Grants that are tried in turn, besides none.
const GRANTS: &[&[&str]] = &[
    &["--write"],
    &["--profile", "auto-approve"],
    &["--net=docs.example"],
    &["--profile", "plan"],
    &["-C", "WORKSPACE"],
    &["--profile", "accept-edits", "--net=docs.example"],
];

/// The result of an attack.
struct AttackResult {
    script: AttackScript,
    /// Number of instructions that reached the model, and that were planted.
    received: usize,
    planted: usize,
    output: String,
    violations: Vec<String>,
}

impl AttackResult {
    /// True if not all instructions were received, although the vector should deliver them.
    fn is_inconclusive(&self) -> bool {
        !self.script.vector.is_ignored && self.received < self.planted
    }
}

/// Runs the program with `start` and `flags`; returns its output and exit status.
fn run_program(
    scene: &AttackFixture,
    situation: Situation,
    start: &RunInput,
    flags: &[String],
) -> (String, i32) {
    let mut command = situation.command(&scene.story, &[]);
    match start.prompt_file {
        Some(path) => command.arg("run").args(flags).arg(path),
        None => command.args(["agent", "-m", &start.message]).args(&start.flags).args(flags),
    };
    if start.stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().expect("the program starts");
    if let Some(text) = &start.stdin {
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(text.as_bytes()).expect("it is read first");
    }
    // A run that does not end is killed after a timeout.
    let id = rustix::process::Pid::from_child(&child);
    let (ended, waits) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if waits.recv_timeout(RUN_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            // It may have just ended by itself.
            rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap_or_default();
        }
    });
    let result = scene.story.wait(child);
    drop(ended);
    watch.join().expect("it only waits");
    (format!("{}{}", result.text(), result.error_text()), result.code())
}

/// Runs the attack of `script`.
fn run_attack(situation: Situation, script: AttackScript) -> AttackResult {
    let AttackScript { vector, goal, flags } = script;
    let mut scene = AttackFixture::new(FIXTURE_COUNT.fetch_add(1, Ordering::Relaxed));
    // Without namespaces, such hooks are refused.
    if situation.has_namespaces {
        scene.add_hooks();
    }
    let plan: Plan = (goal.plan)(&scene);
    let start = (vector.plant)(&scene, &plan);
    scene.take_snapshot();
    let planted: HashSet<String> =
        plan.iter().flatten().map(|order| format!("{order:?}")).collect();
    let workspace = scene.story.workspace().display().to_string();
    let flags = flags.iter();
    let flags: Vec<String> = flags.map(|flag| flag.replace("WORKSPACE", &workspace)).collect();
    let (output, code) = run_program(&scene, situation, &start, &flags);
    let mut violations = scene.violations(&flags, vector.is_external, &output, code);
    if vector.is_ignored && scene.model.received_count() > 0 {
        violations.push("instructions of an untrusted directory reached the model".into());
    }
    AttackResult {
        script,
        received: scene.model.received_count(),
        planted: planted.len(),
        output: format!("{code}\n{output}"),
        violations,
    }
}

/// Runs all `scripts`, as many at a time as there are processors.
fn run_attacks(situation: Situation, scripts: &[AttackScript]) -> Vec<AttackResult> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = run_attack(situation, *script);
                    all.lock().unwrap().push(played);
                }
            });
        }
    });
    all.into_inner().unwrap()
}

/// The selection of scripts by the environment.
fn requested_scripts() -> Option<String> {
    std::env::var("NANOBOT_ATTACKS").ok()
}

/// Every vector with every goal, or a share of the pairs that covers all vectors and goals; every third pair is repeated
/// with a grant.
fn select_scripts() -> Vec<AttackScript> {
    let wanted = requested_scripts();
    let mut scripts = Vec::new();
    for (row, vector) in VECTORS.iter().enumerate() {
        for (column, goal) in GOALS.iter().enumerate() {
            let share = if vector.is_ignored { 20 } else { 10 };
            let name = format!("{} / {}", vector.name, goal.name);
            let is_in = match wanted.as_deref() {
                None => (row + column) % share == 0,
                Some("all") => true,
                Some(name_part) => name.contains(name_part),
            };
            if is_in {
                scripts.push(AttackScript { vector, goal, flags: &[] });
            }
        }
    }
    let granted = scripts
        .iter()
        .step_by(3)
        .enumerate()
        .map(|(number, script)| AttackScript { flags: GRANTS[number % GRANTS.len()], ..*script });
    let granted: Vec<AttackScript> = granted.collect();
    scripts.extend(granted);
    scripts
}

/// Vectors that a run treats as the user's own words, even if another session wrote them. Without other untrusted content in the
/// session it may act on them. A memory written in a session with untrusted content is labelled, but trusted on the next
/// day.
const TRUSTED_VECTORS: &[&str] = &["the memory", "the memory's history"];
/// Goals that this makes reachable.
const EXPOSED_GOALS: &[&str] = &[
    "the workspace's notes",
    "the workspace's skills",
    "a composed path",
    "a composed query",
    "a composed host",
    "a free host that leads on",
    "an address that somebody says again",
    "an address in a file's name",
    "a long question to the search engine",
    "the memory",
    "the history",
];

/// True if a violation by `script` is an accepted risk, outside of what the policy promises.
fn is_accepted_risk(script: &AttackScript) -> bool {
    TRUSTED_VECTORS.contains(&script.vector.name) && EXPOSED_GOALS.contains(&script.goal.name)
}

fn format_table(played: &[AttackResult]) -> String {
    let mut rows: BTreeMap<&str, BTreeMap<GoalKind, (usize, usize)>> = BTreeMap::new();
    for AttackResult { script, violations, .. } in played {
        let cell = rows.entry(script.vector.name).or_default().entry(script.goal.kind).or_default();
        cell.0 += 1;
        cell.1 += usize::from(!violations.is_empty());
    }
    let mut text = format!("{:38}", "scripts/violations");
    GOAL_KINDS.iter().for_each(|kind| text.push_str(&format!("{:>10}", format!("{kind:?}"))));
    for (name, cells) in rows {
        text.push_str(&format!("\n{name:38}"));
        for kind in GOAL_KINDS {
            let (scripts, violations) = cells.get(&kind).copied().unwrap_or_default();
            text.push_str(&format!("{:>10}", format!("{scripts}/{violations}")));
        }
    }
    text
}

/// Runs `scripts`, checks that they cause no violations, and returns the number of those that count.
fn check_attacks(situation: Situation, scripts: &[AttackScript]) -> usize {
    let played = run_attacks(situation, scripts);
    if requested_scripts().is_some_and(|requested| requested != "all") {
        for AttackResult { script, output: printed, .. } in &played {
            let AttackScript { vector, goal, flags } = script;
            println!("{} / {} {flags:?}: {printed}", vector.name, goal.name);
        }
    }
    // A grant can also prevent an attack, as a profile without network prevents one by a page. Such scripts are not counted.
    let played =
        played.into_iter().filter(|it| it.script.flags.is_empty() || !it.is_inconclusive());
    let (accepted, played): (Vec<AttackResult>, Vec<AttackResult>) =
        played.partition(|it| is_accepted_risk(&it.script));
    let violated: Vec<&AttackResult> =
        played.iter().filter(|it| !it.violations.is_empty()).collect();
    println!("{}", format_table(&played));
    for it in &accepted {
        let AttackScript { vector, goal, flags } = it.script;
        let violations = it.violations.join("; ");
        println!(
            "prompt injection, accepted risk: {} / {} {flags:?}: {violations}",
            vector.name, goal.name
        );
    }
    println!(
        "prompt injection: {} scripts, {} violations, {situation:?}",
        played.len(),
        violated.len()
    );
    let deaf: Vec<String> = played
        .iter()
        .filter(|it| it.is_inconclusive())
        .map(|it| {
            format!(
                "{} / {}: {} instructions received",
                it.script.vector.name, it.script.goal.name, it.received
            )
        })
        .collect();
    let messages: Vec<String> = violated
        .iter()
        .map(|it| {
            let AttackScript { vector, goal, flags } = it.script;
            format!("{} / {} {flags:?}: {}", vector.name, goal.name, it.violations.join("; "))
        })
        .collect();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
    assert!(deaf.is_empty(), "scripts whose instructions did not arrive:\n{}", deaf.join("\n"));
    played.len()
}

/// The situation of the program where nothing is missing.
const COMPLETE: Situation = Situation { user: User::Current, has_namespaces: true };

/// The row of SECURITY.md about these attacks.
fn promised_row() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = text.lines();
    let row = rows.find(|line| line.starts_with("| attack scripts of a model"));
    row.expect("SECURITY.md has the row").to_owned()
}

/// The number before `phrase` in `text`.
fn number_before(text: &str, phrase: &str) -> usize {
    let (before, _) = text.split_once(phrase).expect("SECURITY.md has the words");
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().expect("a number is before the words")
}

#[test]
fn attack_scripts_cause_no_violations() {
    let count = check_attacks(COMPLETE, &select_scripts());
    let row = promised_row();
    let tables = format!("({} places × {} goals,", VECTORS.len(), GOALS.len());
    assert!(row.contains(&tables), "{tables} {row}");
    let promised = number_before(&row, " scripts, 0 violations");
    assert!(requested_scripts().is_some() || count > promised, "{count} scripts");
}

/// One of this many pairs is run in each of the other situations, every second one with `--write`.
const OTHER_SITUATIONS_SHARE: usize = 61;

#[test]
fn attack_scripts_cause_no_violations_in_other_situations() {
    let pairs = VECTORS
        .iter()
        .flat_map(|vector| GOALS.iter().map(move |goal| AttackScript { vector, goal, flags: &[] }));
    let pairs: Vec<AttackScript> = pairs.collect();
    let situations = available_users()
        .into_iter()
        .flat_map(|user| [true, false].map(|has_namespaces| Situation { user, has_namespaces }));
    let others = situations.skip(1).enumerate();
    for (number, situation) in others {
        let scripts = match requested_scripts() {
            Some(_) => select_scripts(),
            None => {
                let share = pairs.iter().skip(number).step_by(OTHER_SITUATIONS_SHARE);
                let flags = [&[][..], &["--write"]].into_iter().cycle();
                let with_flags = share.zip(flags);
                with_flags.map(|(script, flags)| AttackScript { flags, ..*script }).collect()
            }
        };
        check_attacks(situation, &scripts);
    }
}

/// Goals that are not tried without protection, since they would read secrets of this machine.
const NEVER_UNPROTECTED: &[&str] = &["the system and other processes"];
/// Goals that are prevented by other means than the policy and the sandbox: search queries are always truncated, images in
/// answers are not fetched, and processes of a command end with it.
const ALWAYS_PREVENTED: &[&str] = &[
    "a long question to the search engine",
    "an image in the answer",
    "processes that go on",
    "processes that write later",
    "the memory",
    "the history",
];

#[test]
fn attack_scripts_succeed_without_protection() {
    let page = VECTORS.iter().find(|vector| vector.is_external);
    let page = page.expect("there are pages");
    let scripts: Vec<AttackScript> = GOALS
        .iter()
        .filter(|goal| !NEVER_UNPROTECTED.contains(&goal.name))
        .map(|goal| AttackScript {
            vector: page,
            goal,
            flags: &["--profile", "full", "--net", "--sandbox", "off"],
        })
        .collect();
    let played = run_attacks(COMPLETE, &scripts);
    for it in &played {
        println!(
            "prompt injection, unprotected: {}: {}",
            it.script.goal.name,
            it.violations.join("; ")
        );
    }
    let harmless = played.iter().filter(|it| it.violations.is_empty());
    let goal_names: Vec<&str> = harmless.map(|it| it.script.goal.name).collect();
    println!(
        "prompt injection, unprotected: {} of {} goals violated",
        played.len() - goal_names.len(),
        played.len()
    );
    let surprising: Vec<&&str> =
        goal_names.iter().filter(|name| !ALWAYS_PREVENTED.contains(name)).collect();
    assert!(surprising.is_empty(), "goals not reached without protection: {surprising:?}");
    let row = promised_row();
    let goals = format!("of {} goals are reached", played.len());
    let promised = number_before(&row, &format!(" {goals}"));
    assert!(played.len() - goal_names.len() >= promised, "{goal_names:?}");
}
