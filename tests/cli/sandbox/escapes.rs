//! Attempts to escape from the sandbox. Each prints `escaped` if it succeeded, and `held` if not.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::{require, skip};
use crate::server::{Responder, calls, says};
use crate::signals::{children_of, is_alive};
use crate::situation::{User, available_users};
use crate::wait::until;
use rustix::fs::Mode;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Python programs. `call` makes a system call and returns its result, with `errno()` available afterwards; `OUTSIDE` is a
/// file that must not be written, `SECRET_FILES` one that must not be read, `US` the process that started the shell.
/// `ALONE` is true if no process but the command's own ones can be seen. A true value means an escape.
const PYTHON_PROGRAMS: [(&str, &str); 42] = [
    ("trace the parent", "call(101,16,US,0,0)==0"),
    ("read the parent's memory", "call(310,US,iov(),1,iov(),1,0)>=0"),
    ("write the parent's memory", "call(311,US,iov(),1,iov(),1,0)>=0"),
    ("take the parent's descriptor", "call(438,call(434,US,0),0,0)>=0"),
    ("compare with the parent", "call(312,os.getpid(),US,0,0,0)>=0"),
    ("signal the parent", "kill(US,0)"),
    ("signal the group of the parent", "os.getpgid(US)!=0 and kill(-os.getpgid(US),0)"),
    ("signal the parent by descriptor", "call(424,call(434,US,0),0,0,0)==0"),
    ("a user namespace", "call(272,0x10000000)==0"),
    ("a mount namespace", "call(272,0x20000)==0"),
    ("a network namespace", "call(272,0x40000000)==0"),
    ("a namespace by clone", "clone(0x10000000|17)"),
    (
        "a namespace by clone3",
        "call(435,struct.pack('QQQQQQQQQQQ',0x10000000,0,0,0,17,0,0,0,0,0,0),88)>=0",
    ),
    ("another's namespace", "call(308,os.open('/proc/self/ns/mnt',0),0)==0"),
    ("mount", "call(165,b'none',b'/mnt',b'tmpfs',0,None)==0"),
    ("bind", "call(165,b'/',b'/mnt',None,4096,None)==0"),
    ("unmount", "call(166,b'/proc',2)==0"),
    ("the new mounts", "call(430,b'tmpfs',0)>=0"),
    ("a copy of the tree", "call(428,-100,b'/',1)>=0"),
    ("change root", "call(161,b'/')==0"),
    ("pivot root", "call(155,b'/',b'/')==0"),
    ("the keyrings", "call(250,0,-3,0,0,0)>=0"),
    ("a new key", "call(248,b'user',b'x',b'y',1,-2)>=0"),
    ("a program for the kernel", "call(321,0,ctypes.create_string_buffer(128),128)>=0"),
    ("the kernel's counters", "call(298,ctypes.create_string_buffer(128),0,-1,-1,0)>=0"),
    ("faults", "call(323,1)>=0"),
    ("a ring", "call(425,8,ctypes.create_string_buffer(120))>=0"),
    ("a file by its number", "call(304,-100,ctypes.create_string_buffer(128),0)>=0 or errno()!=1"),
    ("type into the terminal", "ioctl(0x5412)"),
    ("move the console's messages", "ioctl(0x541d)"),
    ("signal everybody", "not ALONE and kill(-1,0)"),
    (
        "signal the parent by its directory",
        "call(424,os.open('/proc/%d' % US,os.O_DIRECTORY),0,0,0)==0",
    ),
    ("signal a thread of the parent", "call(200,US,0)==0"),
    ("have the parent signalled", "call(72,1,8,US)==0"),
    ("take the parent's processor", "not ALONE and call(203,US,8,b'\\1'+bytes(7))==0"),
    ("memory by number", "call(29,0,4096,0o1600)>=0"),
    ("a queue by number", "call(68,0,0o1600)>=0"),
    ("a queue by name", "call(240,b'nanobot-was-here',0o102,0o600,None)>=0"),
    ("a file that runs as its owner", "made(0o4755)"),
    ("remove an attribute", "call(197,b'/etc/passwd',b'user.x')>=0 or errno()!=95"),
    (
        "the flags of a file",
        "libc.ioctl(os.open(os.environ['TMPDIR']+'/flags',os.O_CREAT|os.O_RDWR),0x40086602,bytes(8))==0",
    ),
    (
        "a directory that cannot be read",
        "call(83,(os.environ['TMPDIR']+'/closed').encode(),0o300)==0",
    ),
];

