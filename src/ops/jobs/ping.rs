//! The pings of a job's run: requests to a service that watches jobs, which raises the alarm if they do not arrive. This machine cannot
//! do that for itself.
//!
//! The protocol is that of healthchecks.io (<https://healthchecks.io/docs/http_api/>): `URL/start`, `URL` for a success and `URL/fail`,
//! each with the query `rid`, a UUID by which the service pairs the start of a run with its end. Nothing else is sent. A ping that
//! fails is only logged, and told in a run by hand. A run that is killed sends none at its end: its absence is what the service reports.

use crate::ops::context::Context;
use anyhow::{Result, anyhow};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Settings;
use nanobot_config::settings::validation::{JOB_NAME_FIELD, NO_PING};
use nanobot_cron::job::Job;
use nanobot_cron::run_record::Trigger;
use nanobot_net::http::{Http, HttpTimeouts, SsrfFilter};
use nanobot_net::test_dns::TestHosts;
use nanobot_net::web_url;
use nanobot_os::secret;
use nanobot_os::signal;
use std::net::IpAddr;
use std::time::Duration;
use url::Url;

/// Maximum duration of a ping. The run waits for it, and its time limit does not.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The event that a ping reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PingEvent {
    Start,
    Success,
    Failure,
}

/// The pings of one run.
pub(crate) struct RunPing<'a> {
    ctx: &'a Context,
    settings: &'a Settings,
    address: Url,
    run_id: String,
    trigger: Trigger,
}

impl<'a> RunPing<'a> {
    /// The pings of a run that starts now; `None` if neither the job nor the config has an address. An address that cannot be used is
    /// reported: a service raises no alarm for a job of which it has never heard.
    pub(crate) fn new(
        ctx: &'a Context,
        settings: &'a Settings,
        job: &Job,
        trigger: Trigger,
    ) -> Option<Self> {
        match parse_address(find_address(settings, job)?, &job.name) {
            Ok(address) => Some(Self { ctx, settings, address, run_id: new_uuid(), trigger }),
            Err(error) => {
                ctx.notice(&format!("job `{}` ({}): {error:#}", job.name, job.id));
                None
            }
        }
    }

    /// Reports `event`.
    pub(crate) fn send(&self, event: PingEvent) {
        let start = signal::now();
        let result = self.request(&self.url(event));
        signal::leave_out(signal::now().saturating_sub(start));
        if let Err(error) = result {
            let text = format!("the ping `{event:?}` was not accepted: {error:#}");
            log::warn!(target: "cron", "{text}");
            if self.trigger == Trigger::Manual {
                self.ctx.notice(&text);
            }
        }
    }

    /// The address for `event`.
    fn url(&self, event: PingEvent) -> Url {
        let mut url = self.address.clone();
        let suffix = match event {
            PingEvent::Start => Some("start"),
            PingEvent::Success => None,
            PingEvent::Failure => Some("fail"),
        };
        // Only an address that cannot have a path is refused here, and `parse_address` takes web addresses alone.
        if let (Some(suffix), Ok(mut segments)) = (suffix, url.path_segments_mut()) {
            segments.pop_if_empty().push(suffix);
        }
        url.query_pairs_mut().append_pair("rid", &self.run_id);
        url
    }

    fn request(&self, url: &Url) -> Result<()> {
        let timeouts = HttpTimeouts::within(PING_TIMEOUT);
        let port = url.port_or_known_default();
        let host = url.host_str().unwrap_or_default().to_owned();
        let filter = SsrfFilter {
            allowed_ranges: self.settings.web.allowed_ranges.clone(),
            allowed_ports: port.map(|port| (host, port)).into_iter().collect(),
            offline: false,
        };
        let hosts = TestHosts::from_env(&self.ctx.env);
        let http = Http::with_ssrf_filter(timeouts, filter, &hosts, &self.settings.network);
        let status = http.get(url, &[])?.status;
        if (200..300).contains(&status) { Ok(()) } else { Err(anyhow!("status {status}")) }
    }
}

/// The address of the pings of `job`: its own, or that of the config.
fn find_address<'a>(settings: &'a Settings, job: &'a Job) -> Option<&'a str> {
    let job_address = job.options.as_ref().and_then(|options| options.ping.as_deref());
    job_address.or(settings.job_ping.as_deref()).filter(|address| *address != NO_PING)
}

/// Checks the address of a job's pings.
///
/// # Errors
/// Status 2 if it is not a web address.
pub(crate) fn check_address(address: &str) -> Result<()> {
    if address.is_empty() || address == NO_PING {
        return Ok(());
    }
    parse_address(address, "job").map(drop)
}

/// The reason why pings of `job` can never be sent: their address is not valid, or in a private network that the config does not allow.
pub(crate) fn find_address_error(settings: &Settings, job: &Job) -> Option<String> {
    let url = match parse_address(find_address(settings, job)?, &job.name) {
        Ok(url) => url,
        Err(error) => return Some(format!("its pings are not sent: {error:#}")),
    };
    let ip: IpAddr = url.host_str()?.trim_matches(['[', ']']).parse().ok()?;
    let is_allowed = settings.web.allowed_ranges.iter().any(|range| range.contains(ip));
    (web_url::is_private_server(url.as_str()) && !is_allowed).then(|| {
        format!("its pings are not sent: `{ip}` is not a public address; `tools.ssrfWhitelist` allows it")
    })
}

/// Parses an address with the name of the job in it.
fn parse_address(address: &str, job_name: &str) -> Result<Url> {
    web_url::parse(&address.replace(JOB_NAME_FIELD, &slug(job_name))).map_err(|message| {
        fail(Exit::Usage, format!("the address to ping: {message}"))
            .with_hint("`--ping https://hc-ping.com/UUID`")
    })
}

/// A name as such services have it in addresses: lower-case letters, digits and hyphens.
fn slug(name: &str) -> String {
    let name = name.to_lowercase();
    let parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// A random UUID (RFC 9562, version 4).
fn new_uuid() -> String {
    let mut digits: Vec<char> = secret::random_hex(16).chars().collect();
    digits[12] = '4';
    digits[16] = '8';
    for index in [20, 16, 12, 8] {
        digits.insert(index, '-');
    }
    digits.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{new_uuid, parse_address, slug};

    #[test]
    fn addresses_have_the_name_of_the_job() {
        let url = parse_address("https://hc.example/KEY/{job}?create=1", "Night's digest!");
        assert_eq!(url.unwrap().as_str(), "https://hc.example/KEY/night-s-digest?create=1");
        assert_eq!(slug("ÄÖ disk 90%"), "disk-90");
        assert!(parse_address("hc.example/x", "x").is_err());
        assert!(parse_address("file:///etc/passwd", "x").is_err());
    }

    #[test]
    fn a_run_has_a_uuid() {
        let uuid = new_uuid();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert_ne!(uuid, new_uuid());
    }
}
