//! The MCP client: the connections of a run to its servers. On the first request, a thread with an async runtime is
//! started, and servers are started in it as needed. Calls block the caller until the answer, the deadline or the end
//! of the run.
//!
//! [`berth`] holds the connection to one server, and [`thread`] connects blocking callers to the runtime. The
//! transports are [`stdio`], [`http`] and [`sse`], each with the accounting of [`watch`]. Server messages are parsed by
//! [`message`], [`listing`] and [`said`].

use super::offer::{Answer, Failed, Offer};
use crate::settings::servers::Server;
use crate::sys::leash;
use crate::sys::paths::Paths;
use crate::sys::signal::Patience;
use crate::sys::sync::IgnorePoison;
use berth::{Berth, Cancel, Wish};
pub use config::{ClientConfig, ElicitationHandler};
pub use grants::{Grant, Walled, Walls};
use serde_json::{Map, Value};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stdio::Programs;
use thread::{Heard, Room, Say};

mod berth;
mod config;
mod grants;
mod host;
mod http;
mod listing;
mod message;
mod said;
mod sse;
mod stdio;
mod surroundings;
mod thread;
mod watch;

/// Maximum wait for a late result after a request was cancelled.
const LAST_WORD: Duration = Duration::from_millis(300);
/// Timeout for closing the sessions of remote servers. Local programs are ended in parallel, with their own timeout.
const GOODBYE: Duration = Duration::from_millis(1000);

/// Removes the state and the logs of a local server.
///
/// # Errors
/// A file cannot be removed.
pub fn forget(paths: &Paths, server: &str) -> io::Result<()> {
    let (root, name) = (paths.mcp(), surroundings::file_name(server));
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    for log in [format!("{name}.log"), format!("{name}.log.old")] {
        gone(std::fs::remove_file(root.join("logs").join(log)))?;
    }
    gone(std::fs::remove_dir_all(root.join("state").join(name)))
}

/// The servers of a run. They are ended when the last clone is dropped.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    servers: Vec<Server>,
    berths: Vec<Arc<Berth>>,
    ground: ClientConfig,
    room: Mutex<Option<Room>>,
    programs: Arc<Programs>,
}

impl Fleet {
    /// Creates the pool of all `servers` that are not disabled. Nothing is started.
    pub fn new(servers: &[Server], ground: ClientConfig) -> Self {
        let used = servers.iter().filter(|server| !server.disabled);
        let servers: Vec<Server> = used.cloned().collect();
        let berth = |server: &Server| Arc::new(Berth::new(server.clone()));
        Self(Arc::new(Inner {
            berths: servers.iter().map(berth).collect(),
            servers,
            ground,
            room: Mutex::default(),
            programs: Arc::default(),
        }))
    }

    /// Returns the servers of the config that are in use.
    pub fn servers(&self) -> &[Server] {
        &self.0.servers
    }

    /// Returns what `server` offered when it was last asked in this run. It may have announced a change since.
    pub fn offer(&self, server: &str) -> Option<Arc<Offer>> {
        self.0.berth(server).ok()?.newest()
    }

    /// Returns what each of the servers `names` offers now. Servers that are not running are started in parallel.
    pub fn reach(&self, names: &[&str]) -> Vec<(String, Result<Arc<Offer>, Failed>)> {
        let leash = leash::held();
        let one = |name: &str| (name.to_owned(), self.0.reach(name));
        if let [name] = names {
            return vec![one(name)];
        }
        std::thread::scope(|scope| {
            let reaching: Vec<_> = names
                .iter()
                .map(|name| {
                    let leash = leash.clone();
                    let one = &one;
                    let thread = scope.spawn(move || leash::under(leash, || one(name)));
                    (*name, thread)
                })
                .collect();
            let joined = reaching.into_iter().map(|(name, thread)| {
                let defect = || Failed::Broken("internal error".into());
                thread
                    .join()
                    .unwrap_or_else(|_| (name.to_owned(), Err(defect())))
            });
            joined.collect()
        })
    }