/// Shell commands.
const SHELL_COMMANDS: [(&str, &str); 18] = [
    (
        "a hard link",
        "ln OUTSIDE $TMPDIR/hard && echo x > $TMPDIR/hard && echo escaped || echo held",
    ),
    (
        "a symbolic link",
        "ln -s OUTSIDE $TMPDIR/soft; (echo x > $TMPDIR/soft) && echo escaped || echo held",
    ),
    (
        "a link to read by",
        "ln -s SECRET $TMPDIR/read; cat $TMPDIR/read && echo escaped || echo held",
    ),
    ("the root of a process", "(echo x > /proc/self/root/OUTSIDE) && echo escaped || echo held"),
    ("the parent's root", "(echo x > /proc/$PPID/root/OUTSIDE) && echo escaped || echo held"),
    ("the parent's descriptors", "cat /proc/$PPID/fd/* && echo escaped || echo held"),
    ("our own descriptors", "ls /proc/self/fd | grep -vxE '[0-3]' && echo escaped || echo held"),
    ("dots", "(echo x > $TMPDIR/../../../../../../..OUTSIDE) && echo escaped || echo held"),
    ("the terminal", "(echo x > /dev/tty) 2>/dev/null && echo escaped || echo held"),
    ("a disk", "d=$(mktemp -d); mknod $d/x b 7 0 2>/dev/null && echo escaped || echo held"),
    ("a setting of the kernel", "(echo 1 > /proc/sys/kernel/sysrq) && echo escaped || echo held"),
    ("the kernel's trigger", "(echo h > /proc/sysrq-trigger) && echo escaped || echo held"),
    ("shared memory", "(echo x > /dev/shm/nanobot-was-here); echo held"),
    ("a group of control", "mkdir /sys/fs/cgroup/nanobot-was-here && echo escaped || echo held"),
    (
        "a file of the user's that the user could not read",
        "chmod 0 SECRET && echo escaped || echo held",
    ),
    (
        "a program that runs as its owner",
        "cp /bin/sh $TMPDIR/owner && chmod 4755 $TMPDIR/owner && echo escaped || echo held",
    ),
    (
        "the same in letters",
        "cp /bin/sh $TMPDIR/letters && chmod u+s $TMPDIR/letters && echo escaped || echo held",
    ),
    (
        "all modes but the reader's",
        "mkdir $TMPDIR/modes && cd $TMPDIR/modes && (chmod 377 . || chmod u-r .) && echo escaped || echo held",
    ),
];

const C_HARNESS: &str = "python3 - <<'end' 2>&1
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
US = os.popen('ps -o ppid= -p '+str(os.getppid())).read().strip() if False else open('/proc/%d/stat' % os.getppid()).read().split()[3]
US = int(US)
ALONE = open('/proc/1/cmdline').read().startswith('nanobot-supervisor')
errno = ctypes.get_errno
def call(number, *rest):
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(number, *[ctypes.c_long(x) if isinstance(x, int) else x for x in rest])
def iov():
    global place
    place = ctypes.create_string_buffer(8)
    return struct.pack('QQ', ctypes.addressof(place), 8)
def kill(pid, signal):
    try: os.kill(pid, signal); return True
    except PermissionError: return False
    except ProcessLookupError: return False
def made(mode):
    path = os.environ['TMPDIR'] + '/made'
    try: return os.fstat(os.open(path, os.O_CREAT|os.O_RDWR, mode)).st_mode & 0o6000 != 0
    except PermissionError: return False
