/* A server as a child process, sessions, and checks that name what they wanted. */
#ifndef STOA_TESTS_HARNESS_H
#define STOA_TESTS_HARNESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* The library's own word for TLS: then its headers are those that it was built with. */
#ifdef HAVE_OPENSSL_H
#include <zookeeper.h>
#else
#include <zookeeper/zookeeper.h>
#endif

enum { SESSION_MS = 15000, PATIENCE_MS = 10000, EVENTS_MAX = 64, PATH_SIZE = 256 };

/* Keeps its port and its data directory over a restart. */
struct server {
    /* The variable of the environment that has the command. */
    const char *command;
    int port;
    pid_t process;
    char directory[64];
};

void server_create(struct server *server, const char *command);
void server_start(struct server *server);
void server_end(struct server *server, int signal);
void server_destroy(struct server *server);

/* What a watcher was told, apart from the state of the connection. */
struct events {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int count;
    struct {
        int type;
        char path[PATH_SIZE];
    } seen[EVENTS_MAX];
    int state;
};

#define EVENTS_EMPTY {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

struct session {
    zhandle_t *handle;
    struct events events;
};

/* A watcher for the calls that take one; its context is a `struct events`. */
void note_event(zhandle_t *handle, int type, int state, const char *path, void *context);

/* With TLS where the library has it; without a certificate then. */
void session_open(struct session *session, const struct server *server);
void session_resume(struct session *session, const struct server *server, const clientid_t *id);
void session_close(struct session *session);

#ifdef HAVE_OPENSSL_H
/* Whom the client trusts and what it shows: "authority" or "authority,certificate,key,password". */
void session_begin_tls(struct session *session, const struct server *server, const char *shown);
#endif

/* A session and a znode of its own for each test. */
struct fixture {
    const struct server *server;
    struct session session;
    zhandle_t *zk;
    char base[64];
};

bool await_state(struct events *events, int state);
/* The event at `index` has to come, with this type and path. */
bool await_event(struct events *events, int index, int type, const char *path);
int event_count(struct events *events);

void pause_ms(int ms);

/* The test that is running; a failed check ends it. */
extern bool test_failed;

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            printf("#   %s:%d: %s\n", __FILE__, __LINE__, #condition);                     \
            test_failed = true;                                                            \
            return;                                                                        \
        }                                                                                  \
    } while (0)

#define CHECK_RC(wanted, call)                                                             \
    do {                                                                                   \
        int rc_got = (call);                                                               \
        if (rc_got != (wanted)) {                                                          \
            printf("#   %s:%d: %s: wanted %d (%s), got %d (%s)\n", __FILE__, __LINE__,     \
                   #call, (wanted), zerror(wanted), rc_got, zerror(rc_got));               \
            test_failed = true;                                                            \
            return;                                                                        \
        }                                                                                  \
    } while (0)

#endif
