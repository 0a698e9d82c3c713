//! The process group of a process, also where its leader is outside of this PID namespace, as in a container whose first
//! process inherited it. The kernel then returns 0, which is not a valid id.

use nix::unistd;
use rustix::process::Pid;

/// Returns the process group of `pid`, or of this process. `None` if the process is gone, or if the leader of the group is
/// outside of this namespace, from where no process can signal the group.
pub fn process_group(pid: Option<Pid>) -> Option<Pid> {
    let pid = pid.map(|pid| unistd::Pid::from_raw(pid.as_raw_nonzero().get()));
    Pid::from_raw(unistd::getpgid(pid).ok()?.as_raw())
}

#[cfg(test)]
mod tests {
    use super::process_group;
    use rustix::process::{Pid, getpgrp, getpid};

    #[test]
    fn groups_of_processes() {
        let own = getpgrp();
        assert_eq!(process_group(None), Some(own));
        assert_eq!(process_group(Some(getpid())), Some(own));
        assert_eq!(process_group(Pid::from_raw(i32::MAX)), None);
    }
}
