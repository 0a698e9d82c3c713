//! The configuration of the client, and the handler of elicitation requests.

use super::grants::Walls;
use crate::sys::env::Env;
use crate::sys::paths::Paths;
use serde_json::{Map, Value};
use std::sync::Arc;

/// What is needed to start and to reach servers.
#[derive(Clone)]
pub struct ClientConfig {
    pub env: Env,
    pub paths: Paths,
    /// Nothing beyond this machine is reached.
    pub offline: bool,
    /// `None` where nobody can be asked.
    pub answers: Option<Arc<dyn ElicitationHandler>>,
    /// Who puts up the sandboxes of programs. Without that, only those run that the config wants to run in none.
    pub walls: Option<Arc<dyn Walls>>,
}

/// Who is asked what a server wants to know in the middle of a call.
pub trait ElicitationHandler: Send + Sync {
    /// What a person enters into `form`, an object's schema, for `server`, which says `words`. `None` is no.
    fn enter(&self, server: &str, words: &str, form: &Value) -> Option<Map<String, Value>>;
}
