//! HTTP: one client for a run, built at its first use, with its timeouts, proxy and root certificates. A client also opens
//! connections for protocols of lines, such as IMAP, and WebSockets.
//!
//! Connections are kept between requests. TLS and certificates are loaded for `https` only. A request passes through
//! these files in this order: [`client`] with `network`, `resolver` with `name_service` and `ssrf`, `connector`, `transport`.

mod buffers;
mod client;
mod connector;
mod error;
mod json;
mod name_service;
mod network;
mod redirect_listener;
mod resolver;
mod ssrf;
mod stream;
mod timeouts;
mod transport;
mod websocket;

pub use client::{ConnectionPool, Http, HttpMethod, Response};
pub use connector::{connect_filtered, is_listening};
pub use error::{ConnectError, ResponseTimeout, body_error_message};
pub use json::{JsonResponse, error_message, shown_message};
pub use name_service::{NameService, set_name_service};
pub use network::{Network, NetworkDefaults};
pub use redirect_listener::RedirectListener;
pub use ssrf::SsrfFilter;
pub use stream::LineStream;
pub use timeouts::HttpTimeouts;
pub use websocket::{WEBSOCKET_TIMEOUTS, WebSocket, WebSocketEvent};