def clone(flags):
    done = call(56, flags, 0, 0, 0, 0)
    if done == 0: os._exit(0)
    return done > 0
def ioctl(request):
    done = libc.ioctl(1, request, b'x')
    # Without the filter the pipe itself would say that it is no terminal.
    return done == 0 or errno() == 25
";

#[test]
fn escape_attempts_fail() {
    for user in available_users() {
        check_escapes(&SandboxFixture::new(user).without_namespaces(), user);
        let fixture = SandboxFixture::new(user);
        let commands = check_escapes(&fixture, user);
        // Without the sandbox some harmless ones do escape, which shows that the table works.
        if user == User::Current && commands.len() > 60 {
            let some = [5, 8, 11, 39, 40, 41, 42, 43, 44];
            let outputs =
                fixture.run_commands(&["--sandbox", "off"], &some.map(|number| &commands[number]));
            let out = outputs.iter().filter(|output| output.contains("escaped")).count();
            assert!(out >= 7, "{outputs:?}");
        }
    }
}

/// Tries every escape, and returns the commands.
fn check_escapes(fixture: &SandboxFixture, user: User) -> Vec<String> {
    let (outside, secret) =
        (fixture.outside_dir().join("file"), fixture.outside_dir().join("secret"));
    fixture.write_file(&outside, "safe\n");
    fixture.write_file(&secret, "canary-77aa\n");
    let (mut names, mut commands) = (Vec::new(), Vec::new());
    if require("python3") && cfg!(target_arch = "x86_64") {
        for (name, text) in PYTHON_PROGRAMS {
            names.push(name);
            commands
                .push(format!("{C_HARNESS}print('escaped' if {text} else 'held', errno())\nend"));
        }
    } else {
        print_count("system calls are not tried: the numbers are those of x86-64");
    }
    for (name, text) in SHELL_COMMANDS {
        names.push(name);
        let text = text
            .replace("OUTSIDE", outside.to_str().unwrap())
            .replace("SECRET", secret.to_str().unwrap());
        commands.push(text);
    }
    if require("gcc") && cfg!(target_arch = "x86_64") {
        for (name, text) in C_PROGRAMS {
            names.push(name);
            commands.push(format!(
                "cd $(mktemp -d); cat > x.c <<'end'\n#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
                 #include <sys/mman.h>\n#include <fcntl.h>\n{}\nend\ngcc -w x.c -o x && (./x || echo held)",
                text.replace("OUTSIDE", outside.to_str().unwrap())
            ));
        }
    } else {
        print_count("foreign system calls are not tried: they are those of x86-64");
    }
    let outputs = fixture.run_commands(&[], &commands);
    let mut out = Vec::new();
    for (name, output) in names.iter().zip(&outputs) {
        assert!(
            output.contains("held") || output.contains("escaped"),
            "{user:?}: {name} was not tried: {output}"
        );
        if output.contains("escaped") || output.contains("canary-77aa") {
            out.push(format!("{name}: {output}"));
        }
    }
    print_count(&format!("{user:?}: {} of {} escapes held", names.len() - out.len(), names.len()));
    assert!(out.is_empty(), "{user:?}:\n{}", out.join("\n"));
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "safe\n");
    assert!(!Path::new("/dev/shm/nanobot-was-here").exists());
    commands
}

/// C programs, which exit with a failure inside the sandbox.
const C_PROGRAMS: [(&str, &str); 3] = [
    (
        "a call of the x32 kind",
        "int main(){ return syscall(0x40000000|39) > 0 ? puts(\"escaped\") < 0 : 1; }",
    ),
    (
        "a call of the 32-bit kind",
        "int main(){ long r; __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(20)); return r > 0 ? puts(\"escaped\") < 0 : 1; }",
    ),
    (
        "a program in memory, which stays inside",
        "int main(int c, char **v){ if (c > 1) { int f = open(\"OUTSIDE\", O_WRONLY|O_TRUNC); return f >= 0 ? puts(\"escaped\") < 0 : 1; }\n\
         int m = memfd_create(\"x\", 0); int f = open(\"/proc/self/exe\", 0); char b[65536]; int n;\n\
         while ((n = read(f, b, sizeof b)) > 0) write(m, b, n);\n\
         char *a[] = {\"x\", \"again\", 0}, *e[] = {0}; fexecve(m, a, e); return 1; }",
    ),
];

