//! Skills from elsewhere: archives at an address, and commits of git repositories, harmless and hostile ones.

use crate::listener::Listener;
use crate::provenance::may_reach;
use crate::requirements::require;
use crate::screen::Key;
use crate::story::{Story, write};
use crate::web::{PageServer, page_response};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes archives in the current directory. The names of the hostile ones say what is wrong with them.
const MAKE_ARCHIVES: &str = r##"
import io, os, tarfile, zipfile
text = b"---\nname: tea\ndescription: how tea is made\n---\nSee http://127.0.0.2/x\n"

def tar(name, *entries, mode="w:gz"):
    with tarfile.open(name, mode) as archive:
        for path, data, kind in [("t-1/SKILL.md", text, tarfile.REGTYPE), *entries]:
            info = tarfile.TarInfo(path)
            info.type, info.mode = kind, 0o755 if path.endswith(".sh") else 0o644
            if kind == tarfile.REGTYPE:
                info.size = len(data)
            else:
                info.linkname = data.decode()
            archive.addfile(info, io.BytesIO(data))

def zip(name, *entries):
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data, mode in [("t-1/SKILL.md", text, 0o100644), *entries]:
            info = zipfile.ZipInfo(path)
            info.external_attr, info.create_system = mode << 16, 3
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)

file = tarfile.REGTYPE
long = "t-1/" + "notes-" * 30 + ".md"
tar("good.tar.gz", ("t-1/run.sh", b"#!/bin/sh\necho tea\n", file), (long, b"long", file))
tar("plain.tar", mode="w")
zip("good.zip", ("t-1/run.sh", b"#!/bin/sh\necho tea\n", 0o100755), ("t-1/empty/", b"", 0o040755))
zip("two.zip", ("t-1/cake/SKILL.md", b"---\nname: cake\ndescription: a cake\n---\nBake.\n", 0o100644))
tar("link.tgz", ("t-1/key", b"/etc/passwd", tarfile.SYMTYPE))
tar("hard-link.tgz", ("t-1/key", b"../../secret", tarfile.LNKTYPE))
tar("device.tgz", ("t-1/null", b"", tarfile.CHRTYPE))
tar("up.tgz", ("t-1/../../../up.txt", b"x", file))
tar("absolute.tgz", ("/tmp/absolute.txt", b"x", file))
tar("case.tgz", ("t-1/Notes.md", b"x", file), ("t-1/notes.md", b"y", file))
tar("twice.tgz", ("t-1/SKILL.md", b"other", file))
tar("git.tgz", ("t-1/.git/config", b"[core]", file))
tar("none.tgz")
zip("link.zip", ("t-1/key", b"/etc/passwd", 0o120777))
zip("up.zip", ("../up.txt", b"x", 0o100644))
zip("absolute.zip", ("/tmp/absolute.txt", b"x", 0o100644))
zip("bomb.zip", ("t-1/zeros", bytes(200 << 20), 0o100644))
tar("bomb.tgz", ("t-1/zeros", bytes(200 << 20), file))
with open("big.zip", "wb") as big:
    big.write(b"PK\x03\x04" + os.urandom(2 << 20))
with open("junk.zip", "wb") as junk:
    junk.write(b"PK\x03\x04 junk")
with open("page.zip", "wb") as page:
    page.write(b"<html>not found</html>")
"##;

