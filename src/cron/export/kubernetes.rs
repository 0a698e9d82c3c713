//! Exports a job as Kubernetes CronJobs, and the volume that they share.
//!
//! A container has neither a time zone of its own nor this machine's directories. A job that depends on either is
//! rejected at export instead of failing in the cluster. The cluster's scheduler skips times that no clock shows, and
//! a `CronJob` has one expression only. A job that needs several becomes several CronJobs, whose runs are separated by
//! the job's lock and run state.

use super::{
    File, MARK, Planned, Site, Times, Width, around, every, is_of_each_hour, list, once, shown,
    text, yaml,
};
use crate::cron::expression::Expression;
use crate::cron::schedule::Schedule;
use crate::error::Exit;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::path::Path;
use std::time::Duration;

/// Mount point of the volume, which takes the place of `~/.nanobot`.
const DATA: &str = "/data";
/// Directory of the API keys. The agent's commands cannot read it.
const KEYS: &str = "/run/credentials/nanobot";
/// Names of the shared resources.
const VOLUME: &str = "nanobot";
const SECRET: &str = "nanobot-keys";
/// User ID of a run in the container.
const USER: u32 = 1000;
/// Maximum length of a CronJob name that leaves room for a number.
const LONGEST: usize = 48;
const UTC: &str = "Etc/UTC";
const DAY: u64 = 86_400;

/// A cron expression and its time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    fields: String,
    zone: String,
    /// Maximum number of slots per day.
    daily: u64,
}

/// Returns a job's manifests in one file. `image` is the image of its containers.
///
/// # Errors
/// A message that says why the job cannot be exported.
pub fn file(site: &Site, planned: &Planned, image: &str) -> Result<File, String> {
    let job = planned.job;
    let name = name(&job.id);
    let lines = lines(site, planned)?;
    let mut out = format!("{MARK}# {}: {}\n", shown(&job.name), planned.words());
    for (path, _) in planned.places() {
        if !path.starts_with(site.workspace) && !path.starts_with(site.root) {
            out.push_str(&format!(
                "# The job is granted {}, which the container has only if you mount it.\n",
                shown(text(&path)?)
            ));
        }
    }
    for (at, line) in lines.iter().enumerate() {
        let name = match at {
            0 => name.clone(),
            at => format!("{name}-{}", at + 1),
        };
        out.push_str("---\n");
        out.push_str(&yaml::document(&manifest(
            site, planned, image, &name, line,
        )?));
    }
    Ok(File {
        name: format!("{name}.yaml"),
        text: out,
    })
}

/// Returns the shared resources: the volume, and instructions for storing the keys in a secret.
pub fn shared(site: &Site) -> File {
    let first = site.keys.first().copied().unwrap_or("OPENAI_API_KEY");
    let mut out = MARK.to_owned();
    out.push_str(&format!(
        "# The image needs nanobot on its PATH, /bin/sh, CA certificates, and time zone data (tzdata).\n\
         #\n\
         # The volume replaces ~/.nanobot: copy config.json, workspace/ and cron/ to it, writable by user {USER}. If nodes\n\
         # share it (ReadWriteMany), its file locks must work across nodes.\n\
         #\n\
         # API keys that are not in the config come from a secret, under the names of their environment variables:\n\
         #   kubectl create secret generic {SECRET} --from-file={first}=/dev/stdin\n"
    ));
    for key in site.keys.iter().skip(1) {
        out.push_str(&format!("# The secret may also contain {key}.\n"));
    }
    out.push_str("---\n");
    out.push_str(&yaml::document(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": VOLUME, "labels": labels(None) },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })));
    File {
        name: "nanobot-volume.yaml".into(),
        text: out,
    }
}

fn manifest(
    site: &Site,
    planned: &Planned,
    image: &str,
    name: &str,
    line: &Line,
) -> Result<Value, String> {
    let job = planned.job;
    // The start deadline: a catch-up window in which the controller cannot count 100 missed starts, at
    // which it gives up.
    let late = match planned.catches_up() {
        true => (30 * DAY).min(90 * DAY / line.daily.max(1)),
        false => 600,
    };
    let pod = pod(image, &command(site, planned)?);
    let mut manifest = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {
            "name": name,
            "labels": labels(Some(name)),
            "annotations": { "nanobot/job": job.id, "nanobot/name": job.name },
        },
        "spec": {
            "schedule": line.fields,
            "timeZone": line.zone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": late,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": { "spec": job_spec(name, &pod, planned.stuck_after()) },
        },
    });
    if !job.enabled {
        manifest["spec"]["suspend"] = json!(true);
    }
    Ok(manifest)
}

/// Returns the command that runs the job, with the config's path in the container.
fn command(site: &Site, planned: &Planned) -> Result<Vec<String>, String> {
    let mut command = vec!["nanobot".to_owned()];
    if let Some(config) = planned.config {
        let inside = config.strip_prefix(site.root).map_err(|_| {
            format!(
                "its config `{}` is not on the volume, which has only files of `{}`",
                config.display(),
                site.root.display()
            )
        })?;
        command.extend(["-c".into(), text(&Path::new(DATA).join(inside))?.to_owned()]);
    }
    let run = ["cron", "run", planned.job.id.as_str(), "--scheduled"];
    command.extend(run.map(String::from));
    Ok(command)
}

fn job_spec(name: &str, pod: &Value, stuck_after: Option<u64>) -> Value {
    let mut spec = json!({
        "backoffLimit": 0,
        // The job is busy: try again. A slot that was started is recorded, so a replacement pod starts nothing
        // twice.
        "podFailurePolicy": { "rules": [
            {
                "action": "Ignore",
                "onExitCodes": { "containerName": "nanobot", "operator": "In", "values": [Exit::TryAgain.code()] },
            },
            {
                "action": "Ignore",
                "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }],
            },
        ] },
        "template": {
            "metadata": { "labels": labels(Some(name)) },
            "spec": pod,
        },
    });
    if let Some(seconds) = stuck_after {
        spec["activeDeadlineSeconds"] = json!(seconds);
    }
    spec
}

