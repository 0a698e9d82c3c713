//! The program entry point: passes the arguments to the library and turns the outcome into an exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(exit) = nanobot::run_helper_process() {
        return ExitCode::from(exit.code());
    }
    nanobot::sys::process::harden();
    nanobot::sys::panic_report::install_hook();
    let exit = nanobot::run(std::env::args_os());
    nanobot::sys::process::end_standby();
    nanobot::sys::sandbox::private_tmp::remove_all();
    nanobot::sys::process::remove_memory_cgroup();
    nanobot::sys::signal::kill_self_for(exit);
    ExitCode::from(exit.code())
}
