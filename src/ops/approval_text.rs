//! The wording of a request for approval. No I/O.

use nanobot_base::shell_quote::unquote;
use nanobot_config::policy::tool_names::SESSIONS;
use nanobot_tool::ApprovalRequest;

/// The tool name in the approval of a request of an MCP server for a reply of the model. No tool has this name.
pub(crate) const SAMPLING: &str = "sampling";
/// The tool name in the approval of the messages of a prompt of an MCP server. No tool has this name.
pub(crate) const SERVER_PROMPT: &str = "server_prompt";
/// Maximum characters of a path in the headline.
const MAX_HEADLINE_PATH_CHARS: usize = 60;

/// The file that a call would change, as it is on disk.
#[derive(Debug, Default)]
pub(crate) struct NamedFile {
    pub(crate) is_new: bool,
    /// The path that changes instead, in one line, if the call names a link. The headline has it only if it is short and plain.
    pub(crate) target: Option<String>,
}

/// The flag that would have allowed a call, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flag {
    name: String,
    value: Option<String>,
}

impl Flag {
    fn suggested_by(request: &ApprovalRequest<'_>) -> Self {
        let flag = request.refusal.suggested_flag.as_deref().unwrap_or_default();
        let (name, value) = match flag.split_once(['=', ' ']) {
            Some((name, value)) => {
                let value = unquote(value).unwrap_or_else(|| value.to_owned());
                (name, Some(value.replace(['\n', '\r'], "␊")))
            }
            None => (flag, None),
        };
        Self { name: name.to_owned(), value }
    }

    fn parts(&self) -> (&str, Option<&str>) {
        (&self.name, self.value.as_deref())
    }
}

/// True if a yes counts from now on, and not only once.
pub(crate) fn is_yes_lasting(request: &ApprovalRequest<'_>) -> bool {
    request.tool == SERVER_PROMPT
}

/// Returns the question about a change of `file`, in one line.
pub(crate) fn headline(request: &ApprovalRequest<'_>, file: &NamedFile) -> String {
    let tool = request.tool;
    let directory_name = request.file_scope.directory.display();
    let flag = Flag::suggested_by(request);
    if !request.withheld.is_empty() {
        let directory = &request.file_scope.directory;
        let names = request.withheld.iter().map(|change| {
            let name = change.path.strip_prefix(directory).unwrap_or(&change.path);
            name.display().to_string().replace(['\n', '\r'], "␊")
        });
        return format!(
            "{tool} changed files that programs and agents read on their own, and the changes were undone. Make the changes of {}?",
            names.collect::<Vec<_>>().join(", ")
        );
    }
    if request.is_retry {
        return match flag.parts() {
            ("--write", None) => format!(
                "{tool} failed, perhaps because it may not write. Run it again with write access to {directory_name}?"
            ),
            ("--net", None) => format!(
                "{tool} failed, perhaps because it has no network. Run it again with network access?"
            ),
            ("--net", Some(host)) => format!(
                "{tool} failed, because it may not reach {host}. Run it again with access to it?"
            ),
            ("--write", Some(path)) => format!(
                "{tool} failed, because it may not write there. Run it again with write access to {path}?"
            ),
            ("--read", Some(path)) => format!(
                "{tool} failed, because it may not read there. Run it again with read access to {path}?"
            ),
            _ => format!("{tool} failed. Run it again, when {}?", permission(request)),
        };
    }
    let mut path = headline_path(request).unwrap_or("the file below").to_owned();
    if let Some(target) = &file.target {
        let target = if is_plain_path(target) { target } else { "another file" };
        path.push_str(&format!(", a link to {target}"));
    }
    match (tool, flag.parts()) {
        ("write_file", _) if file.is_new => format!("Allow write_file to create {path}?"),
        ("write_file" | "edit_file", _) => format!("Allow {tool} to change {path}?"),
        ("delete_file", _) => format!("Allow delete_file to delete {path}?"),
        ("apply_patch", _) => "Allow apply_patch to make these changes?".into(),
        ("read_file", _) => format!("Allow read_file to read {path}?"),
        (SESSIONS, _) => "Allow sessions to look into your other conversations?".into(),
        ("exec", _) => "Allow exec to run this command?".into(),
        (_, ("--net", Some(host))) => format!("Allow {tool} to reach {host}?"),
        (SAMPLING, _) => format!("Allow the server {} to use the model?", server(request)),
        (SERVER_PROMPT, _) => format!("Send this prompt of the server {}?", server(request)),
        _ => format!("Allow this call of {tool}?"),
    }
}

/// The name of the server that the request is about.
fn server<'a>(request: &ApprovalRequest<'a>) -> &'a str {
    request.arguments["server"].as_str().unwrap_or_default()
}

/// Returns the path of a call, if it is short and plain enough for the headline.
pub(crate) fn headline_path<'a>(request: &ApprovalRequest<'a>) -> Option<&'a str> {
    let has_path = ["write_file", "edit_file", "delete_file", "read_file"].contains(&request.tool);
    if !has_path {
        return None;
    }
    request.arguments["path"].as_str().filter(|path| is_plain_path(path))
}

