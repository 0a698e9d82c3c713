//! The program entry point: passes the arguments to the library and turns the outcome into an exit status.

use nanobot::error::Exit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(exit) = nanobot::run_helper_process() {
        return ExitCode::from(exit.code());
    }
    nanobot::sys::process::harden();
    nanobot::sys::panic_report::install_hook();
    let exit = catch_unwind(AssertUnwindSafe(|| nanobot::run(std::env::args_os())))
        .unwrap_or(Exit::Defect);
    nanobot::sys::process::end_standby();
    nanobot::sys::sandbox::private_tmp::remove_all();
    nanobot::sys::process::remove_memory_cgroup();
    nanobot::sys::signal::kill_self_for(exit);
    ExitCode::from(exit.code())
}
