//! Everyday commands, which must work unchanged in the sandbox.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::skip;
use crate::situation::{User, available_users};

/// A program that may be missing, the command, and the expected end of its output.
const TASKS: [(&str, &str, &str); 47] = [
    (
        "git",
        "git init -q r && cd r && echo a > f && git add f && git -c user.name=a -c user.email=a@b commit -qm x && git log --format=%s",
        "x",
    ),
    (
        "git",
        "cd r && echo b >> f && git status --short && git diff --stat | tail -1",
        " 1 file changed, 1 insertion(+)",
    ),
    (
        "git",
        "cd r && git checkout -q -b other && git stash -q && git branch --show-current",
        "other",
    ),
    ("git", "git clone -q r copy && cat copy/f", "a"),
    (
        "git",
        "cd r && git stash pop -q && git checkout -q f; git worktree add -q ../wt -b wt && cd ../wt && echo c > g && git add g && git -c user.name=a -c \
         user.email=a@b commit -qm wt && git log --format=%s -1",
        "wt",
    ),
    ("git", "cd wt && echo d > h && git add h && git rm -q --cached h && git status --short", "?? h"),
    (
        "git",
        "cd r && rm -f ../wt/h && git checkout -q -f wt~ -B side && echo z > f && git -c user.name=a -c user.email=a@b commit -qam z && git -c \
         user.name=a -c user.email=a@b rebase -q -x true wt && git worktree remove ../wt && git worktree list | wc -l",
        "1",
    ),
    (
        "git",
        "git init -q --bare m.git && git -C r push -q ../m.git HEAD:refs/heads/main && git -C m.git log --format=%s -1 main",
        "z",
    ),
    ("git", "git clone -q -b main m.git from && cat from/f", "z"),
    (
        "cargo",
        "cargo new -q --vcs none hello && cd hello && cargo build -q --offline && ./target/debug/hello",
        "Hello, world!",
    ),
    (
        "npm",
        "mkdir -p n && cd n && npm init -y > /dev/null && ls",
        "package.json",
    ),
    (
        "npm",
        "cd n && npm pkg set scripts.go='echo gone' && npm run -s go",
        "gone",
    ),
    (
        "node",
        "node -e 'require(\"fs\").writeFileSync(\"js\", \"1\"); console.log(require(\"os\").cpus().length > 0)'",
        "true",
    ),
    (
        "node",
        "node -e 'require(\"child_process\").exec(\"echo child\", (e, out) => process.stdout.write(out))'",
        "child",
    ),
    (
        "make",
        "printf 'all: b\\nb: a\\n\\tcp a b\\n' > Makefile && echo made > a && make -s && cat b",
        "made",
    ),
    (
        "gcc",
        "echo 'int main(){return 7;}' > c.c && gcc c.c -o c; ./c; echo $?",
        "7",
    ),
    (
        "gcc",
        "echo '#include <pthread.h>\nvoid *f(void *x){return x;} int main(){pthread_t t; return pthread_create(&t,0,f,0)||pthread_join(t,0);}' > t.c && gcc t.c -o t -pthread && ./t && echo threads",
        "threads",
    ),
    (
        "python3",
        "python3 -c 'import subprocess; print(subprocess.check_output([\"echo\", \"sub\"]).decode(), end=\"\")'",
        "sub",
    ),
    (
        "python3",
        "python3 -c 'import concurrent.futures as f, tempfile, os; open(tempfile.mktemp(),\"w\"); print(list(f.ThreadPoolExecutor().map(abs, [-1])))'",
        "[1]",
    ),
    (
        "python3",
        "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(\"loop\")'",
        "loop",
    ),
    (
        "python3",
        "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix.endswith(\"/v\"))'",
        "True",
    ),
    (
        "python3",
        "printf 'import unittest\\nclass T(unittest.TestCase):\\n def test(self): pass\\n' > test_x.py && python3 -m unittest -q 2>&1 | tail -1",
        "OK",
    ),
    (
        "tar",
        "mkdir -p o && tar czf a.tgz Makefile 2>/dev/null || touch Makefile && tar czf a.tgz Makefile && tar xzf a.tgz -C o && ls o",
        "Makefile",
    ),
    ("", "echo one > s && sed -i s/one/two/ s && cat s", "two"),
    (
        "",
        "mkdir -p d/e && touch d/e/x.txt && find d -name '*.txt' | xargs ls | sort",
        "d/e/x.txt",
    ),
    (
        "",
        "printf '2 b\\n1 a\\n' | sort -n | awk '{ print $2 }' | paste -sd,",
        "a,b",
    ),
    ("perl", "perl -e 'print `echo perl`'", "perl"),
    (
        "",
        "t=$(mktemp) && echo temp > $t && cat $t && rm $t",
        "temp",
    ),
    (
        "bash",
        "bash -c 'diff <(echo a) <(echo a) && cat <<< same'",
        "same",
    ),
    (
        "ps",
        "ps -e | grep -c sh > /dev/null && ps -o comm= -p $$ | sed s/bash/sh/",
        "sh",
    ),
    ("getent", "getent passwd root | cut -d: -f1", "root"),
    (
        "",
        "cp -rp d copied && mv copied moved && chmod 755 moved && test -d moved/e && echo there",
        "there",
    ),
    ("", "(sleep 0.1; echo late) & wait; echo all", "all"),
    (
        "",
        "umask 077; mkdir -p w; ln -s ../s w/link; cat w/link; nproc > /dev/null; date > /dev/null; id -u > /dev/null; uname > /dev/null; df . > /dev/null; echo ok",
        "ok",
    ),
    (
        "python3",
        "python3 -c 'import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))'",
        "[1, 2]",
    ),
    (
        "timeout",
        "timeout -s KILL 0.1 sleep 60; sleep 60 & kill $!; wait; echo ended",
        "ended",
    ),
    (
        "",
        "umask 022; mkdir -p sm; echo a > sm/f; chmod 2775 sm; chmod 1777 sm; chmod 400 sm/f; chmod +x sm/f; cp -a sm sm2; \
         install -m 755 sm/f sm/g; stat -c %a sm2/f sm/g | paste -sd,",
        "511,755",
    ),
    (
        "tar",
        "mkdir -p tp/in; chmod 700 tp/in; tar cpf p.tar tp && rm -r tp && tar xpf p.tar && stat -c %a tp/in",
        "700",
    ),
    ("zip", "zip -q z.zip s && unzip -p z.zip s", "two"),
    ("", "echo kept > /tmp/kept", "(no output)"),
    ("", "cat /tmp/kept", "kept"),
    ("", "ls / /dev /tmp > /dev/null && echo listed", "listed"),
    ("", "echo shared > /dev/shm/a && cat /dev/shm/a", "shared"),
    (
        "python3",
        "python3 -c 'import pty; pty.spawn([\"echo\", \"on a terminal\"])' | tr -d '\\r'",
        "on a terminal",
    ),
    (
        "python3",
        "python3 -c 'import multiprocessing as m; print(m.Manager().list([1, 2])[1])'",
        "2",
    ),
    (
        "python3",
        "cd $TMPDIR && python3 -c 'import socket as s, os; a = s.socket(s.AF_UNIX); a.bind(\"own\"); a.listen()
if os.fork() == 0: b = s.socket(s.AF_UNIX); b.connect(\"own\"); b.send(b\"hello\"); os._exit(0)
print(a.accept()[0].recv(9).decode())'",
        "hello",
    ),
    (
        "tmux",
        "S=$TMPDIR/t.sock; t() { tmux -S $S -f /dev/null \"$@\"; }; t new-session -d -s w 'echo in tmux; exec sleep 60'
until t capture-pane -p -t w | grep -q 'in tmux'; do sleep 0.05; done; t capture-pane -p -t w | head -1; t kill-server",
        "in tmux",
    ),
];

#[test]
fn everyday_commands_work_in_the_sandbox() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        // Only programs of this user: a toolchain may be in another user's home.
        let checks = TASKS.map(|(program, ..)| {
            format!("[ -n \"$(command -v {program})\" ] && echo here || echo none\n")
        });
        let outputs =
            SandboxFixture::new(user).run_commands(&["--sandbox", "off"], &[checks.concat()]);
        let lines: Vec<&str> = outputs[0].lines().collect();
        let here = |number: usize| TASKS[number].0.is_empty() || lines[number] == "here";
        let command_outputs =
            fixture.run_commands(&["--write"], &TASKS.map(|(_, command, _)| command));
        let (mut tried, mut wrong) = (0, Vec::new());
        for (number, ((program, command, expect), output)) in
            TASKS.iter().zip(&command_outputs).enumerate()
        {
            if !here(number) {
                match user {
                    User::Current => skip(&format!("`{program}` is not installed")),
                    User::Nobody => {
                        print_count(&format!("{user:?} cannot run {program}: {command}"));
                    }
                }
                continue;
            }
            tried += 1;
            if output.lines().last() != Some(expect) {
                wrong.push(format!("{command}\n{output}"));
            }
        }
        print_count(&format!("{user:?}: {} of {tried} everyday tasks done", tried - wrong.len()));
        assert!(wrong.is_empty(), "{user:?}:\n{}", wrong.join("\n\n"));
    }
}
