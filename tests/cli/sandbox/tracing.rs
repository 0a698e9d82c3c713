//! Tracing: a command traces its own processes, as debuggers and sanitizers do, and no others.

use super::fixture::{SandboxFixture, Task, check_tasks, print_count};
use crate::requirements::require;
use crate::situation::{User, available_users};
use serde_json::json;

const TASKS: [Task; 6] = [
    (
        "gcc",
        "printf '#include <stdlib.h>\\nint main(int c, char **v) { char *p = malloc(9); if (c > 1) free(p); p = 0; return 0; }' > l.c && \
         gcc -fsanitize=address -g -O0 l.c -o l && ./l freed && echo clean",
        "clean",
    ),
    ("gcc", "./l 2>&1 | grep -o 'detected memory leaks'", "detected memory leaks"),
    ("strace", "strace -f -o log sh -c 'true; /bin/true' && grep -c 'execve(' log", "2"),
    (
        "strace",
        "sleep 60 & sleep 0.1; timeout 1 strace -o log -p $!; kill $!; grep -c 'nanosleep\\|restart' log",
        "1",
    ),
    (
        "gdb",
        "printf 'int f(int x) { return x + 1; }\\nint main() { return f(41); }' > g.c && gcc -g -O0 g.c -o g && \
         gdb -q -batch -nx -ex 'break f' -ex run -ex 'print x' ./g 2>/dev/null | tail -1",
        "$1 = 41",
    ),
    (
        "gdb",
        "sleep 60 & gdb -q -batch -nx -p $! -ex detach 2>&1 | grep -c 'detached'; kill $!",
        "1",
    ),
];

#[test]
fn debuggers_and_sanitizers_work() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let results = fixture.run_commands(&["--write"], &TASKS.map(|(_, command, _)| command));
        check_tasks(user, &TASKS, &results, "tasks with tracing");
    }
}

/// Python programs that try to reach the process `target`. A true value means that it did.
const ATTACKS: [(&str, &str); 12] = [
    ("attach", "call(PTRACE, 16, target, 0, 0) == 0"),
    ("seize", "call(PTRACE, 0x4206, target, 0, 0) == 0"),
    ("attach to any thread", "any(call(PTRACE, 0x4206, int(t), 0, 0) == 0 for t in tasks())"),
    ("read its memory", "call(READV, target, iov(), 1, iov(), 1, 0) >= 0 or errno() == 14"),
    ("write its memory", "call(WRITEV, target, iov(), 1, iov(), 1, 0) >= 0 or errno() == 14"),
    ("open its memory", "opens('mem')"),
    ("read its environment", "opens('environ') and open('/proc/%d/environ' % target).read()"),
    ("open its descriptor", "opens('fd/0')"),
    ("read its mappings", "opens('maps') and open('/proc/%d/maps' % target).read()"),
    ("enter its root", "lists('root')"),
    ("take its descriptor", "any(call(GETFD, call(434, target, 0), n, 0) >= 0 for n in range(9))"),
    ("its namespace", "call(308, os.open('/proc/%d/ns/user' % target, 0), 0) == 0"),
];

const HARNESS: &str = "python3 - <<'end' 2>&1
import ctypes, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
errno = ctypes.get_errno
PTRACE, READV, WRITEV, GETFD = (101, 310, 311, 438) if platform.machine() == 'x86_64' else (117, 270, 271, 438)
def call(number, *rest):
    return libc.syscall(number, *[ctypes.c_long(x) if isinstance(x, int) else x for x in rest])
def iov():
    global place
    place = ctypes.create_string_buffer(8)
    return struct.pack('QQ', ctypes.addressof(place), 8)
def attempt(work):
    try: return work()
    except OSError: return False
def opens(name): return attempt(lambda: os.open('/proc/%d/%s' % (target, name), os.O_RDONLY)) is not False
def lists(name): return attempt(lambda: os.listdir('/proc/%d/%s' % (target, name))) is not False
def tasks(): return attempt(lambda: os.listdir('/proc/%d/task' % target)) or []
";