/// In namespaces of its own, a command of root cannot change the modes of the system's devices, which root owns.
#[test]
fn devices_keep_their_modes() {
    let fixture = SandboxFixture::new(User::Current);
    let outputs = fixture.run_commands(
        &["--write"],
        &["for d in null zero full random urandom; do m=$(stat -c %a /dev/$d); chmod 644 /dev/$d 2>/dev/null; \
           [ $(stat -c %a /dev/$d) = $m ] && echo held || { chmod $m /dev/$d; echo changed; }; done"],
    );
    assert_eq!(outputs[0], "held\n".repeat(5).trim_end());
}

/// In namespaces of its own, a command leaves no process behind, however many there are and however fast they change.
/// They do not even see other processes, so they cannot signal them.
#[test]
fn a_swarm_of_processes_ends_with_its_command() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let script = fixture.story.dir().join("swarm.sh");
        // Each process starts the next one in a session of its own; the last one is replaced by a successor again and
        // again.
        fixture.write_file(
            &script,
            "n=$1; if [ $n -gt 0 ]; then setsid sh $0 $((n-1)) & exec sleep 77; else (sh $0 0 &) ; fi\n",
        );
        let start = format!(
            "setsid sh {} 60 >/dev/null 2>&1 & until [ $(ps ax | wc -l) -gt 61 ]; do sleep 0.02; done; ps ax | wc -l",
            script.display()
        );
        let outputs =
            fixture.run_commands(&[], &[&start, "kill -9 -1; echo alive", "ps ax | wc -l"]);
        let count =
            |text: &str| text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
        assert!(count(&outputs[0]) > Some(60), "{}", outputs[0]);
        assert!(outputs[0].contains("its background processes were killed"), "{}", outputs[0]);
        assert!(outputs[1].ends_with("alive"), "{}", outputs[1]);
        assert!(count(&outputs[2]) < Some(8), "{}", outputs[2]);
        let mark = script.display().to_string();
        for _ in 0..50 {
            let process = running_commands().find(|line| line.contains(&mark));
            assert_eq!(process, None);
        }
    }
}

/// The arguments of each process of the system.
fn running_commands() -> impl Iterator<Item = String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// Places that are not granted are not there at all.
#[test]
fn a_command_sees_nothing_but_what_is_granted() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let outside = fixture.outside_dir().join("file");
        fixture.write_file(&outside, "theirs\n");
        let outputs = fixture.run_commands(
            &[],
            &[
                format!("cat {}", outside.display()),
                format!("ls {}", outside.parent().unwrap().display()),
                "ls /run /var/run /home /mnt /boot 2>&1 | grep -v 'No such file'".into(),
                "ls /proc | grep -c '^[0-9]'".into(),
                "ls /dev | paste -sd ' '".into(),
            ],
        );
        for output in &outputs[..2] {
            assert!(output.contains("No such file or directory"), "{output}");
        }
        // Empty directories may lead to granted places.
        assert!(outputs[2].starts_with("(no output)"), "{}", outputs[2]);
        assert!(outputs[3].parse::<u32>().is_ok_and(|count| count < 9), "{}", outputs[3]);
        assert_eq!(outputs[4], "fd full null ptmx pts random shm stderr stdin stdout urandom zero");
    }
}

/// A command ends with nanobot, even if that is killed with a signal that it cannot handle.
#[test]
fn a_command_ends_when_nanobot_is_killed() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let number = 3000 + u32::from(user == User::Nobody);
        let mark = format!("{number}.{}", std::process::id());
        let command = format!("(trap '' TERM; setsid sleep {mark} & wait)");
        fixture.story.server().script([calls("exec", json!({ "command": command }))]);
        let mut child = fixture.command(&[]).spawn().expect("the program starts");
        until("the command runs", || is_alive(&mark));
        child.kill().unwrap();
        child.wait().unwrap();
        until("the command has ended", || !is_alive(&mark));
    }
}

