//! Exports a job as Kubernetes CronJobs, and the volume that they share.
//!
//! A container has neither a time zone of its own nor this machine's directories. A job that depends on either is
//! rejected at export instead of failing in the cluster. The cluster's scheduler skips times that no clock shows, and
//! a `CronJob` has one expression only. A job that needs several becomes several CronJobs, whose runs are separated by
//! the job's lock and run state.

use super::{
    ChangeWindow, ExportFile, ExportSettings, GrantedPath, HEADER, ScheduledJob, UtcTimes,
    format_field, is_hourly_in_utc, path_text, period_times, quote_short, single_slot,
    times_around_changes, yaml,
};
use crate::expression::Expression;
use crate::schedule::{START_GRACE, Schedule};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use nanobot_base::error::Exit;
use serde_json::{Value, json};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::path::Path;
use std::time::Duration;

/// Mount point of the volume, which takes the place of `~/.nanobot`.
const DATA_DIR: &str = "/data";
/// Directory of the API keys. The agent's commands cannot read it.
const KEYS_DIR: &str = "/run/credentials/nanobot";
/// Names of the shared resources.
const VOLUME_NAME: &str = "nanobot";
const SECRET_NAME: &str = "nanobot-keys";
/// User ID of a run in the container.
const USER_ID: u32 = 1000;
/// Maximum length of a CronJob name that leaves room for a number.
const MAX_NAME_CHARS: usize = 48;
const UTC: &str = "Etc/UTC";
const DAY_SECS: u64 = 86_400;

/// A cron expression and its time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CronJobSchedule {
    fields: String,
    zone: String,
    /// Maximum number of slots per day.
    max_daily_slots: u64,
}

/// Returns a job's manifests in one file. `image` is the image of its containers.
///
/// # Errors
/// A message that says why the job cannot be exported.
pub fn manifest_file(
    settings: &ExportSettings,
    scheduled_job: &ScheduledJob,
    image: &str,
) -> Result<ExportFile, String> {
    let job = scheduled_job.job;
    let name = manifest_name(&job.id);
    let schedules = cron_job_schedules(settings, scheduled_job)?;
    let mut out = format!("{HEADER}# {}: {}\n", quote_short(&job.name), scheduled_job.describe());
    for GrantedPath { path, .. } in scheduled_job.granted_paths() {
        if !path.starts_with(settings.workspace) && !path.starts_with(settings.root) {
            out.push_str(&format!(
                "# The job is granted {}, which the container has only if you mount it.\n",
                quote_short(path_text(&path)?)
            ));
        }
    }
    if job.retry_policy().limit > 0 {
        out.push_str(
            "# `--retry` has no effect here: the cluster starts a pod only at the job's times.\n",
        );
    }
    for (index, schedule) in schedules.iter().enumerate() {
        let name = if index == 0 { name.clone() } else { format!("{name}-{}", index + 1) };
        let manifest = manifest(settings, scheduled_job, image, &name, schedule)?;
        out.push_str("---\n");
        out.push_str(&yaml::to_document(&manifest));
    }
    Ok(ExportFile { name: format!("{name}.yaml"), text: out })
}

