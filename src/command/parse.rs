//! Parses the command line, with clap or with a fast path for crontab lines.

use super::tree;
use crate::cli::{self, Cli};
use crate::cron::job_store;
use clap::FromArgMatches;
use std::ffi::OsString;

/// Parses a command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    parse_cron_line(arguments).map_or_else(|| parse_with_clap(arguments), Ok)
}

/// `help COMMAND` as `COMMAND --help`.
pub(crate) fn rewrite_help_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

fn parse_with_clap(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = tree::command_tree().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// Parses the arguments of a crontab line as [`parse_with_clap`] would. Cron starts such a line every minute, and
/// building the command tree takes longer than the rest of the check.
fn parse_cron_line(arguments: &[OsString]) -> Option<Cli> {
    let (_, mut rest) = arguments.split_first()?;
    let mut shared = cli::GlobalArgs::default();
    let places = [("-c", &mut shared.config), ("-w", &mut shared.workspace)];
    for (flag, place) in places {
        if let [first, path, after @ ..] = rest
            && first == flag
            && !path.is_empty()
            && !path.as_encoded_bytes().starts_with(b"-")
        {
            *place = Some(path.into());
            rest = after;
        }
    }
    let [cron, run, id, scheduled] = rest else {
        return None;
    };
    let is_line = cron == "cron" && run == "run" && scheduled == "--scheduled";
    let id = id.to_str().filter(|id| job_store::is_valid_id(id))?;
    is_line.then(|| Cli {
        shared,
        command: cli::CliCommand::Cron {
            command: cli::cron::CronCommand::Run(cli::cron::CronRunArgs {
                job: Some(id.to_owned()),
                scheduled: true,
                ..cli::cron::CronRunArgs::default()
            }),
        },
    })
}

/// A command line without its values, as a panic report may contain it.
pub(crate) fn describe_command_line(arguments: &[OsString]) -> String {
    let mut tree = tree::command_tree();
    tree.build();
    let mut at = &tree;
    let mut words = vec![tree.get_name().to_owned()];
    for argument in arguments.iter().skip(1) {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        let flag = at.get_arguments().find_map(|known| {
            let long = known
                .get_long()
                .filter(|long| name.strip_prefix("--") == Some(*long));
            let short = known.get_short().filter(|short| {
                let rest = name.strip_prefix('-');
                rest.is_some_and(|rest| rest.starts_with(*short))
            });
            long.is_some().then_some(known).or(short.map(|_| known))
        });
        words.push(match (flag, at.find_subcommand(&*text)) {
            (Some(flag), _) => format!(
                "--{}",
                flag.get_long().unwrap_or_else(|| flag.get_id().as_str())
            ),
            (None, Some(command)) => {
                at = command;
                command.get_name().to_owned()
            }
            (None, None) => "…".to_owned(),
        });
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{describe_command_line, parse_cron_line, parse_with_clap};
    use std::ffi::OsString;

    #[test]
    fn a_report_tells_flags_and_no_values() {
        let check = |line: &str, expect: &str| {
            let arguments: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(describe_command_line(&arguments), expect);
        };
        check(
            "nanobot agent -m secret --json",
            "nanobot agent --message … --json",
        );
        check("nanobot a -msecret", "nanobot agent --message");
        check("nanobot agent --message=secret", "nanobot agent --message");
        check("nanobot session show diary", "nanobot session show …");
        check(
            "nanobot -q memory consolidate",
            "nanobot --quiet memory consolidate",
        );
        check("nanobot --sk-live-0123", "nanobot …");
        check("nanobot", "nanobot");
    }

    #[test]
    fn a_line_of_the_crontab_is_read_the_same_both_ways() {
        let check = |line: &str, is_line: bool| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let short = parse_cron_line(&words).map(|cli| format!("{cli:?}"));
            assert_eq!(short.is_some(), is_line, "{line}");
            if let Some(short) = short {
                assert_eq!(
                    short,
                    format!("{:?}", parse_with_clap(&words).unwrap()),
                    "{line}"
                );
            }
        };
        check("nanobot cron run 0a1b2c3d --scheduled", true);
        check("/usr/bin/nanobot cron run heartbeat --scheduled", true);
        check("nanobot -c /a/b.json cron run a-b_c --scheduled", true);
        check("nanobot -w /w cron run 0a1b2c3d --scheduled", true);
        check("nanobot -c c -w w cron run 0a1b2c3d --scheduled", true);
        check("nanobot -w w -c c cron run 0a1b2c3d --scheduled", false);
        check("nanobot -c -w w cron run 0a1b2c3d --scheduled", false);
        check("nanobot -c  cron run 0a1b2c3d --scheduled", false);
        check("nanobot cron run --due --scheduled", false);
        check("nanobot cron run a.b --scheduled", false);
        check("nanobot cron run 0a1b2c3d --as-cron", false);
        check("nanobot cron run 0a1b2c3d --scheduled -q", false);
        check("nanobot -q cron run 0a1b2c3d --scheduled", false);
        check("nanobot cron run --scheduled 0a1b2c3d", false);
        check("nanobot cron run", false);
        check("nanobot", false);
    }
}
