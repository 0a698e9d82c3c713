//! The servers of a run, spoken to. Nothing is started before it is asked for; then a thread with a runtime of its own is,
//! and each server in it. Calls block whoever makes them, until the answer, the deadline or the end of the run.

use super::offer::{Answer, Failed, Offer};
use crate::settings::servers::Server;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Who is asked what a server wants to know in the middle of a call.
pub trait Answers: Send + Sync {
    /// What a person enters into `form`, an object's schema, for `server`, which says `words`. `None` is no.
    fn enter(&self, server: &str, words: &str, form: &Value) -> Option<Map<String, Value>>;
}

/// What is needed to start and to reach servers.
#[derive(Clone)]
pub struct Ground {
    pub env: crate::sys::env::Env,
    pub paths: crate::sys::paths::Paths,
    /// Nothing beyond this machine is reached.
    pub offline: bool,
    /// `None` where nobody can be asked.
    pub answers: Option<Arc<dyn Answers>>,
}

/// The servers of a run.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    servers: Vec<Server>,
}

impl Fleet {
    /// Those of `servers` that are not disabled. Nothing is started.
    pub fn new(servers: &[Server], _ground: Ground) -> Self {
        let used = servers.iter().filter(|server| !server.disabled);
        Self(Arc::new(Inner {
            servers: used.cloned().collect(),
        }))
    }

    pub fn servers(&self) -> &[Server] {
        &self.0.servers
    }

    /// What each of the servers `names` offers now: those that are not there yet are started, side by side.
    pub fn reach(&self, names: &[&str]) -> Vec<(String, Result<Arc<Offer>, Failed>)> {
        todo!("{names:?}")
    }

    /// Call a tool, by the server's own name of it. `say` takes what the server tells of its progress.
    ///
    /// # Errors
    /// As [`Failed`] says. That the tool itself failed is an answer.
    pub fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
        say: &mut dyn FnMut(&str),
    ) -> Result<Answer, Failed> {
        todo!("{server} {tool} {arguments} {}", {
            say("");
            ""
        })
    }

    /// What stands at an address of the server's.
    ///
    /// # Errors
    /// As [`Failed`] says.
    pub fn read(&self, server: &str, uri: &str) -> Result<Answer, Failed> {
        todo!("{server} {uri}")
    }

    /// A prompt of the server's, filled in.
    ///
    /// # Errors
    /// As [`Failed`] says.
    pub fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Answer, Failed> {
        todo!("{server} {name} {arguments:?}")
    }

    /// End all that run, side by side, each with all that it has started.
    pub fn end(&self) {}
}
