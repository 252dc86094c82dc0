/* Drives a server with Apache ZooKeeper's C client (multi-threaded): the calls that wait, the calls
 * that call back, watches, multi, ACLs, and sessions over restarts. Built with a library that has TLS,
 * it does all of that with TLS, and what tls.h names besides. Prints TAP and the sum. */

#include "harness.h"
#include "tls.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

static struct server shared;

static void path_below(char *path, const struct fixture *fixture, const char *name) {
    snprintf(path, PATH_SIZE, "%s/%s", fixture->base, name);
}

static int make(zhandle_t *zk, const char *path, const char *data, int mode) {
    return zoo_create(zk, path, data, (int)strlen(data), &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0);
}

/* ---- znodes ---- */

static bool same_stat(const struct Stat *a, const struct Stat *b) {
    return a->czxid == b->czxid && a->mzxid == b->mzxid && a->pzxid == b->pzxid && a->ctime == b->ctime &&
           a->mtime == b->mtime && a->version == b->version && a->cversion == b->cversion &&
           a->aversion == b->aversion && a->ephemeralOwner == b->ephemeralOwner &&
           a->dataLength == b->dataLength && a->numChildren == b->numChildren;
}

static void create_get_set_delete(struct fixture *f) {
    char path[PATH_SIZE], made[PATH_SIZE], data[64];
    int length = sizeof data;
    struct Stat created, read;
    path_below(path, f, "a");
    CHECK_RC(ZOK, zoo_create2(f->zk, path, "one", 3, &ZOO_OPEN_ACL_UNSAFE, 0, made, sizeof made, &created));
    CHECK(strcmp(made, path) == 0);
    CHECK(created.version == 0 && created.dataLength == 3 && created.czxid == created.mzxid);
    CHECK_RC(ZOK, zoo_get(f->zk, path, 0, data, &length, &read));
    CHECK(length == 3 && memcmp(data, "one", 3) == 0);
    CHECK(same_stat(&created, &read));
    CHECK_RC(ZOK, zoo_set2(f->zk, path, "three", 5, 0, &read));
    CHECK(read.version == 1 && read.mzxid > created.mzxid);
    CHECK_RC(ZBADVERSION, zoo_set(f->zk, path, "x", 1, 0));
    CHECK_RC(ZBADVERSION, zoo_delete(f->zk, path, 7));
    CHECK_RC(ZNODEEXISTS, make(f->zk, path, "", 0));
    CHECK_RC(ZOK, zoo_delete(f->zk, path, 1));
    CHECK_RC(ZNONODE, zoo_exists(f->zk, path, 0, &read));
    CHECK_RC(ZNONODE, zoo_delete(f->zk, path, -1));
}

