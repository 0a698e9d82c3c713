//! The program entry point: passes the arguments to the library and turns the outcome into an exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(exit) = nanobot::run_helper_process() {
        return ExitCode::from(exit.code());
    }
    nanobot_sandbox::process::harden();
    nanobot_os::panic_report::install_hook();
    let exit = nanobot::run(std::env::args_os());
    nanobot_sandbox::process::end_standby();
    nanobot_sandbox::private_tmp::remove_all();
    nanobot_sandbox::process::remove_memory_cgroup();
    nanobot_os::signal::kill_self_for(exit);
    ExitCode::from(exit.code())
}
