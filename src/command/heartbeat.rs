//! `nanobot heartbeat`: one look at HEARTBEAT.md.

use crate::World;
use crate::cli::Heartbeat;
use crate::error::Exit;
use anyhow::Result;

pub fn run(world: &World, arguments: &Heartbeat) -> Result<Exit> {
    let _ = (world, arguments);
    todo!()
}
