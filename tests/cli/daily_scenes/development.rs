//! Scenes of a developer's day: test suites that talk to their own servers, sanitizers and debuggers, servers in the background,
//! hooks of git, pipes and progress.

use super::{COMMIT, FETCH, Scene, WRITE, scene};

/// A server and its test in Python.
const PYTHON_SERVER: &str = "cat > test_app.py <<'end'
import http.server, threading, unittest, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'tea')
    def log_message(self, *_): pass
class Test(unittest.TestCase):
    def test(self):
        with http.server.ThreadingHTTPServer(('', 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = 'http://localhost:%d/' % server.server_port
            self.assertEqual(urllib.request.urlopen(url).read(), b'tea')
            server.shutdown()
end";

/// Tests of Python with other kinds of sockets.
const PYTHON_SOCKETS: &str = "cat > test_sockets.py <<'end'
import asyncio, os, socket, tempfile, unittest
class Test(unittest.TestCase):
    def test_v6(self):
        with socket.create_server(('::1', 0), family=socket.AF_INET6) as server:
            socket.create_connection(server.getsockname()[:2]).close()
    def test_datagrams(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind(('127.0.0.1', 0))
            own.sendto(b'tea', own.getsockname())
            self.assertEqual(own.recv(9), b'tea')
    def test_local(self):
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.join(place, 's'))
            server.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.getsockname())
    def test_asyncio(self):
        async def serve():
            async def answer(_, writer):
                writer.write(b'tea')
                writer.close()
            server = await asyncio.start_server(answer, 'localhost', 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection('localhost', port)
            text = await reader.read()
            writer.close()
            return text
        self.assertEqual(asyncio.run(serve()), b'tea')
end";

/// A server and its test in JavaScript.
const NODE_SERVER: &str = r#"cat > app.test.mjs <<'end'
import assert from 'node:assert';
import http from 'node:http';
import test from 'node:test';
test('http', async () => {
  const server = http.createServer((_, response) => response.end('tea'));
  await new Promise(done => server.listen(0, done));
  const response = await fetch(`http://localhost:${server.address().port}/`);
  assert.equal(await response.text(), 'tea');
  server.close();
});
end"#;

/// A server in C with a client thread. With `BUG` it uses memory after it was freed.
const C_SERVER: &str = r#"cat > server.c <<'end'
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static struct sockaddr_in address = { .sin_family = AF_INET };
static void *client(void *nothing) {
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    char text[4] = {0};
    if (connect(connection, (void *)&address, sizeof address) || read(connection, text, 3) != 3) exit(1);
    puts(text);
    return nothing;
}
int main(void) {
    int server = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof address;
    pthread_t thread;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(server, (void *)&address, length) || listen(server, 1)) return 2;
    getsockname(server, (void *)&address, &length);
    pthread_create(&thread, 0, client, 0);
    int connection = accept(server, 0, 0);
    char *text = malloc(1);
    free(text);
#ifdef BUG
    text[0] = 't';
#endif
    if (write(connection, "tea", 3) != 3) return 3;
    pthread_join(thread, 0);
    return 0;
}
end
printf 'all: one two\none two: server.c\n\tcc -g $(FLAGS) -o $@ server.c -pthread\n' > Makefile"#;

/// A test in Rust that asks its own server.
const RUST_SERVER: &str = r#"cat > server.rs <<'end'
use std::io::{Read, Write};
#[test]
fn a_client_is_answered() {
    let server = std::net::TcpListener::bind("localhost:0").unwrap();
    let address = server.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let mut text = String::new();
        std::net::TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    server.accept().unwrap().0.write_all(b"tea").unwrap();
    assert_eq!(client.join().unwrap(), "tea");
}
end"#;

/// A hook that takes blanks off the ends of lines, as a formatter does.
const FORMATTER: &str = "git init -q -b main && echo a > f && git add f && git commit -q -m one && printf '#!/bin/sh\nsed -i \"s/ *$//\" f && git add f\n' > \
     .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit";

/// A linter in a directory of hooks that belongs to the project.
const LINTER: &str = "git init -q -b main && git config core.hooksPath .hooks && mkdir .hooks && printf '#!/bin/sh\nexec python3 -m py_compile a.py\n' > \
     .hooks/pre-commit && chmod +x .hooks/pre-commit && printf '__pycache__\n' > .gitignore && git add . && git commit -q --no-verify -m one";

pub(super) const DEVELOPMENT: &[Scene] = &[
    scene(
        "tests of a server in python",
        "python3",
        PYTHON_SERVER,
        WRITE,
        &[("exec", "python3 -m unittest 2> report")],
        "grep -q ^OK report",
    ),
    scene(
        "tests of a server in python that changes nothing, after a page",
        "python3",
        PYTHON_SERVER,
        &[],
        &[FETCH, ("exec", "python3 -m unittest 2>&1 | grep ^OK")],
        "true",
    ),
    scene(
        "tests with sockets of other kinds",
        "python3",
        PYTHON_SOCKETS,
        WRITE,
        &[("exec", "python3 -m unittest 2> report")],
        "grep -q ^OK report && grep -q 'Ran 4 tests' report",
    ),
    scene(
        "tests of a server in node",
        "node",
        NODE_SERVER,
        WRITE,
        &[("exec", "node --test > report")],
        "grep -q 'pass 1' report",
    ),
    scene(
        "tests of a package of node, with a script before them",
        "npm",
        NODE_SERVER,
        WRITE,
        &[(
            "exec",
            "npm init -y > /dev/null && npm pkg set scripts.pretest='node --check app.test.mjs' scripts.test='node --test' && npm test > report",
        )],
        "grep -q 'pass 1' report",
    ),
    scene(
        "a linter of the dependencies",
        "npm",
        "mkdir -p node_modules/.bin && printf '#!/usr/bin/env node\nconsole.log(\"0 problems\")\n' > node_modules/.bin/lint && chmod +x \
         node_modules/.bin/lint && echo '{\"name\":\"a\",\"scripts\":{\"lint\":\"lint .\"}}' > package.json",
        WRITE,
        &[("exec", "npm run --silent lint > report")],
        "grep -q '0 problems' report",
    ),
    scene(
        "workers and watched files of node",
        "node",
        "true",
        WRITE,
        &[(
            "exec",
            "node -e 'const { Worker } = require(\"worker_threads\"); require(\"fs\").watch(\".\").close(); \
             new Worker(\"require(\\\"fs\\\").writeFileSync(\\\"made\\\", \\\"\\\")\", { eval: true })'",
        )],
        "test -e made",
    ),
    scene(
        "a server in C, built by two jobs",
        "gcc",
        C_SERVER,
        WRITE,
        &[("exec", "make -s -j2 && ./one && ./two > report")],
        "grep -q tea report",
    ),
    scene(
        "a mistake found by the address sanitizer",
        "gcc",
        C_SERVER,
        WRITE,
        &[("exec", "make -s one FLAGS='-fsanitize=address,undefined -DBUG' && ! ./one 2> report")],
        "grep -q heap-use-after-free report",
    ),
    scene(
        "the thread sanitizer and the leak sanitizer",
        "gcc",
        C_SERVER,
        WRITE,
        &[
            ("exec", "make -s one FLAGS=-fsanitize=thread && ./one > threads"),
            ("exec", "make -s two FLAGS=-fsanitize=leak && ./two > leaks"),
        ],
        "grep -q tea threads && grep -q tea leaks",
    ),
    scene(
        "a debugger",
        "gdb",
        C_SERVER,
        WRITE,
        &[(
            "exec",
            "make -s one && gdb -batch -ex 'break main' -ex run -ex bt ./one > report 2>&1",
        )],
        "grep -q 'main () at server.c' report",
    ),
    scene(
        "a trace of system calls",
        "strace",
        "true",
        WRITE,
        &[("exec", "strace -f -o report sh -c 'echo tea | cat'")],
        "grep -q exited report",
    ),
    scene(
        "the coverage of a test",
        "gcc",
        C_SERVER,
        WRITE,
        &[("exec", "make -s one FLAGS=--coverage && ./one && gcov -n one-server.gcda > report")],
        "grep -q 'Lines executed' report",
    ),
    scene(
        "a crash and its status",
        "gcc",
        "echo 'int main(void) { __builtin_trap(); }' > a.c",
        WRITE,
        &[("exec", "cc -o a a.c && ./a; echo $? > status")],
        "test $(cat status) -gt 128",
    ),
    scene(
        "a test of a server in rust",
        "",
        RUST_SERVER,
        WRITE,
        &[("exec", "rustc --edition 2021 --test -o tests server.rs && ./tests > report")],
        "grep -q '1 passed' report",
    ),
    scene(
        "a server in the background, asked and ended",
        "curl",
        "echo tea > page",
        WRITE,
        &[
            (
                "exec",
                r#"{"command":"exec python3 -m http.server 8137 --bind 127.0.0.1 2> log","background":true}"#,
            ),
            (
                "exec",
                "curl -fsS --retry 50 --retry-delay 0 --retry-connrefused --retry-max-time 20 http://localhost:8137/page > got",
            ),
            ("process", r#"{"id":"exec-1","wait":0,"end":true}"#),
        ],
        "grep -q tea got && grep -q 'GET /page' log",
    ),
    scene(
        "a server in the background after a page, with a change of what it serves",
        "curl",
        "echo tea > page",
        WRITE,
        &[
            FETCH,
            (
                "exec",
                r#"{"command":"exec python3 -m http.server 8137 --bind 127.0.0.1 2> log","background":true}"#,
            ),
            ("write_file", r#"{"path":"page.html","content":"soup"}"#),
            (
                "exec",
                "curl -fsS --retry 50 --retry-delay 0 --retry-connrefused --retry-max-time 20 http://localhost:8137/page.html > got",
            ),
        ],
        "grep -q soup got",
    ),
    scene(
        "a build in the background while a page is read and the sources are committed",
        "git",
        COMMIT,
        &["--write", "--net=127.0.0.2"],
        &[
            (
                "exec",
                r#"{"command":"until test -e go; do sleep 0.05; done; mkdir -p target; cp f target/f; touch built","background":true}"#,
            ),
            FETCH,
            ("exec", "echo b >> f && git commit -qam two && touch go"),
            ("exec", "until test -e built; do sleep 0.05; done"),
        ],
        "git log -1 --format=%s | grep -q two && grep -q b target/f",
    ),
    scene(
        "instructions of before a page, beside a command in the background",
        "",
        "true",
        &["--write", "--net=127.0.0.2"],
        &[
            ("exec", r#"{"command":"sleep 60","background":true}"#),
            ("write_file", r#"{"path":"AGENTS.md","content":"Be brief."}"#),
            ("exec", "mkdir sub && echo tabs > sub/CLAUDE.md"),
            FETCH,
            ("exec", "echo a > a"),
            ("process", r#"{"id":"sleep-1","wait":0,"end":true}"#),
        ],
        "grep -q brief AGENTS.md && grep -q tabs sub/CLAUDE.md && ! ls -A | grep set-aside",
    ),
    scene(
        "settings and programs of a home, kept in a project",
        "",
        "true",
        WRITE,
        &[(
            "exec",
            "mkdir -p bin .config/i3 && echo a > bin/tool && echo a > .config/i3/config && echo a > .psqlrc",
        )],
        "cat bin/tool .config/i3/config .psqlrc",
    ),
    scene(
        "a log that is followed",
        "",
        "echo one > log",
        WRITE,
        &[
            ("exec", r#"{"command":"tail -n +1 -f log","background":true}"#),
            ("exec", "echo two >> log"),
            ("process", r#"{"id":"tail-1","wait":0,"end":true}"#),
        ],
        "grep -q two log",
    ),
    scene(
        "encrypted connections on loopback",
        "openssl",
        "true",
        WRITE,
        &[(
            "exec",
            "openssl req -x509 -newkey rsa:2048 -nodes -keyout test.pem -out test.crt -days 1 -subj /CN=localhost -addext \
             subjectAltName=DNS:localhost 2> /dev/null && (openssl s_server -quiet -accept 8138 -key test.pem -cert test.crt -www & curl -fsS \
             --retry 50 --retry-delay 0 --retry-connrefused --retry-max-time 20 --cacert test.crt https://localhost:8138/ > got; kill $!)",
        )],
        "test -s got",
    ),
    scene(
        "progress bars and colours",
        "python3",
        "true",
        WRITE,
        &[
            (
                "exec",
                "python3 -c 'for i in range(2000): print(end=f\"\\r{i // 20:3}% \" + \"#\" * (i // 50), flush=True)'; printf '\\033[31mred\\033[0m\\n'",
            ),
            ("exec", "curl -# file://$PWD/missing -o /dev/null; touch done"),
        ],
        "test -e done",
    ),
    scene(
        "much output in pipes",
        "",
        "true",
        WRITE,
        &[
            ("exec", "seq 200000"),
            ("exec", "yes | head -1 && seq 100000 | sort -rn | head -3 | tee top | wc -l > count"),
            (
                "exec",
                "diff <(seq 3) <(seq 4) > difference; echo a | tee >(cat > copy) > /dev/null; true",
            ),
        ],
        "grep -q 100000 top && grep -q 3 count && grep -q 4 difference",
    ),
    scene(
        "files found and changed in pipes",
        "git",
        "mkdir -p 'a b/c' && echo old > 'a b/c/x y' && echo old > z && git init -q && git add . && git commit -qm x",
        WRITE,
        &[
            ("exec", "git grep -lz old | xargs -0 sed -i s/old/new/"),
            (
                "exec",
                "find . -name '*y' -print0 | xargs -0 -I{} cp {} copy && git diff --stat | cat",
            ),
        ],
        "grep -q new 'a b/c/x y' && grep -q new z && grep -q new copy",
    ),
    scene(
        "limits, locks and times of commands",
        "",
        "true",
        WRITE,
        &[(
            "exec",
            "(ulimit -n 64 -c 0; timeout 5 nice sh -c 'ulimit -n > files'); flock lock -c 'touch locked'; nohup true; setsid -w touch session",
        )],
        "grep -q 64 files && test -e locked -a -e session",
    ),
    scene(
        "a formatter as a hook of git",
        "git",
        FORMATTER,
        WRITE,
        &[("exec", "printf 'b   \\n' > f && git commit -qam two")],
        "test \"$(git show HEAD:f)\" = b && test -z \"$(git status --porcelain)\"",
    ),
    scene(
        "a linter as a hook of git, which stops one commit",
        "python3",
        LINTER,
        WRITE,
        &[
            ("exec", "echo 'def' > a.py && git add a.py && ! git commit -qm two 2> report"),
            ("exec", "echo 'a = 1' > a.py && git add a.py && git commit -qm three"),
        ],
        "grep -q Error report && git log --format=%s | grep -q three && ! git log --format=%s | grep -q two",
    ),
    scene(
        "a linter as a hook of git after a page, in a part of the repository",
        "python3",
        "git init -q -b main && mkdir sub && printf '#!/bin/sh\nexec python3 -m py_compile sub/a.py\n' > .git/hooks/pre-commit && chmod +x \
         .git/hooks/pre-commit && echo __pycache__ > .gitignore && git add . && git commit -q --no-verify -m one",
        &["-C", "sub", "--write"],
        &[
            FETCH,
            ("exec", "echo 'a = 1' > a.py && git add a.py && git commit -qm two && git status -sb"),
        ],
        "git log -1 --format=%s | grep -q two",
    ),
    scene(
        "a fix in a worktree of its own, tested there and merged",
        "git",
        "git init -q -b main && printf 'check:\n\tgrep -q b f\n' > Makefile && echo a > f && git add . && git commit -qm one",
        WRITE,
        &[
            (
                "exec",
                "git worktree add -q fix -b fix && cd fix && echo b > f && make -s check && git commit -qam two",
            ),
            (
                "exec",
                "git merge -q fix && make -s check && git worktree remove fix && git branch -d fix",
            ),
        ],
        "git log -1 --format=%s | grep -q two && test ! -e fix",
    ),
    scene(
        "the commit that broke a build",
        "git",
        "git init -q -b main && for n in 1 2 3 4 5; do echo $n > f; printf 'check:\n\ttest $$(cat f) -lt 4\n' > Makefile; git add .; git commit \
         -qm n$n; done",
        WRITE,
        &[(
            "exec",
            "git bisect start HEAD HEAD~4 > /dev/null && git bisect run make -s check > report; git bisect reset -q",
        )],
        "grep -q 'is the first bad commit' report && grep -q n4 report",
    ),
];
