/* The least that can be done: what nanobot is measured against. A static HTTP client without any of its cares.
 *
 *   min hello PORT            one request, its answer printed
 *   min loop PORT N FILE      N requests, each longer than the last by a call and its result; a line to FILE for each
 *   min stream PORT           a streamed answer, its pieces printed as they come
 *   min sh N                  `sh -c true`, N times
 *   min run OUT COMMAND...    COMMAND with its output thrown away; to OUT: ns of wall, us of CPU, KiB of memory,
 *                             bytes written by write(2), and page faults
 *   min show OUT COMMAND...   the same with its output on a terminal
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char in[1 << 20];

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) exit(1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void ask(int fd, const char *path, const char *body, size_t size) {
    char head[256];
    int length = snprintf(head, sizeof head,
        "POST %s/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        "content-length: %zu\r\n\r\n", path, size);
    if (write(fd, head, length) != length) exit(1);
    while (size) {
        ssize_t count = write(fd, body, size);
        if (count <= 0) exit(1);
        body += count, size -= count;
    }
}

/* Read an answer with a content-length; the body, with a NUL after it. */
static char *answer(int fd) {
    size_t have = 0;
    for (;;) {
        ssize_t count = read(fd, in + have, sizeof in - 1 - have);
        if (count <= 0) exit(1);
        have += count;
        in[have] = 0;
        char *body = strstr(in, "\r\n\r\n"), *length = strstr(in, "content-length: ");
        if (body && length && have >= (size_t)(body + 4 - in) + strtoul(length + 16, 0, 10)) return body + 4;
    }
}

static void print_content(const char *from) {
    const char *text = strstr(from, "\"content\":\"");
    if (!text) return;
    text += 11;
    const char *end = strchr(text, '"');
    if (end && write(1, text, end - text) < 0) exit(1);
}

static void hello(int port) {
    const char *body = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    int fd = dial(port);
    ask(fd, "/hello", body, strlen(body));
    print_content(answer(fd));
    if (write(1, "\n", 1) < 0) exit(1);
}

static void loop(int port, int times, const char *file) {
    char path[64];
    snprintf(path, sizeof path, "/read/%d", times);
    size_t size = 3500, room = size + (size_t)times * 600;
    char *body = malloc(room + 1);
    memset(body, 'x', room);
    int fd = dial(port), log = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    char line[300], text[64];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < times; i++, size += 500) {
        ask(fd, path, body, size);
        print_content(answer(fd));
        if (write(log, line, sizeof line) < 0) exit(1);
        if (i + 1 < times) {
            int data = open("/etc/hostname", O_RDONLY);
            if (read(data, text, sizeof text) < 0) exit(1);
            close(data);
            if (write(log, line, sizeof line) < 0) exit(1);
        }
    }
}

static void stream(int port) {
    const char *body = "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    int fd = dial(port);
    ask(fd, "/stream/20000", body, strlen(body));
    size_t have = 0;
    for (;;) {
        ssize_t count = read(fd, in + have, sizeof in - 1 - have);
        if (count <= 0) exit(1);
        have += count;
        in[have] = 0;
        char *at = in, *end;
        while ((end = strstr(at, "\n\n"))) {
            *end = 0;
            if (strstr(at, "[DONE]")) return;
            print_content(at);
            at = end + 2;
        }
        have -= at - in;
        memmove(in, at, have);
    }
}

extern char **environ;

static pid_t start(char **command, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, 1);
    pid_t pid;
    if (posix_spawnp(&pid, command[0], &actions, 0, command, environ)) exit(1);
    return pid;
}

static void sh(int times) {
    char *command[] = {"sh", "-c", "true", 0};
    for (int i = 0; i < times; i++) waitpid(start(command, -1), 0, 0);
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// A terminal of 80 columns, and somebody who reads what is written there.
static int terminal(void) {
    int glass = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (glass < 0 || grantpt(glass) || unlockpt(glass)) exit(1);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    if (ioctl(glass, TIOCSWINSZ, &size)) exit(1);
    char text[64 << 10];
    int line = open(ptsname(glass), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fork() == 0) {
        close(line);
        while (read(glass, text, sizeof text) > 0);
        _exit(0);
    }
    close(glass);
    return line;
}

static int run(const char *out, char **command, int shows) {
    int to = shows ? terminal() : open("/dev/null", O_WRONLY | O_CLOEXEC), status;
    long long before = now();
    pid_t pid = start(command, to);
    siginfo_t info;
    waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
    long long wall = now() - before;
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/io", pid);
    int io = open(path, O_RDONLY);
    if (io >= 0 && read(io, text, sizeof text - 1) < 0) text[0] = 0;
    char *written = strstr(text, "wchar: ");
    struct rusage used;
    wait4(pid, &status, 0, &used);
    FILE *file = fopen(out, "w");
    fprintf(file, "%lld %ld %ld %ld %ld\n", wall,
        (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec,
        used.ru_maxrss, written ? atol(written + 7) : -1L, used.ru_minflt);
    fclose(file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "hello")) hello(atoi(words[2]));
    else if (count > 4 && !strcmp(words[1], "loop")) loop(atoi(words[2]), atoi(words[3]), words[4]);
    else if (count > 2 && !strcmp(words[1], "stream")) stream(atoi(words[2]));
    else if (count > 2 && !strcmp(words[1], "sh")) sh(atoi(words[2]));
    else if (count > 3 && !strcmp(words[1], "run")) return run(words[2], words + 3, 0);
    else if (count > 3 && !strcmp(words[1], "show")) return run(words[2], words + 3, 1);
    else return 2;
    return 0;
}