    /// Calls a tool, by the server's own name for it, if the server still offers what [`Self::reach`] returned as
    /// `features`. `on_progress` receives the server's progress messages.
    ///
    /// # Errors
    /// See [`Failed`]. A failure reported by the tool itself is an answer, not an error.
    pub fn call(
        &self,
        server: &str,
        offer: &Arc<Offer>,
        tool: &str,
        arguments: &Value,
        say: &mut dyn FnMut(&str),
    ) -> Result<Answer, Failed> {
        let arguments = match arguments {
            Value::Object(members) => members.clone(),
            Value::Null => Map::new(),
            _ => {
                return Err(Failed::Refused(
                    "the arguments are not a JSON object".into(),
                ));
            }
        };
        let wish = Wish::Call {
            tool: tool.to_owned(),
            arguments,
            offer: Arc::clone(offer),
        };
        self.0.ask(server, wish, say)
    }

    /// Reads the resource at `uri`.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn read(&self, server: &str, uri: &str) -> Result<Answer, Failed> {
        self.0.ask(server, Wish::Read(uri.to_owned()), &mut |_| {})
    }

    /// Requests a prompt of the server, filled in.
    ///
    /// # Errors
    /// See [`Failed`].
    pub fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Answer, Failed> {
        let wish = Wish::Prompt(name.to_owned(), arguments.clone());
        self.0.ask(server, wish, &mut |_| {})
    }

    /// Ends all running servers in parallel, including their child processes. A server that is needed later is started
    /// again.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Inner {
    fn berth(&self, name: &str) -> Result<&Arc<Berth>, Failed> {
        let mut all = self.berths.iter();
        let found = all.find(|berth| berth.server.name == name);
        found.ok_or_else(|| Failed::Unusable("no such server".into()))
    }

    fn reach(&self, name: &str) -> Result<Arc<Offer>, Failed> {
        let berth = self.berth(name)?;
        let limit = berth.server.start_timeout;
        let (its, ground, programs) = (
            Arc::clone(berth),
            self.ground.clone(),
            Arc::clone(&self.programs),
        );
        let work = move |_, _| async move { its.reach(&ground, &programs).await };
        match self.wait(berth, limit, work, &mut |_| {}) {
            Err(Failed::Late(_)) => Err(Failed::Unreachable(format!(
                "it did not start within {} s{}",
                limit.as_secs(),
                berth.last_words()
            ))),
            done => done,
        }
    }

    fn ask(&self, name: &str, wish: Wish, say: &mut dyn FnMut(&str)) -> Result<Answer, Failed> {
        self.reach(name)?;
        let berth = self.berth(name)?;
        let limit = berth.server.call_timeout;
        let (its, ground, programs) = (
            Arc::clone(berth),
            self.ground.clone(),
            Arc::clone(&self.programs),
        );
        let work = move |cancel, say: Say| async move {
            its.ask(&ground, &programs, &wish, Some(say), cancel).await
        };
        match self.wait(berth, limit, work, say) {
            Err(Failed::Late(_)) => Err(Failed::Late(format!(
                "timed out after {} s",
                limit.as_secs()
            ))),
            done => done,
        }
    }

    /// Runs `work` on the runtime, and waits for it.
    fn wait<T, F>(
        &self,
        berth: &Berth,
        limit: Duration,
        work: impl FnOnce(Cancel, Say) -> F,
        say: &mut dyn FnMut(&str),
    ) -> Result<T, Failed>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let no_room = |error: io::Error| Failed::Unreachable(format!("start a thread: {error}"));
        let (mouth, mut ear) = thread::channel().map_err(no_room)?;
        let (cancel, cancelled) = tokio::sync::watch::channel(None);
        let work = work(cancelled, mouth.sayer());
        let task = {
            let mut room = self.room.lock().ignore_poison();
            let room = match &mut *room {
                Some(room) => room,
                none => none.insert(Room::open().map_err(no_room)?),
            };
            room.handle()
                .spawn(async move { mouth.done(work.await).await })
        };
        let heard = ear.wait(Patience::unless_zero(limit), &|| berth.is_asking(), say);
        let (reason, failed) = match heard {
            Heard::Done(done) => return done,
            Heard::Gone => return Err(Failed::Broken("the servers were shut down".into())),
            Heard::Late => ("the request timed out", Failed::Late(String::new())),
            Heard::Stopped(stop) => ("the user cancelled the request", Failed::Stopped(stop)),
        };
        cancel.send_replace(Some(reason));
        let last = ear.wait_shortly(LAST_WORD);
        task.abort();
        match (last, failed) {
            // The answer arrived at the last moment.
            (Some(Ok(done)), Failed::Late(_)) => Ok(done),
            (_, failed) => Err(failed),
        }
    }

    fn end(&self) {
        let room = self.room.lock().ignore_poison().take();
        let Some(room) = room else { return };
        let programs = Arc::clone(&self.programs);
        // If no thread can be started, the programs are ended below, after the remote servers.
        let ending = std::thread::Builder::new()
            .name("mcp-end".into())
            .spawn(move || programs.end());
        if let Ok((mouth, ear)) = thread::channel() {
            let berths = self.berths.clone();
            room.handle().spawn(async move {
                let mut all = tokio::task::JoinSet::new();
                for berth in berths {
                    all.spawn(async move { berth.end(GOODBYE).await });
                }
                all.join_all().await;
                mouth.done(()).await;
            });
            ear.wait_shortly(GOODBYE);
        }
        drop(room);
        if let Ok(thread) = ending {
            drop(thread.join());
        }
        // A server that was being handed over to another thread for ending during the first pass was missed by it.
        self.programs.end();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientConfig, Failed, Fleet};
    use crate::mcp::offer::Piece;
    use crate::settings::servers::{Reached, Remote, Server};
    use crate::settings::{Config, Overrides, Settings};
    use crate::sys::env::Env;
    use crate::sys::leash::{self, Leash};
    use crate::sys::paths::Paths;
    use crate::sys::process::tests::alone;
    use serde_json::{Map, Value, json};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// A server that does what the names of its tools say, with a few faults on demand.
    const FAKE: &str = r#"
