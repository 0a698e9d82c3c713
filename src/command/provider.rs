//! `nanobot provider`: logins, for providers that have accounts instead of keys.

use crate::World;
use crate::cli::Provider as Arguments;
use crate::error::Exit;
use crate::provider::login::{self, Endpoints, Prompt, Vendor};
use crate::sys::http::{Http, Timeouts};
use anyhow::Result;
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// A login server answers at once, or not at all.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(60),
};

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List { json } => list(world, *json)?,
        Arguments::Login { name } => log_in(world, Vendor::named(name)?)?,
        Arguments::Logout { name } => log_out(world, Vendor::named(name)?)?,
    }
    Ok(Exit::Answered)
}

fn list(world: &World, as_json: bool) -> Result<()> {
    let mut text = String::new();
    for vendor in Vendor::ALL {
        let expires = login::expiry(vendor, &world.paths.auth())?;
        text.push_str(&match as_json {
            true => line(vendor, expires),
            false => row(vendor, expires),
        });
    }
    world.terminal.print(&text)
}

fn line(vendor: Vendor, expires: Option<Timestamp>) -> String {
    let until = expires.map(|expires| expires.to_string());
    let line =
        json!({ "name": vendor.name(), "logged_in": expires.is_some(), "token_until": until });
    format!("{line}\n")
}

fn row(vendor: Vendor, expires: Option<Timestamp>) -> String {
    let state = match expires {
        Some(expires) => format!("logged in, token until {expires}"),
        None => "not logged in".into(),
    };
    format!("{:<16}{state}\n", vendor.name())
}

fn log_in(world: &World, vendor: Vendor) -> Result<()> {
    let endpoints = Endpoints::from_env(&world.env)?;
    let http = Http::new(TIMEOUTS, false, &world.env);
    // Also with `--quiet`: without the code there is no login.
    let mut tell = |prompt: Prompt<'_>| {
        let Prompt {
            address,
            code,
            valid,
        } = prompt;
        world
            .terminal
            .complain(&format!("open {address} and enter {code}"));
        let minutes = valid.as_secs().div_ceil(60);
        world
            .terminal
            .complain(&format!("waiting for that, {minutes} min at most"));
    };
    let folder = world.paths.auth();
    login::login(vendor, &folder, &http, &world.clock, &endpoints, &mut tell)?;
    let done = format!("logged in to {}\n", vendor.label());
    world.terminal.print(&done)
}

fn log_out(world: &World, vendor: Vendor) -> Result<()> {
    let done = match login::logout(vendor, &world.paths.auth(), &world.clock)? {
        true => "logged out of",
        false => "not logged in to",
    };
    world
        .terminal
        .print(&format!("{done} {}\n", vendor.label()))
}
