//! The jobs that a model plans: what the tool `cron` asks for, done as `cron add` and `cron remove` do it.

use super::sync::{self, Which};
use super::{add, switch, words, zones};
use crate::World;
use crate::cron::expression::Expression;
use crate::cron::job::{Delivery, Job, State, Terms};
use crate::cron::schedule::{self, CatchUp, Schedule};
use crate::cron::store::{Added, Store};
use crate::settings::Settings;
use crate::tool::Failure;
use crate::tool::cron::{Chat, Listed, MOST, Plan, Planned, Planner, When, full};
use anyhow::Result;
use std::time::Duration;

/// Keeps the jobs of a run's model.
pub(in crate::command) struct Keeper {
    world: World,
    settings: Settings,
}

impl Keeper {
    pub(in crate::command) fn new(world: &World, settings: &Settings) -> Self {
        let mut world = world.clone();
        // What goes on is the tool's to tell.
        world.shared.quiet = true;
        Self {
            settings: settings.clone(),
            world,
        }
    }

    fn store(&self) -> Store {
        super::store(&self.world, &self.settings)
    }

    fn schedule(&self, when: &When<'_>) -> Result<Schedule, Failure> {
        Ok(match when {
            When::Every(seconds) => Schedule::Every(Duration::from_secs(*seconds)),
            When::Cron { expression, zone } => {
                let parsed = Expression::parse(expression)
                    .map_err(|words| format!("`cron_expr`: {words}"))?;
                let zone = match zone {
                    Some(name) => {
                        Some(zones::known(name).map_err(|error| format!("`tz`: {error:#}"))?)
                    }
                    None => {
                        zones::of_shell(&self.world, self.world.clock.timestamp(), &mut Vec::new())
                    }
                };
                Schedule::Cron {
                    expression: parsed,
                    zone,
                }
            }
            When::At(text) => {
                let now = self.world.clock.timestamp();
                let time = schedule::at(text, &zones::local(&self.world), now)
                    .map_err(|words| format!("`at`: {words}"))?;
                Schedule::At(add::to_the_millisecond(time))
            }
        })
    }

    /// Bring the crontab up to date. What is in the way, for the model and whoever it tells.
    fn project(&self) -> Option<String> {
        let projected = sync::project(&self.world, &self.settings, &self.store(), Which::Known);
        projected.err().map(|error| format!("{error:#}"))
    }
}

impl Planner for Keeper {
    fn add(&self, plan: &Plan<'_>) -> Result<Planned, Failure> {
        let schedule = self.schedule(&plan.when)?;
        let now = self.world.clock.timestamp();
        let is_once = matches!(schedule, Schedule::At(_));
        let mut job = Job {
            id: add::fresh_id(&self.store()).map_err(|error| told(&error))?,
            name: plan.name.clone(),
            enabled: true,
            schedule: Ok(schedule),
            message: plan.message.to_owned(),
            delivery: plan.chat.map_or_else(Delivery::default, |chat| Delivery {
                deliver: true,
                channel: Some(chat.channel.clone()),
                to: Some(chat.to.clone()),
            }),
            session: None,
            created: add::to_the_millisecond(now),
            state: State::default(),
            delete_after_run: is_once,
            terms: Some(Terms {
                v: Terms::V,
                policy: Some(plan.policy.clone()),
                by_model: true,
                catch_up: if is_once {
                    CatchUp::Once
                } else {
                    CatchUp::None
                },
                config: self
                    .world
                    .shared
                    .config
                    .as_deref()
                    .map(crate::command::granted::absolute),
                ..Terms::default()
            }),
        };
        add::note_next(&self.world, &mut job, now);
        match self
            .store()
            .add(&job, now, Some(MOST))
            .map_err(|error| told(&error))?
        {
            Added::Done => {}
            Added::Full => return Err(full()),
        }
        let times = add::coming(&self.world, &job, now, 1);
        let mut next = words::moments(&times, &zones::now(&self.world));
        if let Some(why) = self.project() {
            next.push_str(&format!(
                "; but nothing starts it: {why}. Tell the user: `nanobot cron run --due`, once a minute, would"
            ));
        }
        Ok(Planned { id: job.id, next })
    }

    fn list(&self) -> Result<Vec<Listed>, Failure> {
        let now = self.world.clock.timestamp();
        let jobs = self.store().jobs().map_err(|error| told(&error))?;
        let mut jobs: Vec<_> = jobs
            .into_iter()
            .filter(|job| job.enabled)
            .map(|job| (add::coming(&self.world, &job, now, 1).pop(), job))
            .collect();
        jobs.sort_by_key(|(next, _)| (next.is_none(), *next));
        let here = zones::now(&self.world);
        let listed = jobs.into_iter().map(|(next, job)| Listed {
            schedule: match &job.schedule {
                Ok(_) => add::schedule_words(&self.world, &job),
                // Why is in words of the file's.
                Err(_) => "never".into(),
            },
            next: next.map(|next| words::moment(next, &here)),
            by_model: job.terms.as_ref().is_some_and(|terms| terms.by_model),
            chat: match (&job.delivery.channel, &job.delivery.to) {
                (Some(channel), Some(to)) if job.delivery.deliver => Some(Chat {
                    channel: channel.clone(),
                    to: to.clone(),
                }),
                _ => None,
            },
            name: job.terms.is_some().then(|| job.name.clone()),
            id: job.id,
        });
        Ok(listed.collect())
    }

    fn remove(&self, id: &str) -> Result<bool, Failure> {
        let store = self.store();
        let Some(job) = store.job(id).map_err(|error| told(&error))? else {
            return Ok(false);
        };
        if !store.remove(id).map_err(|error| told(&error))? {
            return Ok(false);
        }
        switch::clear(&self.world, &self.settings, &store, &job).map_err(|error| told(&error))?;
        match self.project() {
            None => Ok(true),
            Some(why) => {
                Err(format!("the job is removed, but its line stays in the crontab: {why}").into())
            }
        }
    }
}

/// A failure of ours, without what the files say.
fn told(error: &anyhow::Error) -> Failure {
    let outermost = error.to_string();
    format!(
        "the jobs cannot be used: {}",
        outermost.lines().next().unwrap_or_default()
    )
    .into()
}
