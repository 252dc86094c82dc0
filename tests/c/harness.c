/* For nftw. */
#define _GNU_SOURCE

#include "harness.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READY_MS = 30000, WORDS_MAX = 32, COMMAND_SIZE = 4096 };

bool test_failed;

static void die(const char *what) {
    perror(what);
    exit(2);
}

void pause_ms(int ms) {
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int free_port(void) {
    int probe = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (probe < 0 || bind(probe, (struct sockaddr *)&address, size) != 0 ||
        getsockname(probe, (struct sockaddr *)&address, &size) != 0)
        die("no free port");
    close(probe);
    return ntohs(address.sin_port);
}

/* Whether the server answers `srvr` as one that serves clients. */
static bool serves(const struct server *server) {
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(server->port);
    struct timeval timeout = {.tv_sec = 2};
    char answer[4096];
    size_t length = 0;
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
        setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0 &&
        write(connection, "srvr", 4) == 4) {
        ssize_t got;
        while (length < sizeof answer - 1 &&
               (got = read(connection, answer + length, sizeof answer - 1 - length)) > 0)
            length += (size_t)got;
    }
    close(connection);
    answer[length] = '\0';
    return strstr(answer, "Mode:") != NULL;
}

void server_create(struct server *server, const char *command) {
    server->command = command;
    server->port = free_port();
    strcpy(server->directory, "/tmp/stoa-c-XXXXXX");
    if (mkdtemp(server->directory) == NULL)
        die("no temporary directory");
    server_start(server);
}

static void become_server(const struct server *server) {
    static char command[COMMAND_SIZE];
    char *words[WORDS_MAX + 1];
    int count = 0;
    const char *given = getenv(server->command);
    char output[PATH_SIZE];
    if (given == NULL) {
        fprintf(stderr, "%s is not set; run `cargo xtask c`\n", server->command);
        _exit(2);
    }
    snprintf(command, sizeof command, "%s --port %d --data-dir %s/data", given, server->port,
             server->directory);
    for (char *word = strtok(command, " "); word && count < WORDS_MAX; word = strtok(NULL, " "))
        words[count++] = word;
    words[count] = NULL;
    snprintf(output, sizeof output, "%s/output", server->directory);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen(output, "a", stdout) == NULL || dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        _exit(2);
    execv(words[0], words);
    _exit(2);
}

void server_start(struct server *server) {
    fflush(NULL);
    server->process = fork();
    if (server->process < 0)
        die("fork");
    if (server->process == 0)
        become_server(server);
    for (int waited = 0; waited < READY_MS; waited += 20) {
        if (serves(server))
            return;
        pause_ms(20);
    }
    fprintf(stderr, "the server does not answer; see %s/output\n", server->directory);
    exit(2);
}

void server_end(struct server *server, int signal) {
    kill(server->process, signal);
    waitpid(server->process, NULL, 0);
}

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *walk) {
    (void)stat, (void)kind, (void)walk;
    return remove(path);
}

void server_destroy(struct server *server) {
    server_end(server, SIGKILL);
    nftw(server->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void note_event(zhandle_t *handle, int type, int state, const char *path, void *context) {
    struct events *events = context ? context : (void *)zoo_get_context(handle);
    if (events == NULL)
        return;
    pthread_mutex_lock(&events->mutex);
    if (type == ZOO_SESSION_EVENT) {
        events->state = state;
    } else if (events->count < EVENTS_MAX) {
        events->seen[events->count].type = type;
        snprintf(events->seen[events->count].path, PATH_SIZE, "%s", path);
        events->count++;
    }
    pthread_cond_broadcast(&events->changed);
    pthread_mutex_unlock(&events->mutex);
}

static void begin(struct session *session, const struct server *server, const clientid_t *id,
                  const char *shown) {
    char address[64];
    struct events empty = EVENTS_EMPTY;
    snprintf(address, sizeof address, "127.0.0.1:%d", server->port);
    session->events = empty;
#ifdef HAVE_OPENSSL_H
    session->handle = zookeeper_init_ssl(address, shown, note_event, SESSION_MS, id, &session->events, 0);
#else
    (void)shown;
    session->handle = zookeeper_init(address, note_event, SESSION_MS, id, &session->events, 0);
#endif
    if (session->handle == NULL)
        die("zookeeper_init");
}

#ifdef HAVE_OPENSSL_H
void session_begin_tls(struct session *session, const struct server *server, const char *shown) {
    begin(session, server, NULL, shown);
}
#endif

void session_resume(struct session *session, const struct server *server, const clientid_t *id) {
    begin(session, server, id, "authority.pem");
}

void session_open(struct session *session, const struct server *server) {
    session_resume(session, server, NULL);
    if (!await_state(&session->events, ZOO_CONNECTED_STATE)) {
        fprintf(stderr, "no session\n");
        exit(2);
    }
}

void session_close(struct session *session) {
    zookeeper_close(session->handle);
}

static struct timespec deadline_in(int ms) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += ms / 1000;
    return time;
}

bool await_state(struct events *events, int state) {
    struct timespec deadline = deadline_in(READY_MS);
    int rc = 0;
    pthread_mutex_lock(&events->mutex);
    while (events->state != state && rc == 0)
        rc = pthread_cond_timedwait(&events->changed, &events->mutex, &deadline);
    pthread_mutex_unlock(&events->mutex);
    return rc == 0;
}

bool await_event(struct events *events, int index, int type, const char *path) {
    struct timespec deadline = deadline_in(PATIENCE_MS);
    int rc = 0;
    pthread_mutex_lock(&events->mutex);
    while (events->count <= index && rc == 0)
        rc = pthread_cond_timedwait(&events->changed, &events->mutex, &deadline);
    bool as_wanted = rc == 0 && events->seen[index].type == type &&
                     strcmp(events->seen[index].path, path) == 0;
    if (rc == 0 && !as_wanted)
        printf("#   event %d: type %d of %s\n", index, events->seen[index].type,
               events->seen[index].path);
    pthread_mutex_unlock(&events->mutex);
    return as_wanted;
}

int event_count(struct events *events) {
    pthread_mutex_lock(&events->mutex);
    int count = events->count;
    pthread_mutex_unlock(&events->mutex);
    return count;
}