fn is_plain_path(path: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/~+@".contains(letter);
    let is_short = path.len() <= MAX_HEADLINE_PATH_CHARS && !path.is_empty();
    is_short && path.chars().all(is_plain)
}

/// Returns the reason why the call is not allowed, unless the headline makes it clear.
pub(crate) fn reason<'a>(request: &ApprovalRequest<'a>) -> Option<&'a str> {
    let flag = Flag::suggested_by(request);
    // The reason for a tool that always needs approval is written for the model.
    let is_plain = match flag.parts() {
        ("--write", None) => true,
        ("--allow", _) => request.refusal.names_flag,
        _ => false,
    };
    (!is_plain && !request.is_retry && request.withheld.is_empty())
        .then_some(&request.refusal.message)
}

/// Describes a permission that lasts longer than this call.
pub(crate) fn permission(request: &ApprovalRequest<'_>) -> String {
    let tool = request.tool;
    let directory_name = request.file_scope.directory.display();
    if tool == SAMPLING {
        return format!("the server {} may use the model", server(request));
    }
    match Flag::suggested_by(request).parts() {
        ("--write", None) => format!("{tool} may change files in {directory_name}"),
        ("--write", Some(path)) => format!("{tool} may change {path}"),
        ("--read", Some(path)) => format!("{tool} may read {path}"),
        ("--net", None) => format!("{tool} may use the network"),
        ("--net", Some(host)) => format!("{tool} may reach {host}"),
        ("--allow", Some("startup")) => format!("{tool} may change start-up files"),
        ("--allow", Some("notes")) => format!("{tool} may change instruction files"),
        ("--allow", Some(rule)) if rule == tool => format!("every call of {tool} is allowed"),
        (name, value) => format!(
            "every call of {tool} that needs `{}` is allowed",
            [name, value.unwrap_or_default()].join(" ").trim_end()
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{NamedFile, headline, permission, reason};
    use nanobot_config::policy::Refusal;
    use nanobot_config::policy::file_scope::FileScope;
    use nanobot_tool::ApprovalRequest;
    use serde_json::{Value, json};

    #[test]
    fn a_repeated_call_is_asked_about_with_what_it_lacked() {
        let check = |flag: &str, expect: &str| {
            let arguments = json!({ "command": "x" });
            let actual = with_request("exec", &arguments, flag, |request| {
                headline(&ApprovalRequest { is_retry: true, ..*request }, &NamedFile::default())
            });
            assert_eq!(actual, expect);
        };
        let there = "exec failed, because it may not";
        check(
            "--write=/h/notes.txt",
            &format!("{there} write there. Run it again with write access to /h/notes.txt?"),
        );
        check(
            "--read='/h/a b'",
            &format!("{there} read there. Run it again with read access to /h/a b?"),
        );
        check(
            "--net=example.org",
            &format!("{there} reach example.org. Run it again with access to it?"),
        );
    }

    /// Reads from the request for a call of `tool` that `flag` would allow, in a run in the directory `/w`, which does not exist.
    pub(crate) fn with_request<T>(
        tool: &str,
        arguments: &Value,
        flag: &str,
        read: impl FnOnce(&ApprovalRequest<'_>) -> T,
    ) -> T {
        let refusal = Refusal {
            message: "because".into(),
            suggested_flag: Some(flag.into()),
            names_flag: false,
        };
        let file_scope = FileScope { directory: "/w".into(), ..FileScope::default() };
        read(&ApprovalRequest {
            tool,
            arguments,
            refusal: &refusal,
            is_retry: false,
            withheld: &[],
            file_scope: &file_scope,
        })
    }

    #[test]
    fn a_request_is_one_plain_question() {
        let check = |tool: &str, arguments: Value, flag: &str, expect: [&str; 3]| {
            let texts = with_request(tool, &arguments, flag, |request| {
                [
                    headline(request, &NamedFile::default()),
                    reason(request).unwrap_or_default().to_owned(),
                    permission(request),
                ]
            });
            assert_eq!(texts, expect);
        };
        check(
            "edit_file",
            json!({ "path": "main.rs" }),
            "--write",
            ["Allow edit_file to change main.rs?", "", "edit_file may change files in /w"],
        );
        // A path could look like a part of the question.
        check(
            "delete_file",
            json!({ "path": "a? y" }),
            "--write='/x/a? y'",
            [
                "Allow delete_file to delete the file below?",
                "because",
                "delete_file may change /x/a? y",
            ],
        );
        check(
            "web_fetch",
            json!({ "url": "https://example.org/" }),
            "--net=example.org",
            ["Allow web_fetch to reach example.org?", "because", "web_fetch may reach example.org"],
        );
        check(
            "cron",
            json!({}),
            "--allow cron",
            ["Allow this call of cron?", "because", "every call of cron is allowed"],
        );
        check(
            "sessions",
            json!({ "action": "list" }),
            "--allow sessions",
            [
                "Allow sessions to look into your other conversations?",
                "because",
                "every call of sessions is allowed",
            ],
        );
        check(
            "exec",
            json!({ "command": "x" }),
            "--allow 'exec(x)'",
            [
                "Allow exec to run this command?",
                "because",
                "every call of exec that needs `--allow exec(x)` is allowed",
            ],
        );
    }
}
