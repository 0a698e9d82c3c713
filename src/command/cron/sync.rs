//! Temporary.
use super::store;
use crate::World;
use crate::cron::job::Job;
use crate::cron::store::Store;
use crate::settings::Settings;
use anyhow::Result;
pub(super) fn project(world: &World, settings: &Settings, _: &Store) -> Result<()> {
    let _ = store(world, settings);
    Ok(())
}
pub(super) fn as_cron(_: &World, _: &Settings, _: &Job) -> anyhow::Error {
    anyhow::anyhow!("not yet")
}