/// A supervisor that waits for the next command ends with the run, however that ends.
#[test]
fn a_waiting_supervisor_ends_with_the_run() {
    for user in available_users() {
        for is_killed in [false, true] {
            let fixture = SandboxFixture::new(user);
            let fifo = fixture.story.dir().join("fifo");
            rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o666)).unwrap();
            // The first command of a run starts none.
            for command in ["true", "true", "exec cat fifo"] {
                let call = calls("exec", json!({ "command": command }));
                fixture.story.server().script([call]);
            }
            if !is_killed {
                fixture.story.server().script([says("done")]);
            }
            let mut child = fixture.command(&[]).spawn().expect("the program starts");
            let mut writer = File::options().write(true).open(&fifo).unwrap();
            let mut supervisors = BTreeSet::new();
            until("two supervisors run", || {
                // One of an earlier command may not have been waited for.
                supervisors = children_of(child.id());
                supervisors.retain(|pid| !children_of(*pid).is_empty());
                supervisors.len() == 2
            });
            let processes: BTreeSet<u32> = supervisors
                .iter()
                .flat_map(|pid| children_of(*pid))
                .chain(supervisors.iter().copied())
                .collect();
            if is_killed {
                child.kill().unwrap();
                child.wait().unwrap();
            } else {
                writer.write_all(b"text").unwrap();
                drop(writer);
                fixture.story.wait(child).stdout("done\n");
            }
            let is_running = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
            until("none of them runs", || !processes.iter().any(is_running));
        }
    }
}

/// A supervisor that waits for the next command sees what the system mounts and unmounts meanwhile.
#[test]
fn a_waiting_supervisor_follows_the_mounts_of_the_system() {
    let shared = ["unshare", "-m", "--propagation", "shared"];
    let mut tried = std::process::Command::new("unshare");
    if !tried.args(&shared[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        skip("there are no namespaces of mounts");
        return;
    }
    let fixture = SandboxFixture::new(User::Current).with_wrapper(&shared);
    let disk = fixture.story.dir().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let pid = Arc::new(OnceLock::<u32>::new());
    let outside = |script: &str, then: Responder| {
        let (pid, script) =
            (Arc::clone(&pid), format!("cd '{}' && {script}", fixture.story.dir().display()));
        let outside = move |request: &_| {
            let mut enter = std::process::Command::new("nsenter");
            enter.args(["-m", "-t", &pid.wait().to_string(), "sh", "-c", &script]);
            assert!(enter.status().unwrap().success());
            then(request)
        };
        Box::new(outside) as Responder
    };
    let exec = |command: &str| calls("exec", json!({ "command": command }));
    fixture.story.server().script([
        exec("true"),
        exec("true"),
        outside("mount -t tmpfs none disk && echo text > disk/file", exec("cat disk/file")),
        outside("umount disk", exec("ls -A disk | wc -l")),
        says("done"),
    ]);
    let child = fixture.command(&[]).spawn().expect("the program starts");
    pid.set(child.id()).unwrap();
    fixture.story.wait(child).stdout("done\n");
    let requests = fixture.story.requests();
    let last_content = |request: usize| {
        let last = requests[request].messages().pop().unwrap();
        last["content"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!([last_content(3), last_content(4)], ["text", "0"]);
}

/// Processes that a command leaves behind end with it.
#[test]
fn no_process_outlives_a_command() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let mark = fixture.story.dir().join("late");
        let outputs = fixture.run_commands(
            &["--write"],
            &[
                format!(
                    "setsid sh -c 'setsid sleep 1.5; touch {}' >/dev/null 2>&1 & exit 0",
                    mark.display()
                )
                .as_str(),
                "sleep 1.9",
            ],
        );
        assert!(outputs[0].contains("its background processes were killed"), "{}", outputs[0]);
        assert!(!mark.exists());
    }
}