static void data_may_be_null(struct fixture *f) {
    char path[PATH_SIZE], data[8];
    int length = sizeof data;
    path_below(path, f, "null");
    CHECK_RC(ZOK, zoo_create(f->zk, path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    CHECK_RC(ZOK, zoo_get(f->zk, path, 0, data, &length, NULL));
    CHECK(length == -1);
}

static void children_are_listed(struct fixture *f) {
    char path[PATH_SIZE];
    struct String_vector names;
    struct Stat stat;
    path_below(path, f, "a");
    CHECK_RC(ZOK, make(f->zk, path, "", 0));
    path_below(path, f, "b");
    CHECK_RC(ZOK, make(f->zk, path, "", 0));
    CHECK_RC(ZOK, zoo_get_children2(f->zk, f->base, 0, &names, &stat));
    CHECK(names.count == 2 && stat.numChildren == 2 && stat.cversion == 2);
    deallocate_String_vector(&names);
    CHECK_RC(ZNOTEMPTY, zoo_delete(f->zk, f->base, -1));
    CHECK_RC(ZNONODE, zoo_get_children(f->zk, "/no/such/path", 0, &names));
}

static void sequences_and_ephemerals(struct fixture *f) {
    char path[PATH_SIZE], made[PATH_SIZE], wanted[PATH_SIZE + 16];
    struct session other;
    struct Stat stat;
    path_below(path, f, "s");
    for (int i = 0; i < 3; i++) {
        CHECK_RC(ZOK, zoo_create(f->zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, made, sizeof made));
        snprintf(wanted, sizeof wanted, "%s%010d", path, i);
        CHECK(strcmp(made, wanted) == 0);
    }
    session_open(&other, &shared);
    path_below(path, f, "e");
    CHECK_RC(ZOK, make(other.handle, path, "", ZOO_EPHEMERAL));
    CHECK_RC(ZOK, zoo_exists(f->zk, path, 0, &stat));
    CHECK(stat.ephemeralOwner == zoo_client_id(other.handle)->client_id);
    strcat(path, "/child");
    CHECK_RC(ZNOCHILDRENFOREPHEMERALS, make(f->zk, path, "", 0));
    session_close(&other);
    path_below(path, f, "e");
    CHECK_RC(ZNONODE, zoo_exists(f->zk, path, 0, &stat));
}

static bool goes(zhandle_t *zk, const char *path) {
    for (int waited = 0; waited < PATIENCE_MS; waited += 50) {
        if (zoo_exists(zk, path, 0, NULL) == ZNONODE)
            return true;
        pause_ms(50);
    }
    return false;
}

static void containers_and_ttl_znodes_go(struct fixture *f) {
    char container[PATH_SIZE], child[PATH_SIZE + 8], old[PATH_SIZE];
    path_below(container, f, "c");
    path_below(old, f, "t");
    snprintf(child, sizeof child, "%s/child", container);
    CHECK_RC(ZOK, make(f->zk, container, "", ZOO_CONTAINER));
    CHECK_RC(ZOK, make(f->zk, child, "", 0));
    CHECK_RC(ZOK, zoo_create_ttl(f->zk, old, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 300, NULL, 0));
    CHECK_RC(ZOK, zoo_delete(f->zk, child, -1));
    CHECK(goes(f->zk, container));
    CHECK(goes(f->zk, old));
}

static void nearly_a_megabyte_fits(struct fixture *f) {
    enum { SIZE = 1000000 };
    char *sent = malloc(SIZE), *got = malloc(SIZE);
    int length = SIZE;
    for (int i = 0; i < SIZE; i++)
        sent[i] = (char)(i * 31 + i / 256);
    int set = zoo_set(f->zk, f->base, sent, SIZE, -1);
    int read = zoo_get(f->zk, f->base, 0, got, &length, NULL);
    bool same = length == SIZE && memcmp(sent, got, SIZE) == 0;
    free(sent);
    free(got);
    CHECK_RC(ZOK, set);
    CHECK_RC(ZOK, read);
    CHECK(same);
}

/* ZooKeeper closes the connection; Stoa says what is wrong, and the connection stays. */
static void too_large_is_refused(struct fixture *f) {
    enum { SIZE = 2000000 };
    const char *server = getenv("SERVER_NAME");
    bool answers = server != NULL && strcmp(server, "stoa") == 0;
    int64_t id = zoo_client_id(f->zk)->client_id;
    char *data = calloc(1, SIZE);
    int rc = zoo_set(f->zk, f->base, data, SIZE, -1);
    free(data);
    CHECK_RC(answers ? ZMARSHALLINGERROR : ZCONNECTIONLOSS, rc);
    CHECK(!answers || zoo_state(f->zk) == ZOO_CONNECTED_STATE);
    struct Stat stat;
    while ((rc = zoo_exists(f->zk, f->base, 0, &stat)) == ZCONNECTIONLOSS && !answers)
        pause_ms(20);
    CHECK_RC(ZOK, rc);
    CHECK(stat.version == 0 && zoo_client_id(f->zk)->client_id == id);
}

static void bad_paths_are_refused(struct fixture *f) {
    CHECK_RC(ZBADARGUMENTS, make(f->zk, "relative", "", 0));
    CHECK_RC(ZBADARGUMENTS, make(f->zk, "/a//b", "", 0));
    CHECK_RC(ZBADARGUMENTS, make(f->zk, "/a/../b", "", 0));
    CHECK_RC(ZNONODE, make(f->zk, "/no/such/parent", "", 0));
}

/* ---- multi ---- */

static void multi_is_one_step(struct fixture *f) {
    char a[PATH_SIZE], b[PATH_SIZE], made[PATH_SIZE];
    struct Stat stat;
    zoo_op_t ops[5];
    zoo_op_result_t results[5];
    path_below(a, f, "a");
    path_below(b, f, "b");
    zoo_create_op_init(&ops[0], a, "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, made, sizeof made);
    zoo_check_op_init(&ops[1], a, 0);
    zoo_set_op_init(&ops[2], a, "2", 1, 0, &stat);
    zoo_create_op_init(&ops[3], b, "1", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0);
    zoo_delete_op_init(&ops[4], b, 0);
    CHECK_RC(ZOK, zoo_multi(f->zk, 5, ops, results));
    CHECK(strcmp(made, a) == 0 && stat.version == 1);
    for (int i = 0; i < 5; i++)
        CHECK_RC(ZOK, results[i].err);
}

static void multi_is_all_or_nothing(struct fixture *f) {
    char a[PATH_SIZE], none[PATH_SIZE];
    zoo_op_t ops[3];
    zoo_op_result_t results[3];
    path_below(a, f, "a");
    path_below(none, f, "none");
    zoo_create_op_init(&ops[0], a, "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    zoo_delete_op_init(&ops[1], none, -1);
    zoo_set_op_init(&ops[2], a, "2", 1, -1, NULL);
    CHECK_RC(ZNONODE, zoo_multi(f->zk, 3, ops, results));
    CHECK_RC(ZOK, results[0].err);
    CHECK_RC(ZNONODE, results[1].err);
    CHECK_RC(ZRUNTIMEINCONSISTENCY, results[2].err);
    CHECK_RC(ZNONODE, zoo_exists(f->zk, a, 0, NULL));
}

/* ---- ACLs ---- */

struct answer {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int count;
    int rc[1024];
};

#define ANSWER_EMPTY {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static void note_answer(int rc, const void *context) {
    struct answer *answer = (void *)context;
    pthread_mutex_lock(&answer->mutex);
    answer->rc[answer->count++] = rc;
    pthread_cond_broadcast(&answer->changed);
    pthread_mutex_unlock(&answer->mutex);
}

static void await_answers(struct answer *answer, int count) {
    pthread_mutex_lock(&answer->mutex);
    while (answer->count < count)
        pthread_cond_wait(&answer->changed, &answer->mutex);
    pthread_mutex_unlock(&answer->mutex);
}

static void digest_opens_to_the_owner_only(struct fixture *f) {
    char path[PATH_SIZE];
    struct session owner;
    struct answer answer = ANSWER_EMPTY;
    struct ACL_vector acl;
    struct Stat stat;
    path_below(path, f, "a");
    session_open(&owner, &shared);
    CHECK_RC(ZOK, zoo_add_auth(owner.handle, "digest", "ann:secret", 10, note_answer, &answer));
    await_answers(&answer, 1);
    CHECK_RC(ZOK, answer.rc[0]);
    CHECK_RC(ZOK, zoo_create(owner.handle, path, "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    CHECK_RC(ZNOAUTH, zoo_set(f->zk, path, "y", 1, -1));
    CHECK_RC(ZNOAUTH, zoo_get_children(f->zk, path, 0, &(struct String_vector){0}));
    CHECK_RC(ZOK, zoo_set(owner.handle, path, "y", 1, -1));
    CHECK_RC(ZOK, zoo_get_acl(owner.handle, path, &acl, &stat));
    CHECK(acl.count == 1 && strcmp(acl.data[0].id.scheme, "digest") == 0);
    CHECK(strncmp(acl.data[0].id.id, "ann:", 4) == 0 && acl.data[0].perms == ZOO_PERM_ALL);
    deallocate_ACL_vector(&acl);
    CHECK_RC(ZOK, zoo_set_acl(owner.handle, path, 0, &ZOO_READ_ACL_UNSAFE));
    CHECK_RC(ZBADVERSION, zoo_set_acl(owner.handle, f->base, 9, &ZOO_READ_ACL_UNSAFE));
    CHECK_RC(ZNOAUTH, zoo_set(f->zk, path, "z", 1, -1));
    CHECK_RC(ZINVALIDACL, zoo_create(f->zk, path, "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    session_close(&owner);
}

/* ---- watches ---- */

static void watches_fire_once(struct fixture *f) {
    char path[PATH_SIZE];
    struct events seen = EVENTS_EMPTY;
    struct String_vector names;
    char data[8];
    int length = sizeof data;
    path_below(path, f, "a");
    CHECK_RC(ZNONODE, zoo_wexists(f->zk, path, note_event, &seen, NULL));
    CHECK_RC(ZOK, make(f->zk, path, "", 0));
    CHECK(await_event(&seen, 0, ZOO_CREATED_EVENT, path));
    CHECK_RC(ZOK, zoo_wget(f->zk, path, note_event, &seen, data, &length, NULL));
    CHECK_RC(ZOK, zoo_set(f->zk, path, "1", 1, -1));
    CHECK_RC(ZOK, zoo_set(f->zk, path, "2", 1, -1));
    CHECK(await_event(&seen, 1, ZOO_CHANGED_EVENT, path));
    CHECK_RC(ZOK, zoo_wget_children(f->zk, f->base, note_event, &seen, &names));
    deallocate_String_vector(&names);
    CHECK_RC(ZOK, zoo_delete(f->zk, path, -1));
    CHECK(await_event(&seen, 2, ZOO_CHILD_EVENT, f->base));
    CHECK(event_count(&seen) == 3);
}

static void watches_are_removed(struct fixture *f) {
    struct events seen = EVENTS_EMPTY;
    char data[8];
    int length = sizeof data;
    CHECK_RC(ZOK, zoo_wget(f->zk, f->base, note_event, &seen, data, &length, NULL));
    CHECK_RC(ZNOWATCHER, zoo_remove_all_watches(f->zk, f->base, ZWATCHTYPE_CHILD, 0));
    CHECK_RC(ZOK, zoo_remove_watches(f->zk, f->base, ZWATCHTYPE_DATA, note_event, &seen, 0));
    CHECK_RC(ZOK, zoo_set(f->zk, f->base, "x", 1, -1));
    pause_ms(100);
    for (int i = 0; i < event_count(&seen); i++)
        CHECK(seen.seen[i].type != ZOO_CHANGED_EVENT);
}

/* ---- calls that call back ---- */

static void note_stat(int rc, const struct Stat *stat, const void *context) {
    note_answer(rc == ZOK ? stat->version : rc, context);
}

static void note_string(int rc, const char *value, const void *context) {
    (void)value;
    note_answer(rc, context);
}

static void note_data(int rc, const char *value, int length, const struct Stat *stat, const void *context) {
    (void)value, (void)length;
    note_answer(rc == ZOK ? stat->version : rc, context);
}

static void replies_come_in_order(struct fixture *f) {
    enum { MANY = 300 };
    struct answer answer = ANSWER_EMPTY;
    char missing[PATH_SIZE];
    path_below(missing, f, "missing");
    for (int i = 0; i < MANY; i++) {
        CHECK_RC(ZOK, zoo_aset(f->zk, f->base, "x", 1, i, note_stat, &answer));
        CHECK_RC(ZOK, zoo_aget(f->zk, f->base, 0, note_data, &answer));
        CHECK_RC(ZOK, zoo_adelete(f->zk, missing, -1, note_answer, &answer));
    }
    await_answers(&answer, 3 * MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK(answer.rc[3 * i] == i + 1);
        CHECK(answer.rc[3 * i + 1] == i + 1);
        CHECK_RC(ZNONODE, answer.rc[3 * i + 2]);
    }
}

static void sync_and_create_call_back(struct fixture *f) {
    struct answer answer = ANSWER_EMPTY;
    char path[PATH_SIZE];
    path_below(path, f, "a");
    CHECK_RC(ZOK, zoo_acreate(f->zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, note_string, &answer));
    CHECK_RC(ZOK, zoo_async(f->zk, path, note_string, &answer));
    CHECK_RC(ZOK, zoo_acreate(f->zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, note_string, &answer));
    await_answers(&answer, 3);
    CHECK_RC(ZOK, answer.rc[0]);
    CHECK_RC(ZOK, answer.rc[1]);
    CHECK_RC(ZNODEEXISTS, answer.rc[2]);
}

/* ---- answers that must not wait ---- */

/* With TLS the client takes one record each time that the socket has something to read. What it has
 * deciphered besides comes to light when the socket has more: with a ping, after a third of SESSION_MS, if
 * the connection lasts so long. */
enum { PROMPT_MS = 3000 };

static long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000L + time.tv_nsec / 1000000;
}

static bool answered_promptly(struct answer *answer, int count, long begun_ms) {
    await_answers(answer, count);
    long took_ms = now_ms() - begun_ms;
    if (took_ms > PROMPT_MS)
        printf("#   %d answers took %ld ms\n", count, took_ms);
    return took_ms <= PROMPT_MS;
}

static void a_thousand_gets_do_not_wait(struct fixture *f) {
    enum { MANY = 1000, ROUNDS = 5 };
    for (int round = 0; round < ROUNDS; round++) {
        struct answer answer = ANSWER_EMPTY;
        long begun_ms = now_ms();
        for (int i = 0; i < MANY; i++)
            CHECK_RC(ZOK, zoo_aget(f->zk, f->base, 0, note_data, &answer));
        CHECK(answered_promptly(&answer, MANY, begun_ms));
        for (int i = 0; i < MANY; i++)
            CHECK_RC(0, answer.rc[i]);
    }
}

static void note_names(int rc, const struct String_vector *names, const struct Stat *stat,
                       const void *context) {
    (void)names, (void)stat;
    note_answer(rc, context);
}

/* Asks for the operation of this number; one in two writes, and one sets a watch that another sets off. */
static int ask(struct fixture *f, int number, struct events *seen, struct answer *answer) {
    static zoo_op_t ops[2];
    static zoo_op_result_t results[2];
    char path[PATH_SIZE];
    path_below(path, f, number % 6 == 4 ? "missing" : "s");
    switch (number % 6) {
    case 0:
        return zoo_aset(f->zk, f->base, path, (int)strlen(path), -1, note_stat, answer);
    case 1:
        return zoo_awget(f->zk, f->base, note_event, seen, note_data, answer);
    case 2:
        return zoo_acreate(f->zk, path, "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, note_string,
                           answer);
    case 3:
        return zoo_aget_children2(f->zk, f->base, 0, note_names, answer);
    case 4:
        return zoo_adelete(f->zk, path, -1, note_answer, answer);
    default:
        zoo_check_op_init(&ops[0], f->base, -1);
        zoo_set_op_init(&ops[1], f->base, "m", 1, 0, NULL);
        return zoo_amulti(f->zk, 2, ops, results, note_answer, answer);
    }
}

static void batches_do_not_wait(struct fixture *f) {
    enum { BATCHES = 120, LARGEST = 24 };
    static struct events seen = EVENTS_EMPTY;
    int next = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        struct answer answer = ANSWER_EMPTY;
        int size = 1 + batch * 7 % LARGEST;
        long begun_ms = now_ms();
        for (int i = 0; i < size; i++)
            CHECK_RC(ZOK, ask(f, next++, &seen, &answer));
        CHECK(answered_promptly(&answer, size, begun_ms));
    }
    CHECK(event_count(&seen) > 0);
}

static void large_replies_do_not_wait(struct fixture *f) {
    enum { SIZE = 1000000, MANY = 6 };
    struct answer answer = ANSWER_EMPTY;
    char *data = malloc(SIZE);
    memset(data, 'x', SIZE);
    int set = zoo_set(f->zk, f->base, data, SIZE, -1);
    free(data);
    CHECK_RC(ZOK, set);
    long begun_ms = now_ms();
    for (int i = 0; i < MANY; i++)
        CHECK_RC(ZOK, zoo_aget(f->zk, f->base, 0, note_data, &answer));
    CHECK(answered_promptly(&answer, MANY, begun_ms));
    for (int i = 0; i < MANY; i++)
        CHECK_RC(1, answer.rc[i]);
}

/* ---- sessions ---- */

static void restart_with_session(struct server *server, struct session *session, struct events *seen, int signal) {
    const char *path = signal == SIGKILL ? "/after-crash" : "/after-stop";
    int64_t id = zoo_client_id(session->handle)->client_id;
    struct Stat stat;
    CHECK_RC(ZNONODE, zoo_wexists(session->handle, path, note_event, seen, NULL));
    int before = event_count(seen);
    server_end(server, signal);
    CHECK(await_state(&session->events, ZOO_CONNECTING_STATE));
    server_start(server);
    CHECK(await_state(&session->events, ZOO_CONNECTED_STATE));
    CHECK(zoo_client_id(session->handle)->client_id == id);
    CHECK_RC(ZOK, zoo_exists(session->handle, "/e", 0, &stat));
    CHECK(stat.ephemeralOwner == id);
    CHECK_RC(ZOK, make(session->handle, path, "", 0));
    CHECK(await_event(seen, before, ZOO_CREATED_EVENT, path));
}

static void session_outlives_restarts(struct fixture *f) {
    (void)f;
    struct server own;
    struct session session;
    struct events seen = EVENTS_EMPTY;
    server_create(&own, "SERVER_COMMAND");
    session_open(&session, &own);
    if (make(session.handle, "/e", "", ZOO_EPHEMERAL) == ZOK) {
        restart_with_session(&own, &session, &seen, SIGTERM);
        if (!test_failed)
            restart_with_session(&own, &session, &seen, SIGKILL);
    } else {
        test_failed = true;
    }
    session_close(&session);
    server_destroy(&own);
}

static void gone_session_is_expired(struct fixture *f) {
    (void)f;
    struct session first, second;
    session_open(&first, &shared);
    clientid_t id = *zoo_client_id(first.handle);
    session_close(&first);
    session_resume(&second, &shared, &id);
    bool expired = await_state(&second.events, ZOO_EXPIRED_SESSION_STATE);
    bool unusable = zoo_exists(second.handle, "/", 0, NULL) == ZINVALIDSTATE;
    session_close(&second);
    CHECK(expired);
    CHECK(unusable);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*run)(struct fixture *);
} tests[] = {
#define TEST(name) {#name, name}
    TEST(create_get_set_delete),
    TEST(data_may_be_null),
    TEST(children_are_listed),
    TEST(sequences_and_ephemerals),
    TEST(containers_and_ttl_znodes_go),
    TEST(nearly_a_megabyte_fits),
    TEST(too_large_is_refused),
    TEST(bad_paths_are_refused),
    TEST(multi_is_one_step),
    TEST(multi_is_all_or_nothing),
    TEST(digest_opens_to_the_owner_only),
    TEST(watches_fire_once),
    TEST(watches_are_removed),
    TEST(replies_come_in_order),
    TEST(sync_and_create_call_back),
    TEST(session_outlives_restarts),
    TEST(gone_session_is_expired),
    TEST(a_thousand_gets_do_not_wait),
    TEST(batches_do_not_wait),
    TEST(large_replies_do_not_wait),
#ifdef HAVE_OPENSSL_H
    TEST(certificate_is_not_asked_for),
    TEST(certificate_opens),
    TEST(certificate_is_an_identity),
    TEST(server_of_another_authority_is_refused),
    TEST(client_without_a_certificate_is_refused),
    TEST(client_of_another_authority_is_refused),
#endif
};

static bool run(int number) {
    struct fixture fixture;
    test_failed = false;
    fixture.server = &shared;
    session_open(&fixture.session, &shared);
    fixture.zk = fixture.session.handle;
    snprintf(fixture.base, sizeof fixture.base, "/test%d", number);
    test_failed = make(fixture.zk, fixture.base, "", 0) != ZOK;
    if (!test_failed)
        tests[number].run(&fixture);
    session_close(&fixture.session);
    printf("%sok %d - %s\n", test_failed ? "not " : "", number + 1, tests[number].name);
    fflush(stdout);
    return !test_failed;
}

int main(void) {
    enum { COUNT = sizeof tests / sizeof tests[0] };
    int passed = 0;
    zoo_set_debug_level(0);
    /* With TLS the library writes to a connection that is gone as it comes. */
    signal(SIGPIPE, SIG_IGN);
    server_create(&shared, "SERVER_COMMAND");
    printf("1..%d\n", COUNT);
    for (int number = 0; number < COUNT; number++)
        passed += run(number);
    server_destroy(&shared);
#ifdef HAVE_OPENSSL_H
    tls_end();
#endif
    printf("%d passed, %d failed\n", passed, COUNT - passed);
    return passed == COUNT ? 0 : 1;
}