#[test]
fn the_first_process_is_not_traced() {
    if !require("python3") {
        return;
    }
    for user in available_users() {
        let attacks = ATTACKS.map(|(_, attack)| {
            format!(
                "{HARNESS}target = 1\nprint('reached' if attempt(lambda: {attack}) else 'held')\nend"
            )
        });
        // The same reach a child of the command's, unless they are closed to all.
        let own = ATTACKS.map(|(_, attack)| {
            format!(
                "{HARNESS}target = os.fork()\nif target == 0:\n    import time\n    time.sleep(60)\n\
                 print('reached' if attempt(lambda: {attack}) else 'held')\nos.kill(target, 9)\nend"
            )
        });
        let fixture = SandboxFixture::new(user);
        let outputs = fixture.run_commands(&[], &attacks);
        for ((name, _), output) in ATTACKS.iter().zip(&outputs) {
            assert_eq!(output, "held", "{user:?}: {name}");
        }
        let outputs = fixture.run_commands(&[], &own);
        let reached = outputs.iter().filter(|output| *output == "reached").count();
        assert_eq!(reached, 10, "{user:?}: {outputs:?}");
        print_count(&format!("{user:?}: {} ways to the first process closed", ATTACKS.len()));
        // Without namespaces none of the command's own processes is traced either.
        let outputs = SandboxFixture::new(user).without_namespaces().run_commands(&[], &own[..5]);
        assert!(outputs.iter().all(|output| output == "held"), "{user:?}: {outputs:?}");
    }
}

/// A command in the background hands out a descriptor of itself, and of its `/proc`.
const BACKGROUND: &str = "exec python3 - <<'end'
import ctypes, os, socket
me = ctypes.CDLL(None).syscall(434, os.getpid(), 0)
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ['TMPDIR'] + '/door')
server.listen()
while True:
    peer = server.accept()[0]
    socket.send_fds(peer, [b'%d' % os.getpid()], [me, os.open('/proc', 0), os.open('/proc/self', 0)])
end";

const VISITOR: &str = "import socket, time
door = socket.socket(socket.AF_UNIX)
while True:
    try: door.connect(os.environ['TMPDIR'] + '/door'); break
    except OSError: pass
pid, fds, _, _ = socket.recv_fds(door, 9, 3)
me, proc, their = fds
pid = int(pid)
def opened(at, path, flags=0):
    try: return os.open(path, flags, dir_fd=at) >= 0
    except OSError: return False
print(call(GETFD, me, 0, 0) >= 0, call(424, me, 0, 0, 0) == 0, call(308, me, 0x10000000) == 0,
    opened(their, 'mem'), opened(their, 'mem', 2), opened(their, 'fd/0'), opened(their, 'environ'),
    opened(proc, '1/mem'), opened(proc, '%d/mem' % pid), opened(proc, '%d/root/etc/passwd' % pid),
    sum('send' + '_fds' in open('/proc/%s/cmdline' % p).read() for p in os.listdir('/proc') if p.isdigit()) > 0)
end";

#[test]
fn a_command_in_the_background_is_not_traced() {
    if !require("python3") {
        return;
    }
    for user in available_users() {
        let background = json!({ "command": BACKGROUND, "background": true });
        let visitor = json!({ "command": format!("{HARNESS}{VISITOR}"), "timeout": 60 });
        let outputs =
            SandboxFixture::new(user).run_calls(&[], vec![("exec", background), ("exec", visitor)]);
        assert_eq!(outputs[1], ["False"; 11].join(" "), "{user:?}");
    }
}

/// A command whose parent is the supervisor asks that to trace it: it stops at its next signal, and nothing believes that it
/// has ended.
#[test]
fn a_command_that_asks_to_be_traced_is_ended_at_its_timeout() {
    if !require("python3") {
        return;
    }
    let command = "exec python3 -c 'import ctypes, os; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 10)'";
    let call = json!({ "command": command, "timeout": 2 });
    let outputs = SandboxFixture::new(User::Current).run_calls(&[], vec![("exec", call)]);
    assert!(outputs[0].contains("Timed out after 2 seconds"), "{}", outputs[0]);
}