fn pod(image: &str, command: &[String]) -> Value {
    json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(image, command)],
        "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": VOLUME } },
            { "name": "keys", "secret": { "secretName": SECRET, "optional": true, "defaultMode": 0o440 } },
            { "name": "tmp", "emptyDir": {} },
        ],
    })
}

fn container(image: &str, command: &[String]) -> Value {
    json!({
        "name": "nanobot",
        "image": image,
        "command": command,
        "env": [
            { "name": "HOME", "value": DATA },
            { "name": "NANOBOT_HOME", "value": DATA },
            { "name": "NANOBOT_AGENTS__DEFAULTS__WORKSPACE", "value": format!("{DATA}/workspace") },
            { "name": "CREDENTIALS_DIRECTORY", "value": KEYS },
        ],
        "resources": {
            "requests": { "cpu": "50m", "memory": "64Mi" },
            "limits": { "memory": "1Gi" },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [
            { "name": "data", "mountPath": DATA },
            { "name": "keys", "mountPath": KEYS, "readOnly": true },
            { "name": "tmp", "mountPath": "/tmp" },
        ],
    })
}

fn labels(name: Option<&str>) -> Value {
    let mut labels = json!({ "app.kubernetes.io/name": "nanobot" });
    if let Some(name) = name {
        labels["app.kubernetes.io/instance"] = json!(name);
    }
    labels
}

/// Returns a job's expressions: for its slots, and for the extra times around clock changes.
fn lines(site: &Site, planned: &Planned) -> Result<Vec<Line>, String> {
    let job = planned.job;
    match planned.schedule {
        Schedule::Cron { expression, zone } => cron_lines(site, planned, expression, zone.as_ref()),
        Schedule::Every(period) => Ok(vec![period_line(*period, job.created)?]),
        Schedule::At(time) => {
            let time = once(planned, *time, site.now)?;
            let time = TimeZone::UTC.to_datetime(time);
            Ok(vec![Line {
                fields: time.strftime("%-M %-H %-d %-m *").to_string(),
                zone: UTC.into(),
                daily: 1,
            }])
        }
    }
}

fn cron_lines(
    site: &Site,
    planned: &Planned,
    expression: &Expression,
    zone: Option<&String>,
) -> Result<Vec<Line>, String> {
    let mut fields = expression.spelling().clone();
    // Kubernetes has 0 for Sunday, never 7.
    let weekdays = fields[4]
        .split(',')
        .map(|day| if day == "7" { "0" } else { day });
    fields[4] = weekdays.collect::<Vec<_>>().join(",");
    let zone = match zone {
        Some(zone) => zone.clone(),
        None if is_utc(site) || is_of_each_hour(expression, site.system, site.now) => UTC.into(),
        None => {
            let name = site.system_name.unwrap_or("ZONE");
            return Err(format!(
                "its schedule uses the system's time zone, which a container lacks; set one with `nanobot cron edit {} --cron {} --tz {name}`",
                planned.job.id,
                shown(expression.text())
            ));
        }
    };
    let hourly = u64::from(expression.minutes().count_ones());
    let daily = match fields[1].contains(['*', '-', ',', '/']) {
        true => hourly * 24,
        false => hourly,
    };
    let first = Line {
        fields: fields.join(" "),
        zone,
        daily,
    };
    let more = around(planned, site.now, Width::Gap)
        .into_iter()
        .map(|around| Line {
            fields: format!(
                "{} {} {}-{} {} *",
                list(around.minutes, 60),
                list(around.hours, 24),
                around.first_day,
                around.last_day,
                around.month
            ),
            zone: UTC.into(),
            daily: u64::from(around.minutes.count_ones() * around.hours.count_ones()),
        });
    Ok([first].into_iter().chain(more).collect())
}

/// Combines all minutes and hours of the period in one line, instead of one line per hour.
fn period_line(period: Duration, created: Timestamp) -> Result<Line, String> {
    let times = every(period, created);
    let all = times.iter().copied().reduce(|one, other| Times {
        minutes: one.minutes | other.minutes,
        hours: one.hours | other.hours,
        weekday: one.weekday,
    });
    let Times {
        minutes,
        hours,
        weekday,
    } = all.ok_or("its period has no times")?;
    let weekday = weekday.map_or_else(|| "*".into(), |day| day.to_string());
    Ok(Line {
        fields: format!("{} {} * * {weekday}", list(minutes, 60), list(hours, 24)),
        zone: UTC.into(),
        daily: u64::from(minutes.count_ones() * hours.count_ones()),
    })
}

fn is_utc(site: &Site) -> bool {
    let names = [
        "UTC",
        "Etc/UTC",
        "Etc/GMT",
        "GMT",
        "Universal",
        "Etc/Universal",
        "Zulu",
        "UCT",
    ];
    site.system_name.is_some_and(|name| names.contains(&name))
}

/// Returns the name of a job's manifests: its id if that is a valid name, otherwise a valid form of it with a hash.
fn name(id: &str) -> String {
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let whole = format!("nanobot-{id}");
    if whole.chars().all(plain) && !whole.ends_with('-') && whole.len() <= LONGEST {
        return whole;
    }
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    let hash = format!("{:08x}", hasher.finish() as u32);
    let made: String = whole.to_ascii_lowercase().replace('_', "-");
    let kept: String = made.chars().take(LONGEST - hash.len() - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches('-'))
}
