//! Exports the process that serves the channels, `nanobot channel poll --follow`, to systemd and Kubernetes.

use super::{ExportFile, ExportSettings, GrantedPath, kubernetes, path_text, systemd};
use nanobot_base::error::Exit;
use std::path::Path;

/// The first line of each file. A file without it is not an export.
const HEADER: &str =
    "# Made by `nanobot channel export`: changes here are lost when it is made again.\n";

/// The name of the manifest.
const NAME: &str = "nanobot-channels";
/// The name of the file with the unit.
pub const UNIT_FILE: &str = "nanobot-channels.service";

/// The process that serves the channels.
#[derive(Clone, Copy, Debug)]
pub struct ChannelPoll<'a> {
    /// Names of channels; empty for all that are enabled.
    pub names: &'a [String],
    /// The file given with `-c`.
    pub config: Option<&'a Path>,
    /// The directory given with `-w`.
    pub workspace: Option<&'a Path>,
    /// The directories and files that turns may change.
    pub writable: &'a [&'a Path],
    /// True if it runs commands of the user's, which are not sandboxed.
    pub has_user_commands: bool,
}

impl<'a> ChannelPoll<'a> {
    fn arguments(&self) -> Vec<&'a str> {
        let names = self.names.iter().map(String::as_str);
        ["channel", "poll", "--follow"].into_iter().chain(names).collect()
    }
}

/// Returns the unit of the service.
///
/// # Errors
/// A message that says why it cannot be exported.
pub fn unit_file(settings: &ExportSettings, poll: &ChannelPoll) -> Result<ExportFile, String> {
    let names = if poll.names.is_empty() { "channels".to_owned() } else { poll.names.join(", ") };
    let start_lines =
        systemd::start_lines(settings, poll.config, poll.workspace, &poll.arguments())?;
    let granted_paths: Vec<GrantedPath> = poll.writable.iter().copied().map(writable).collect();
    let hardening =
        systemd::hardening(settings, &granted_paths, poll.config, poll.has_user_commands)?;
    let (config, terminated) = (Exit::Config.code(), Exit::Terminated.code());
    let text = format!(
        "{HEADER}{}[Unit]\n\
         Description=nanobot: {names}\n\
         \n\
         [Service]\n\
         Type=notify\n\
         # It is started again when a channel has not gone on for 20 minutes.\n\
         WatchdogSec=60\n\
         #User=NAME\n\
         {start_lines}\
         SuccessExitStatus={terminated}\n\
         # {config}: the config is invalid, which another start does not change.\n\
         RestartPreventExitStatus={config}\n\
         Restart=on-failure\n\
         RestartSec=10\n\
         # A running turn may be finished.\n\
         TimeoutStopSec=60\n\
         KillMode=mixed\n\
         UMask=0077\n\
         {hardening}\n\
         [Install]\n\
         WantedBy=default.target\n",
        systemd::PLACES
    );
    Ok(ExportFile { name: UNIT_FILE.into(), text })
}

/// Returns the manifest of the Deployment. `image` is the image of its container.
///
/// # Errors
/// A message that says why it cannot be exported.
pub fn manifest_file(
    settings: &ExportSettings,
    poll: &ChannelPoll,
    image: &str,
) -> Result<ExportFile, String> {
    let mut text = HEADER.to_owned();
    for path in poll.writable.iter().filter(|path| !path.starts_with(settings.root)) {
        let path = path_text(path)?;
        text +=
            &format!("# Turns may change {path}, which the container has only if you mount it.\n");
    }
    let command = kubernetes::container_command(settings, poll.config, &poll.arguments())?;
    text += "---\n";
    text += &kubernetes::deployment(NAME, image, &command);
    Ok(ExportFile { name: format!("{NAME}.yaml"), text })
}

fn writable(path: &Path) -> GrantedPath {
    GrantedPath { path: path.to_owned(), is_writable: true }
}