/// A server with the archives, and a story that may fetch from it.
fn archives() -> (Story, PageServer) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("python3").args(["-c", MAKE_ARCHIVES]).current_dir(&folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let entries = std::fs::read_dir(&folder).unwrap().flatten();
    let files: BTreeMap<String, Vec<u8>> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (format!("/{name}"), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    let server = PageServer::start(move |path| match files.get(path) {
        Some(bytes) => page_response("application/octet-stream", bytes),
        None => (404, Vec::new(), Vec::new()),
    });
    (Story::new().env("NANOBOT_TEST_FETCH", "loopback"), server)
}

/// The digest of the archive at `url`, as the review prints it.
fn reviewed_digest(story: &Story, url: &str) -> String {
    let text = story.run(["skill", "add", "--dry-run", url]).text();
    let line = text.lines().find_map(|line| line.strip_prefix("digest    sha256:"));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn installed(story: &Story, path: &str) -> PathBuf {
    story.workspace().join("skills").join(path)
}

/// The names in the folder of skills, hidden ones too.
fn stored_skills(story: &Story) -> Vec<String> {
    let entries = std::fs::read_dir(story.workspace().join("skills")).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_archive_is_reviewed_and_installed() {
    if !require("python3") {
        return;
    }
    let (story, server) = archives();
    for name in ["good.tar.gz", "good.zip"] {
        let url = server.url(&format!("/{name}"));
        let digest = reviewed_digest(&story, &url);
        assert!(!installed(&story, "tea").exists());
        let result = story
            .run(["skill", "add", &url, "--digest", &digest, "--yes"])
            .stderr_has("installed in");
        let text = result.text();
        for row in [
            "name      tea\n",
            "SKILL.md (",
            "run.sh (",
            ", executable)",
            "addresses http://127.0.0.2/x\n",
            "hosts     named only if you say so: 127.0.0.2\n",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        drop(result);
        let script = std::fs::read_to_string(installed(&story, "tea/run.sh")).unwrap();
        assert_eq!(script, "#!/bin/sh\necho tea\n");
        story.run(["skill", "rm", "-y", "tea"]).error_text();
    }
    let long = format!("tea/{}.md", "notes-".repeat(30));
    let url = server.url("/good.tar.gz");
    let digest = reviewed_digest(&story, &url);
    story.run(["skill", "install", &url, "--digest", &digest, "-yq"]).text();
    assert_eq!(std::fs::read_to_string(installed(&story, &long)).unwrap(), "long");
    // One of several skills.
    let url = format!("{}#cake", server.url("/two.zip"));
    let digest = reviewed_digest(&story, &url);
    story.run(["skill", "add", &url, "--digest", &digest, "-yq"]).text();
    assert_eq!(stored_skills(&story), ["cake", "tea"]);
    assert!(!installed(&story, "cake/run.sh").exists());
}

#[test]
fn a_script_installs_only_the_archive_that_it_names() {
    if !require("python3") {
        return;
    }
    let (story, server) = archives();
    let url = server.url("/plain.tar");
    let refused = |arguments: &[&str], status: i32, message: &str| {
        let result = story.run([&["skill", "add"], arguments].concat()).status(status);
        result.text();
        drop(result.stderr_has(message));
        assert_eq!(stored_skills(&story), [""; 0]);
    };
    refused(&[&url, "--yes"], 2, "an archive needs `--digest` and `--yes`");
    assert_eq!(server.requests(), [""; 0]);
    let digest = reviewed_digest(&story, &url);
    refused(&[&url, "--digest", &digest], 2, "without a terminal");
    refused(&[&url, "--digest", &"0".repeat(64), "--yes"], 65, &format!("{digest}, not 0000"));
    refused(&[&url, "--digest", "1234", "--yes"], 2, "64 hexadecimal digits");
    refused(&["--digest", &digest, "--yes", "tea"], 2, "`--digest` is of an archive");
    refused(&["--dry-run", &server.url("/missing.zip")], 66, "there is no `http://127.0.0.2");
    refused(&["--dry-run", "https://10.0.0.1/x.zip"], 77, "10.0.0.1");
    refused(&["--dry-run", "http://example.org/x.zip"], 2, "is not encrypted");
    refused(&["--dry-run", "https://example.org/x.git"], 2, "no commit of it");
}

#[test]
fn hostile_archives_are_refused_as_a_whole() {
    if !require("python3") {
        return;
    }
    let (story, server) = archives();
    let check = |name: &str, message: &str| {
        let result = story.run(["skill", "add", "--dry-run", &server.url(&format!("/{name}"))]);
        drop(result.status(65).stderr_has(message));
        assert_eq!(stored_skills(&story), [""; 0], "{name}");
    };
    check("link.tgz", "`t-1/key` in it is a link");
    check("hard-link.tgz", "`t-1/key` in it is a link");
    check("link.zip", "`t-1/key` in it is a link");
    check("device.tgz", "neither a file nor a folder");
    check("up.tgz", "the part `..`");
    check("up.zip", "the part `..`");
    check("absolute.tgz", "is absolute");
    check("absolute.zip", "is absolute");
    check("case.tgz", "differ in case only");
    check("twice.tgz", "is twice in it");
    check("git.tgz", "the part `.git`");
    check("bomb.zip", "larger than 1 MiB");
    check("bomb.tgz", "larger than 1 MiB");
    check("big.zip", "larger than 1 MiB");
    check("junk.zip", "damaged");
    check("page.zip", "neither a ZIP archive nor a tar archive");
    let result = story.run(["skill", "add", "--dry-run", &server.url("/none.tgz#other")]);
    drop(result.status(65).stderr_has("no SKILL.md there, but in `t-1`"));
    assert!(!Path::new("/tmp/absolute.txt").exists());
}

/// The hosts that a fetched skill links to are not those that the user named.
#[test]
fn hosts_of_a_fetched_skill_need_a_yes_of_their_own() {
    if !require("python3") {
        return;
    }
    let (story, server) = archives();
    let url = server.url("/plain.tar");
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story =
        story.file("notes.txt", "Obey.").set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let is_named = || may_reach(&story, &pages);
    let digest = reviewed_digest(&story, &url);
    let add = |arguments: &[&str]| {
        let base = ["skill", "add", &url, "--digest", &digest, "-yq", "--force"];
        story.run([&base, arguments].concat()).text();
    };
    assert!(!is_named());
    add(&[]);
    assert!(!is_named());
    add(&["--hosts"]);
    assert!(is_named());
    // On a terminal a person is asked, and the last answer counts.
    let answer = |answer: &str| {
        let mut screen = story.screen(40, 100).args(["skill", "add", "--force", &url]);
        screen.until("digest    sha256:").until("Install tea? [y/N]").type_("y").press(Key::Enter);
        screen.until("May web tools reach 127.0.0.2").type_(answer).press(Key::Enter);
        assert_eq!(screen.code(), 0);
    };
    answer("n");
    assert!(!is_named());
    answer("y");
    assert!(is_named());
}

#[test]
fn an_update_shows_what_changes() {
    let story = Story::new();
    let skill = |text: &str| format!("---\nname: tea\ndescription: tea\n---\n{text}\n");
    let source = story.dir().join("tea");
    write(&source.join("SKILL.md"), skill("Brew for four minutes.").as_bytes());
    write(&source.join("old.md"), b"old\n");
    story.run(["skill", "update", "tea", "tea"]).status(66).stderr_has("no skill `tea`");
    story.run(["skill", "add", "-yq", "tea"]).text();
    story.run(["skill", "update", "tea", "tea"]).stderr_has("what is there already").stdout("");
    write(&source.join("SKILL.md"), skill("Brew for \u{1b}[31mfive minutes.").as_bytes());
    write(&source.join("new.bin"), b"\xff\xfe");
    std::fs::remove_file(source.join("old.md")).unwrap();
    let changes = [
        "-Brew for four minutes.\n",
        "+Brew for \\u{1b}[31mfive minutes.\n",
        "+++ /dev/null\n",
        "-old\n",
        "new.bin: not a text, 2 B\n",
    ];
    let check = |text: &str| {
        changes.iter().for_each(|line| assert!(text.contains(line), "{line}: {text}"));
    };
    check(&story.run(["skill", "update", "tea", "tea", "--dry-run"]).text());
    let refused = story.run(["skill", "update", "tea", "tea"]).status(2);
    check(&refused.text());
    drop(refused.stderr_has("without a terminal"));
    assert!(installed(&story, "tea/old.md").exists());
    let mut screen = story.screen(40, 100).args(["skill", "update", "tea", "tea"]);
    screen.until("Update tea? [y/N]").type_("n").press(Key::Enter);
    assert_eq!(screen.code(), 1);
    assert!(installed(&story, "tea/old.md").exists());
    story.run(["skill", "update", "tea", "tea", "-y"]).stderr_has("updated `~").text();
    assert!(!installed(&story, "tea/old.md").exists() && installed(&story, "tea/new.bin").exists());
    // Another skill does not take its place.
    write(&story.dir().join("cake/SKILL.md"), b"---\nname: cake\ndescription: cake\n---\n");
    story
        .run(["skill", "update", "tea", "cake", "-y"])
        .status(65)
        .stderr_has("is `cake`, not `tea`");
}

/// A server of git repositories: git's own program behind a few lines of HTTP.
fn serve_git(root: &Path) -> Listener {
    let root = root.to_owned();
    Listener::start_at("127.0.0.2:0", move |stream| answer_git(stream, &root))
}

/// Passes one request to git, as a web server does (RFC 3875).
fn answer_git(mut stream: &TcpStream, root: &Path) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let mut parts = first.split(' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let target =
        target.strip_prefix("http://").map_or(target, |rest| &rest[rest.find('/').unwrap()..]);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut git = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    git.stdin.take().unwrap().write_all(&body).unwrap();
    let output = git.wait_with_output().unwrap().stdout;
    let split = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(output.len());
    let head = String::from_utf8_lossy(&output[..split]).into_owned();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let rest = output.get(split..).unwrap_or_default();
    let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{head}");
    drop(stream.write_all(answer.as_bytes()).and_then(|()| stream.write_all(rest)));
}

/// Runs a shell command as the user, in the story's directory, and returns its output.
fn as_user(story: &Story, command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", &format!("set -e; {command}")])
        .current_dir(story.dir())
        .env("HOME", story.home())
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "u")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "u@example.org")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A story with a repository `r`, what serves it, and its address.
fn repository() -> (Story, Listener, String) {
    let story = Story::new();
    as_user(
        &story,
        "git init -q -b main r && cd r && mkdir tea && printf -- '---\\nname: tea\\ndescription: tea\\n---\\nBrew.\\n' > tea/SKILL.md \
         && printf '#!/bin/sh\\necho tea\\n' > tea/run.sh && chmod +x tea/run.sh && git add . && git commit -qm one",
    );
    let listener = serve_git(&story.dir());
    let url = format!("http://127.0.0.2:{}/r", listener.port);
    (story, listener, url)
}

#[test]
fn a_commit_of_a_repository_is_installed() {
    if !require("git") {
        return;
    }
    let (story, _listener, url) = repository();
    let commit = as_user(&story, "git -C r rev-parse HEAD");
    as_user(&story, "cd r && echo Later. >> tea/SKILL.md && git commit -qam two");
    let latest = as_user(&story, "git -C r rev-parse HEAD");
    let address = |commit: &str| format!("{url}@{commit}");
    let refused = story.run(["skill", "add", &address(&commit)]).status(2);
    assert!(refused.text().contains("name      tea\n"));
    drop(refused.stderr_has("without a terminal"));
    let result = story.run(["skill", "add", "--yes", &address(&commit)]).stderr_has("installed in");
    assert!(result.text().contains("run.sh (19 B, executable)"));
    drop(result);
    let text = || std::fs::read_to_string(installed(&story, "tea/SKILL.md")).unwrap();
    assert!(text().ends_with("Brew.\n"));
    let result =
        story.run(["skill", "update", "tea", "--yes", &format!("{}#tea", address(&latest))]);
    assert!(result.text().contains("+Later.\n"));
    result.error_text();
    assert!(text().ends_with("Brew.\nLater.\n"));
    // Only a whole id names a commit, and one that is not there is not replaced by another.
    let refused = |source: &str, status: i32, message: &str| {
        let result = story.run(["skill", "add", "--yes", "--force", source]).status(status);
        drop(result.stderr_has(message));
    };
    refused(&format!("{url}@main"), 2, "no whole commit id");
    refused(&address(&commit[..12]), 2, "no whole commit id");
    refused(&address(&"0123456789".repeat(4)), 69, "cannot be fetched");
    refused(&format!("{}#cake", address(&commit)), 65, "no SKILL.md there, but in `tea`");
}

#[test]
fn hostile_repositories_run_nothing_and_hide_nothing() {
    if !require("git") {
        return;
    }
    let (story, _listener, url) = repository();
    // The user's own git would run a filter, and hooks.
    let marks = story.home().join("marks");
    std::fs::create_dir(&marks).unwrap();
    let touch = format!("touch {}/filter; cat", marks.display());
    write(
        &story.home().join("hooks/post-checkout"),
        format!("#!/bin/sh\ntouch {}/hook\n", marks.display()).as_bytes(),
    );
    as_user(
        &story,
        &format!(
            "chmod +x ~/hooks/*; git config --global filter.evil.smudge '{touch}'; git config --global filter.evil.clean cat; git config --global filter.evil.required true; \
             git config --global core.hooksPath ~/hooks; cp -r ~/hooks ~/reference-hooks"
        ),
    );
    let commit_of = |commands: &str| {
        as_user(
            &story,
            &format!(
                "cd r && git checkout -q -B work main && rm -rf {}/* && {commands} && git commit -qm x && git rev-parse HEAD && git checkout -q -f main && rm -rf {}/*",
                marks.display(),
                marks.display()
            ),
        )
    };
    let add =
        |commit: &str| story.run(["skill", "add", "--yes", "--force", &format!("{url}@{commit}")]);
    let filtered = commit_of("echo '* filter=evil' > tea/.gitattributes && git add .");
    add(&filtered).stderr_has("installed in").text();
    assert!(installed(&story, "tea/.gitattributes").exists());
    assert_eq!(std::fs::read_dir(&marks).unwrap().count(), 0);
    let refused = |commands: &str, message: &str| {
        let before = stored_skills(&story);
        drop(add(&commit_of(commands)).status(65).stderr_has(message));
        assert_eq!(stored_skills(&story), before);
    };
    refused("ln -s /etc/passwd tea/key && git add .", "`tea/key` in it is a link");
    refused(
        "git update-index --add --cacheinfo 160000,0123456789012345678901234567890123456789,tea/sub",
        "`tea/sub` in it is a submodule",
    );
    refused("head -c 2097152 /dev/urandom > tea/big && git add .", "larger than 1 MiB");
    refused("echo a > tea/Notes.md && echo b > tea/notes.md && git add .", "differ in case only");
    assert_eq!(std::fs::read_dir(&marks).unwrap().count(), 0);
}
