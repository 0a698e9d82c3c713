//! `nanobot agent`: one turn, from the command line to the status.

use crate::cli::{Agent as Arguments, DryRun, OutputFormat};
use crate::error::{Exit, Stop, exit_of, fail, fail_hint};
use crate::guard::{Guard, iterations::Iterations, repeats::Repeats};
use crate::message::{Image, Message, Part, User};
use crate::prompt::{self, Brief};
use crate::provider::{Provider, Request, Sampling};
use crate::report::{Form, Level, Progress, Report, json};
use crate::session::{Place, Session};
use crate::settings::{Config, Overrides, Settings};
use crate::sys::input::{self, Reading};
use crate::sys::secret::random_hex;
use crate::turn::{self, Agent, Cause, Ending};
use crate::{World, sys};
