//! The connection to the program that started this process: JSON-RPC messages, one a line, on standard input and output.

use anyhow::Result;
use nanobot_base::json_rpc::{self, ErrorObject, RpcMessage};
use nanobot_os::line_buffer::StdinLines;
use nanobot_os::terminal::Terminal;
use serde_json::Value;

/// The connection to the program that this process serves.
#[derive(Clone, Copy)]
pub(crate) struct RpcConnection {
    terminal: Terminal,
}

impl RpcConnection {
    /// A connection over the standard streams of `terminal`.
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { terminal }
    }

    /// Passes on the messages of the other side until the input ends. A line that is not a message is answered with an error.
    ///
    /// # Errors
    /// The errors of `on_message`. Standard input or output fails, or a signal arrived.
    pub(crate) fn read_all(
        self,
        on_message: &mut dyn FnMut(RpcMessage) -> Result<()>,
    ) -> Result<()> {
        let mut lines = StdinLines::open();
        while let Some(line) = lines.next_line()? {
            let message = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => {
                    json_rpc::parse(&line).ok_or("the line is not a JSON-RPC message".into())
                }
                Err(reason) => Err(reason),
            };
            match message {
                Ok(message) => on_message(message)?,
                Err(reason) => self.respond(&Value::Null, Err(ErrorObject::parse_error(reason)))?,
            }
        }
        Ok(())
    }

    /// Answers the request `id`.
    ///
    /// # Errors
    /// Standard output fails.
    pub(crate) fn respond(self, id: &Value, result: Result<Value, ErrorObject>) -> Result<()> {
        self.send(json_rpc::response(id, result))
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// Standard output fails.
    pub(crate) fn notify(self, method: &str, params: &Value) -> Result<()> {
        self.send(json_rpc::notification(method, params))
    }

    /// Sends a request to the other side.
    ///
    /// # Errors
    /// Standard output fails.
    pub(crate) fn request(self, id: u64, method: &str, params: &Value) -> Result<()> {
        self.send(json_rpc::request(id, method, params))
    }

    /// Writes a message as one line.
    fn send(self, mut message: Vec<u8>) -> Result<()> {
        message.push(b'\n');
        self.terminal.print_json_text(&String::from_utf8_lossy(&message))
    }
}