/// Returns the shared resources: the volume, and instructions for storing the keys in a secret.
pub fn shared_file(settings: &ExportSettings) -> ExportFile {
    let first_key = settings.keys.first().copied().unwrap_or("OPENAI_API_KEY");
    let mut out = HEADER.to_owned();
    out.push_str(&format!(
        "# The image needs nanobot on its PATH, /bin/sh, CA certificates, and time zone data (tzdata).\n\
         #\n\
         # The volume replaces ~/.nanobot: copy config.json, nanobot.json, workspace/ and cron/ to it, writable by user {USER_ID}. If nodes\n\
         # share it (ReadWriteMany), its file locks must work across nodes. Jobs have absolute paths: run this in a pod once.\n\
         #   nanobot status check --fix --no-crontab\n\
         #\n\
         # API keys that are not in the config come from a secret, under the names of their environment variables:\n\
         #   kubectl create secret generic {SECRET_NAME} --from-file={first_key}=/dev/stdin\n"
    ));
    for key in settings.keys.iter().skip(1) {
        out.push_str(&format!("# The secret may also contain {key}.\n"));
    }
    out.push_str("---\n");
    out.push_str(&yaml::to_document(&json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": VOLUME_NAME, "labels": labels(None) },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })));
    ExportFile { name: "nanobot-volume.yaml".into(), text: out }
}

fn manifest(
    settings: &ExportSettings,
    scheduled_job: &ScheduledJob,
    image: &str,
    name: &str,
    schedule: &CronJobSchedule,
) -> Result<Value, String> {
    let job = scheduled_job.job;
    // The controller gives up when it counts 100 missed starts before the deadline, so less than 90 fit in it.
    let start_deadline = if scheduled_job.is_caught_up() {
        (30 * DAY_SECS).min(90 * DAY_SECS / schedule.max_daily_slots.max(1))
    } else {
        START_GRACE.as_secs().unsigned_abs()
    };
    let mut arguments = vec!["cron", "run", job.id.as_str(), "--scheduled"];
    if !scheduled_job.followers.is_empty() {
        arguments.push("--no-after");
    }
    let command = container_command(settings, scheduled_job.config, &arguments)?;
    let pod = pod(image, &command, "Never");
    let mut manifest = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {
            "name": name,
            "labels": labels(Some(name)),
            "annotations": { "nanobot/job": job.id, "nanobot/name": job.name },
        },
        "spec": {
            "schedule": schedule.fields,
            "timeZone": schedule.zone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": start_deadline,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": { "spec": job_spec(name, &pod, scheduled_job.stuck_after()) },
        },
    });
    if !job.enabled {
        manifest["spec"]["suspend"] = json!(true);
    }
    Ok(manifest)
}

/// Returns the manifest of a Deployment of one pod.
pub(super) fn deployment(name: &str, image: &str, command: &[String]) -> String {
    let mut pod = pod(image, command, "Always");
    // A running turn may be finished.
    pod["terminationGracePeriodSeconds"] = json!(60);
    yaml::to_document(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": labels(Some(name)) },
        "spec": {
            "replicas": 1,
            // Two pods at a time would wait for each other's locks.
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": labels(Some(name)) },
            "template": { "metadata": { "labels": labels(Some(name)) }, "spec": pod },
        },
    }))
}

/// Returns the command with these arguments, with the config's path in the container.
///
/// # Errors
/// The container does not have the config.
pub(super) fn container_command(
    settings: &ExportSettings,
    config: Option<&Path>,
    arguments: &[&str],
) -> Result<Vec<String>, String> {
    let mut command = vec!["nanobot".to_owned()];
    if let Some(config) = config {
        let relative = config.strip_prefix(settings.root).map_err(|_| {
            format!(
                "its config `{}` is not on the volume, which has only files of `{}`",
                config.display(),
                settings.root.display()
            )
        })?;
        command.extend(["-c".into(), path_text(&Path::new(DATA_DIR).join(relative))?.to_owned()]);
    }
    command.extend(arguments.iter().copied().map(String::from));
    Ok(command)
}

