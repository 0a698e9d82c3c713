//! `nanobot mcp`: the servers of further tools, by hand.

use crate::World;
use crate::cli::mcp::Mcp as Arguments;
use crate::error::Exit;
use anyhow::Result;

mod add;

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::Add(arguments) => {
            add::write(world, arguments)?;
        }
        Arguments::Remove { server } => {
            add::remove(world, server)?;
        }
        _ => todo!(),
    }
    Ok(Exit::Answered)
}