import json, os, sys, time
habit = sys.argv[1] if len(sys.argv) > 1 else ""
def out(message):
    sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
def told(words):
    with open(os.environ["TOLD"], "a") as file: file.write(words + "\n")
told("start")
if habit == "mute": time.sleep(600)
if habit == "dies": sys.stderr.write("no such luck\n"); sys.exit(3)
if habit == "greets": print("hello\nI am a server")
if habit == "babbles":
    while True: print("la la la")
names = ["echo", "die", "sleep", "long", "flood", "wrong", "more"]
for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    answer = lambda result: out({"jsonrpc": "2.0", "id": number, "result": result})
    text = lambda words: answer({"content": [{"type": "text", "text": words}]})
    if method == "initialize":
        answer({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "fake", "version": "1"}})
    elif method == "tools/list":
        answer({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names] + [{"description": "no name"}, {"name": "odd", "inputSchema": 7}], "nextCursor": "again" if habit == "endless" else None})
    elif method == "notifications/cancelled":
        told("cancelled " + params.get("reason", ""))
    elif method == "tools/call":
        name = params["name"]
        token = params.get("_meta", {}).get("progressToken")
        if name == "echo":
            out({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2, "message": "half\x1b[31m"}})
            time.sleep(0.05)
            text(json.dumps(params.get("arguments")))
        elif name == "die": sys.exit(7)
        elif name == "long": sys.stdout.write('{"x":"' + "x" * (40 << 20)); sys.stdout.flush(); text("")
        elif name == "flood":
            while True: out({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        elif name == "wrong":
            out({"jsonrpc": "2.0", "id": 4711, "result": {}})
            out({"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": "no,\nnever"}})
            out({"jsonrpc": "2.0", "id": number, "result": {}})
        elif name in ("ask", "lend"):
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            ask = ("elicitation/create", {"message": "who?", "requestedSchema": form}) if name == "ask" else ("sampling/createMessage", {"messages": [], "maxTokens": 1})
            out({"jsonrpc": "2.0", "id": "q1", "method": ask[0], "params": ask[1]})
            answered = json.loads(sys.stdin.readline())
            text(json.dumps(answered.get("result", answered.get("error"))))
        elif name == "more":
            names.append("new")
            out({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            time.sleep(0.05)
            text("ok")
"#;

    struct Trial {
        fleet: Fleet,
        folder: tempfile::TempDir,
    }

    impl Trial {
        fn new(habit: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let script = folder.path().join("fake.py");
            std::fs::write(&script, FAKE).unwrap();
            let told = folder.path().join("told").display().to_string();
            let server = Server {
                name: "fake".into(),
                reached: Reached::Program {
                    command: "python3".into(),
                    arguments: vec![script.display().to_string(), habit.into()],
                    env: vec![("TOLD".into(), crate::sys::secret::Secret::new(told))],
                    directory: None,
                },
                call_timeout: Duration::from_secs(60),
                start_timeout: Duration::from_secs(60),
                unfenced: true,
                ..Server::default()
            };
            Self {
                fleet: fleet(vec![server], folder.path()),
                folder,
            }
        }

        fn limit(habit: &str, start: Duration, call: Duration) -> Self {
            let mut trial = Self::new(habit);
            let mut server = trial.fleet.servers()[0].clone();
            (server.start_timeout, server.call_timeout) = (start, call);
            trial.fleet = fleet(vec![server], trial.folder.path());
            trial
        }

        fn call(&self, tool: &str) -> Result<String, Failed> {
            let offer = self.fleet.reach(&["fake"]).remove(0).1?;
            let arguments = json!({"a": 1});
            let answer = self
                .fleet
                .call("fake", &offer, tool, &arguments, &mut |_| {})?;
            match &answer.pieces[..] {
                [Piece::Text(text)] => Ok(text.clone()),
                other => panic!("{other:?}"),
            }
        }

        fn told(&self) -> Vec<String> {
            let told = std::fs::read_to_string(self.folder.path().join("told"));
            told.unwrap_or_default()
                .lines()
                .map(str::to_owned)
                .collect()
        }
    }

    fn fleet(servers: Vec<Server>, home: &Path) -> Fleet {
        let path = std::env::var("PATH").unwrap();
        let env: Env = [("HOME", home.to_str().unwrap()), ("PATH", &path)]
            .into_iter()
            .collect();
        let paths = Paths::resolve(&env, None).unwrap();
        Fleet::new(
            &servers,
            ClientConfig {
                env,
                paths,
                offline: false,
                answers: None,
                walls: None,
            },
        )
    }

    #[test]
    fn tools_are_listed_and_called() {
        let _alone = alone();
        let trial = Trial::new("greets");
        assert!(trial.told().is_empty() && trial.fleet.offer("fake").is_none());
        let mut reached = trial.fleet.reach(&["fake"]);
        let offer = reached.remove(0).1.unwrap();
        assert_eq!(
            (offer.server.as_str(), offer.tools.len(), offer.left_out),
            ("fake 1", 8, 1)
        );
        let mut said = Vec::new();
        let arguments = json!({"a": "\u{e9}\n"});
        let mut say = |words: &str| said.push(words.to_owned());
        let answer = trial
            .fleet
            .call("fake", &offer, "echo", &arguments, &mut say);
        let Piece::Text(text) = &answer.unwrap().pieces[0] else {
            panic!()
        };
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
        assert_eq!(said, ["1/2 half\\u{1b}[31m"]);
        // In parallel, with one server.
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| trial.call("echo"))).collect();
            for call in calls {
                assert_eq!(call.join().unwrap().unwrap(), r#"{"a": 1}"#);
            }
        });
        assert_eq!(trial.told(), ["start"]);
        trial.fleet.end();
        trial.fleet.end();
        // A server that is needed again is started again.
        assert!(trial.call("echo").is_ok());
        assert_eq!(trial.told(), ["start", "start"]);
        assert!(matches!(
            trial
                .fleet
                .call("other", &offer, "x", &json!({}), &mut |_| {}),
            Err(Failed::Unusable(_))
        ));
    }

    #[test]
    fn a_person_is_asked_where_there_is_one_and_has_all_the_time() {
        struct Slow;
        impl super::ElicitationHandler for Slow {
            fn enter(&self, server: &str, words: &str, form: &Value) -> Option<Map<String, Value>> {
                assert_eq!((server, words), ("fake", "who?"));
                assert_eq!(form["properties"]["name"]["type"], "string");
                std::thread::sleep(Duration::from_millis(900));
                json!({"name": "Ann"}).as_object().cloned()
            }
        }
        let _alone = alone();
        let mut trial = Trial::new("");
        assert_eq!(trial.call("ask").unwrap(), r#"{"action": "decline"}"#);
        let mut server = trial.fleet.servers()[0].clone();
        server.call_timeout = Duration::from_millis(600);
        let mut ground = trial.fleet.0.ground.clone();
        ground.answers = Some(Arc::new(Slow));
        trial.fleet = Fleet::new(&[server], ground);
        let answer = trial.call("ask").unwrap();
        assert_eq!(
            answer,
            r#"{"action": "accept", "content": {"name": "Ann"}}"#
        );
        assert!(
            trial
                .call("lend")
                .unwrap()
                .contains("may not use the model")
        );
    }

    #[test]
    fn no_program_runs_unfenced_that_is_not_meant_to() {
        let folder = tempfile::tempdir().unwrap();
        let trial = Trial::new("");
        let mut server = trial.fleet.servers()[0].clone();
        server.unfenced = false;
        let failed = fleet(vec![server], folder.path())
            .reach(&["fake"])
            .remove(0)
            .1;
        assert!(matches!(failed, Err(Failed::Unusable(_))), "{failed:?}");
        assert!(trial.told().is_empty());
    }

    #[test]
    fn whoever_dies_in_a_call_is_not_asked_twice() {
        let _alone = alone();
        let trial = Trial::new("");
        let words = trial.call("die").unwrap_err();
        assert!(
            matches!(&words, Failed::Broken(words) if words.contains("may have taken effect")),
            "{words:?}"
        );
        assert!(trial.call("echo").is_ok());
        assert_eq!(trial.told(), ["start", "start"]);
    }

    #[test]
    fn what_is_said_beside_the_protocol_ends_it() {
        let _alone = alone();
        let trial = Trial::new("");
        let words = trial.call("long").unwrap_err();
        assert!(
            matches!(&words, Failed::Broken(words) if words.contains("32 MiB")),
            "{words:?}"
        );
        let words = trial.call("flood").unwrap_err();
        assert!(
            matches!(&words, Failed::Broken(words) if words.contains("notifications")),
            "{words:?}"
        );
        let words = trial.call("wrong").unwrap_err();
        assert_eq!(words, Failed::Refused("no, never".into()));
        let trial = Trial::new("babbles");
        let words = trial.call("echo").unwrap_err();
        assert!(
            matches!(&words, Failed::Unreachable(words) if words.contains("la la la")),
            "{words:?}"
        );
    }

    #[test]
    fn lists_that_change_are_read_again_and_have_an_end() {
        let _alone = alone();
        let trial = Trial::new("");
        let before = trial.fleet.reach(&["fake"]).remove(0).1.unwrap();
        assert_eq!(trial.call("more").unwrap(), "ok");
        // A caller with an outdated offer cannot call anything.
        let none = json!({});
        let call = |offer: &Arc<_>| trial.fleet.call("fake", offer, "echo", &none, &mut |_| {});
        assert_eq!(call(&before), Err(Failed::Altered));
        let offer = trial.fleet.reach(&["fake"]).remove(0).1.unwrap();
        assert_eq!(offer.tools.len(), 9);
        assert!(call(&offer).is_ok());
        let trial = Trial::new("endless");
        assert_eq!(
            trial
                .fleet
                .reach(&["fake"])
                .remove(0)
                .1
                .unwrap()
                .tools
                .len(),
            16
        );
    }

    #[test]
    fn deadlines_hold_and_are_told() {
        let _alone = alone();
        let (short, long) = (Duration::from_millis(700), Duration::from_secs(60));
        let trial = Trial::limit("mute", short, long);
        assert!(matches!(trial.call("echo"), Err(Failed::Unreachable(_))));
        let trial = Trial::limit("", long, short);
        trial.fleet.reach(&["fake"]);
        assert!(matches!(trial.call("sleep"), Err(Failed::Late(_))));
        // The server survives, and has received the cancellation by the time it answers again.
        assert!(trial.call("echo").is_ok());
        assert_eq!(trial.told(), ["start", "cancelled the request timed out"]);
        let trial = Trial::limit("dies", long, long);
        let words = trial.call("echo").unwrap_err();
        assert!(
            matches!(&words, Failed::Unreachable(words) if words.contains("no such luck")),
            "{words:?}"
        );
    }

    #[test]
    fn a_cut_leash_ends_a_call_and_tells_the_server() {
        let _alone = alone();
        let trial = Trial::new("");
        trial.fleet.reach(&["fake"]);
        let leash = Leash::new().unwrap();
        std::thread::scope(|scope| {
            let held = Some(leash.clone());
            let call = scope.spawn(|| leash::under(held, || trial.call("sleep")));
            leash.cut();
            assert!(matches!(call.join().unwrap(), Err(Failed::Stopped(_))));
        });
        assert!(trial.call("echo").is_ok());
    }

    #[test]
    fn addresses_that_cannot_be_used() {
        let check = |url: &str, header: Option<&str>, offline: bool, expect: &str| {
            let folder = tempfile::tempdir().unwrap();
            let headers =
                header.map(|value| ("x".to_owned(), crate::sys::secret::Secret::new(value)));
            let remote = Remote {
                url: url.into(),
                headers: headers.into_iter().collect(),
            };
            for reached in [Reached::Http(remote.clone()), Reached::Sse(remote)] {
                let server = Server {
                    name: "far".into(),
                    reached,
                    start_timeout: Duration::from_secs(20),
                    ..Server::default()
                };
                let mut fleet = fleet(vec![server], folder.path());
                let mut ground = fleet.0.ground.clone();
                ground.offline = offline;
                fleet = Fleet::new(fleet.servers(), ground);
                let failed = fleet.reach(&["far"]).remove(0).1.unwrap_err();
                assert!(format!("{failed:?}").contains(expect), "{url}: {failed:?}");
            }
        };
        check(
            "ftp://a.example",
            None,
            false,
            "Unusable(\"`ftp://a.example` is not an HTTP URL",
        );
        check("http://a.example/mcp", Some("k"), false, "unencrypted");
        check(
            "https://a.example/mcp",
            Some("a\nb"),
            false,
            "invalid header",
        );
        check("https://a.example/mcp", None, true, "`--offline` forbids");
        check(
            "http://127.0.0.1:1/mcp",
            None,
            false,
            "Unreachable(\"connection refused",
        );
    }

    /// Prints what a real server offers and answers, for manual inspection: the variable TRY holds its config entry,
    /// with `calls` and the path of the `report` file.
    #[test]
    #[ignore = "needs a server in the variable TRY"]
    fn a_real_server() {
        let entry: Value = serde_json::from_str(&std::env::var("TRY").unwrap()).unwrap();
        let calls = entry["calls"].as_array().cloned().unwrap_or_default();
        let report = entry["report"].as_str().unwrap().to_owned();
        let text = json!({"tools": {"mcpServers": {"it": entry}}}).to_string();
        let folder = tempfile::tempdir().unwrap();
        let env: Env = [("HOME", folder.path().to_str().unwrap())]
            .into_iter()
            .collect();
        let paths = Paths::resolve(&env, None).unwrap();
        let config = Config::parse(Path::new("c.json"), &text).unwrap();
        let settings = Settings::resolve(&config, &env, &Overrides::default(), &paths);
        let fleet = fleet(settings.unwrap().servers, folder.path());
        let mut lines = Vec::new();
        let started = Instant::now();
        let offer = fleet.reach(&["it"]).remove(0).1;
        let count = |offer: &crate::mcp::offer::Offer| {
            let (tools, others) = (offer.tools.len(), offer.resources.len());
            let (templates, prompts) = (offer.templates.len(), offer.prompts.len());
            format!(
                "{} {} {tools} {others} {templates} {prompts}",
                offer.protocol, offer.server
            )
        };
        lines.push(format!(
            "{:?} {:?}",
            offer.as_deref().map(count),
            started.elapsed()
        ));
        for call in calls {
            let started = Instant::now();
            let name = call[1].as_str().unwrap();
            let answer = match call[0].as_str().unwrap() {
                "read" => fleet.read("it", name),
                "prompt" => fleet.prompt("it", name, call[2].as_object().unwrap()),
                _ => {
                    let offer = fleet.reach(&["it"]).remove(0).1.unwrap();
                    fleet.call("it", &offer, name, &call[2], &mut |words| {
                        lines.push(words.to_owned());
                    })
                }
            };
            let words: String = format!("{answer:?}").chars().take(600).collect();
            lines.push(format!("{words} {:?}", started.elapsed()));
        }
        let started = Instant::now();
        fleet.end();
        lines.push(format!("ended {:?}\n", started.elapsed()));
        std::fs::write(report, lines.join("\n")).unwrap();
    }
}