fn job_spec(name: &str, pod: &Value, stuck_after: Option<u64>) -> Value {
    let mut spec = json!({
        "backoffLimit": 0,
        // A pod that finds the job busy, or that the cluster stops, is replaced. Slots are recorded when they start, so a
        // replacement starts none twice.
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

fn pod(image: &str, command: &[String], restart_policy: &str) -> Value {
    json!({
        "restartPolicy": restart_policy,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(image, command)],
        "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": VOLUME_NAME } },
            { "name": "keys", "secret": { "secretName": SECRET_NAME, "optional": true, "defaultMode": 0o440 } },
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
            { "name": "HOME", "value": DATA_DIR },
            { "name": "NANOBOT_HOME", "value": DATA_DIR },
            { "name": "NANOBOT_AGENTS__DEFAULTS__WORKSPACE", "value": format!("{DATA_DIR}/workspace") },
            { "name": "CREDENTIALS_DIRECTORY", "value": KEYS_DIR },
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
            { "name": "data", "mountPath": DATA_DIR },
            { "name": "keys", "mountPath": KEYS_DIR, "readOnly": true },
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
fn cron_job_schedules(
    settings: &ExportSettings,
    scheduled_job: &ScheduledJob,
) -> Result<Vec<CronJobSchedule>, String> {
    let job = scheduled_job.job;
    match scheduled_job.schedule {
        Schedule::Cron { expression, zone } => {
            expression_schedules(settings, scheduled_job, expression, zone.as_ref())
        }
        Schedule::Every(period) => Ok(vec![period_schedule(*period, job.created)?]),
        Schedule::After(_) => Err(format!(
            "it runs after another job, and a CronJob only has times; `nanobot cron edit {} --cron …` sets some",
            job.id
        )),
        Schedule::At(time) => {
            let time = single_slot(scheduled_job, *time, settings.now)?;
            let time = TimeZone::UTC.to_datetime(time);
            Ok(vec![CronJobSchedule {
                fields: time.strftime("%-M %-H %-d %-m *").to_string(),
                zone: UTC.into(),
                max_daily_slots: 1,
            }])
        }
    }
}

fn expression_schedules(
    settings: &ExportSettings,
    scheduled_job: &ScheduledJob,
    expression: &Expression,
    zone: Option<&String>,
) -> Result<Vec<CronJobSchedule>, String> {
    let mut fields = expression.as_plain_cron().clone();
    // Kubernetes has 0 for Sunday, never 7.
    let weekdays = fields[4].split(',').map(|day| if day == "7" { "0" } else { day });
    fields[4] = weekdays.collect::<Vec<_>>().join(",");
    let zone = match zone {
        Some(zone) => zone.clone(),
        None if is_utc(settings)
            || is_hourly_in_utc(expression, settings.system_zone, settings.now) =>
        {
            UTC.into()
        }
        None => {
            let name = settings.system_zone_name.unwrap_or("ZONE");
            return Err(format!(
                "its schedule uses the system's time zone, which a container lacks; set one with `nanobot cron edit {} --cron {} --tz {name}`",
                scheduled_job.job.id,
                quote_short(expression.text())
            ));
        }
    };
    let hourly_slots = u64::from(expression.minutes().count_ones());
    let has_many_hours = fields[1].contains(['*', '-', ',', '/']);
    let mut schedules = vec![CronJobSchedule {
        fields: fields.join(" "),
        zone,
        max_daily_slots: if has_many_hours { hourly_slots * 24 } else { hourly_slots },
    }];
    for times in times_around_changes(scheduled_job, settings.now, ChangeWindow::Gap) {
        schedules.push(CronJobSchedule {
            fields: format!(
                "{} {} {}-{} {} *",
                format_field(times.minutes, 60),
                format_field(times.hours, 24),
                times.first_day,
                times.last_day,
                times.month
            ),
            zone: UTC.into(),
            max_daily_slots: u64::from(times.minutes.count_ones() * times.hours.count_ones()),
        });
    }
    Ok(schedules)
}

/// Combines all minutes and hours of the period in one line, instead of one line per hour.
fn period_schedule(period: Duration, created: Timestamp) -> Result<CronJobSchedule, String> {
    let times = period_times(period, created);
    let combined = times.iter().copied().reduce(|left, right| UtcTimes {
        minutes: left.minutes | right.minutes,
        hours: left.hours | right.hours,
        weekday: left.weekday,
    });
    let UtcTimes { minutes, hours, weekday } = combined.ok_or("its period has no times")?;
    let weekday = weekday.map_or_else(|| "*".into(), |day| day.to_string());
    Ok(CronJobSchedule {
        fields: format!("{} {} * * {weekday}", format_field(minutes, 60), format_field(hours, 24)),
        zone: UTC.into(),
        max_daily_slots: u64::from(minutes.count_ones() * hours.count_ones()),
    })
}

fn is_utc(settings: &ExportSettings) -> bool {
    let names = ["UTC", "Etc/UTC", "Etc/GMT", "GMT", "Universal", "Etc/Universal", "Zulu", "UCT"];
    settings.system_zone_name.is_some_and(|name| names.contains(&name))
}

/// Returns the name of a job's manifests: its id if that is a valid name, otherwise a valid form of it with a hash.
fn manifest_name(id: &str) -> String {
    let is_valid =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let name = format!("nanobot-{id}");
    if name.chars().all(is_valid) && !name.ends_with('-') && name.len() <= MAX_NAME_CHARS {
        return name;
    }
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    let hash = format!("{:08x}", hasher.finish() as u32);
    let name = name.to_ascii_lowercase().replace('_', "-");
    let prefix: String = name.chars().take(MAX_NAME_CHARS - hash.len() - 1).collect();
    format!("{}-{hash}", prefix.trim_end_matches('-'))
}
