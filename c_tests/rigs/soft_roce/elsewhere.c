// Runs commands on another machine of the rig, whose only other way in is a wire.
//
//   elsewhere serve PORT                  runs what it is told to, for ever
//   elsewhere run ADDRESS PORT WORD...    has a command run there: its output comes here, its exit status becomes
//                                         this one's, and it is killed (SIGKILL) when this one ends, however it does
// No authentication: the wire leads to one machine.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORDS = 64, MOST_BYTES = 16384 };
// What follows the output: this and the exit status.
static const char mark[3] = {'\0', 'r', 'c'};

static int give_up(const char *what) {
  fprintf(stderr, "elsewhere: %s: %s\n", what, strerror(errno));
  return 255;
}

static int open_socket(struct sockaddr_in *where, const char *address, const char *port) {
  const int on = 1;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  memset(where, 0, sizeof *where);
  where->sin_family = AF_INET;
  where->sin_port = htons((uint16_t)atoi(port));
  if (fd < 0 || inet_pton(AF_INET, address, &where->sin_addr) != 1) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static int read_all(int fd, void *to, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = read(fd, (char *)to + done, size - done);
    if (n <= 0) return -1;
    done += (size_t)n;
  }
  return 0;
}

// The words, each with its zero, after their total size.
static int read_words(int fd, char *bytes, char **words) {
  uint32_t size = 0;
  int n = 0;
  if (read_all(fd, &size, sizeof size) != 0 || size == 0 || size > MOST_BYTES || read_all(fd, bytes, size) != 0) return -1;
  if (bytes[size - 1] != '\0') return -1;
  for (char *word = bytes; word < bytes + size && n < MOST_WORDS; word += strlen(word) + 1) words[n++] = word;
  words[n] = NULL;
  return 0;
}

// One command, for one connection.
static void answer(int fd) {
  static char bytes[MOST_BYTES];
  static char *words[MOST_WORDS + 1];
  sigset_t child;
  int status = 0;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);
  const int ended = signalfd(-1, &child, SFD_CLOEXEC);
  if (ended < 0 || read_words(fd, bytes, words) != 0) return;
  const pid_t pid = fork();
  if (pid == 0) {
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(255);
    execvp(words[0], words);
    _exit(give_up(words[0]));
  }
  if (pid < 0) return;
  for (;;) {
    struct pollfd both[2] = {{fd, POLLIN, 0}, {ended, POLLIN, 0}};
    if (poll(both, 2, -1) < 0) continue;
    if (both[0].revents != 0) kill(pid, SIGKILL);  // the other end says no more: it has gone
    if (both[0].revents != 0 || both[1].revents != 0) break;
  }
  waitpid(pid, &status, 0);
  const char code = (char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  const char end[4] = {mark[0], mark[1], mark[2], code};
  if (write(fd, end, sizeof end) == sizeof end) shutdown(fd, SHUT_RDWR);
}

static int serve(const char *port) {
  struct sockaddr_in where;
  const int door = open_socket(&where, "0.0.0.0", port);
  if (door < 0 || bind(door, (struct sockaddr *)&where, sizeof where) != 0 || listen(door, 64) != 0) return give_up("listen");
  signal(SIGPIPE, SIG_IGN);
  for (;;) {
    const int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0 && fork() == 0) {
      answer(fd);
      _exit(0);
    }
    close(fd);
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
  }
}

static int send_words(int fd, char **words) {
  char bytes[MOST_BYTES];
  uint32_t size = 0;
  for (; *words != NULL; ++words) {
    const size_t length = strlen(*words) + 1;
    if (size + length > sizeof bytes) return -1;
    memcpy(bytes + size, *words, length);
    size += (uint32_t)length;
  }
  return write(fd, &size, sizeof size) == sizeof size && write(fd, bytes, size) == (ssize_t)size ? 0 : -1;
}

// Passes the output on, but for its last four bytes, which tell the exit status.
static int relay(int fd) {
  char bytes[4096];
  size_t held = 0;
  for (;;) {
    const ssize_t n = read(fd, bytes + held, sizeof bytes - held);
    if (n <= 0) break;
    held += (size_t)n;
    if (held <= 4) continue;
    if (write(STDOUT_FILENO, bytes, held - 4) < 0) return 255;
    memmove(bytes, bytes + held - 4, 4);
    held = 4;
  }
  if (held != 4 || memcmp(bytes, mark, sizeof mark) != 0) {
    fprintf(stderr, "elsewhere: the other machine went away\n");
    return 255;
  }
  return (unsigned char)bytes[3];
}

static int run(char **argv) {
  struct sockaddr_in where;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open_socket(&where, argv[0], argv[1]);
  if (fd < 0 || connect(fd, (struct sockaddr *)&where, sizeof where) != 0) return give_up(argv[0]);
  if (send_words(fd, argv + 2) != 0) return give_up("the command");
  return relay(fd);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
  if (argc > 4 && strcmp(argv[1], "run") == 0) return run(argv + 2);
  fprintf(stderr, "elsewhere serve PORT | elsewhere run ADDRESS PORT WORD...\n");
  return 2;
}
